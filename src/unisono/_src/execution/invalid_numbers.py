"""Where a step computes a number that is not finite, for JAX's `jax_debug_nans`.

With this option JAX looks at what a program returns. If a number there is not finite,
it calls the program's function again, outside `jax.jit`, to raise at the operation that
computed it. For a program of several replicas it tells no more than that. So that call
comes here: the program runs once more with the search in it. Until such a number
appears, nothing of this costs anything.

One of several workers cannot run the program without the others. It computes what its
own replicas do up to where they need the others, and searches there.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jax.typing import ArrayLike

from unisono._src.execution import equations, lockstep, value_sources
from unisono._src.execution.traced_function import TracedFunction
from unisono._src.foundation import jax_internals
from unisono._src.machines.topology import AXIS

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn, Var

# A value, and its number; None if it has none. The value is None if other workers are
# needed to know it.
_Numbered = tuple[jax.Array | None, int | None]

# What one replica cannot compute by itself, at least inside of another operation.
_NEEDS_OTHERS = {*value_sources.COLLECTIVES, "axis_index", "shard_map"}
# These may leave an operand out.
_CHOOSES = {"select_n", "cond", "while", "max", "min", "clamp"}

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep


def explain(
    found: TracedFunction, consts: Sequence[jax.Array], arrays: Sequence[jax.Array]
) -> None:
    """Raise an error that names the first number of a program that is not finite.

    Return if there is none: XLA may compute otherwise in the program as a whole. One of
    several workers raises in any case, because it cannot go on without the others.

    Args:
        found: the program.
        consts: its constants.
        arrays: its inputs.

    Raises:
        FloatingPointError: there is one.
    """
    with_infinity = jax_internals.find_setting("jax_debug_infs").value
    if not (with_infinity or jax_internals.find_setting("jax_debug_nans").value):
        return  # JAX has not asked: it does not compile, by `jax.disable_jit`.
    text = f"'{found.name}' computed a number that is not finite"
    if any(x.is_deleted() for x in arrays if isinstance(x, jax.Array)):
        raise FloatingPointError(
            f"{text}, and it cannot be run again to find where, because it has updated "
            "variables in place. Set the option before the first call of the step"
        )
    mesh, told = found.mesh, ""
    is_spread = mesh is not None and mesh.is_spread
    with jax.debug_nans(False), jax.debug_infs(False):
        for replica in mesh.local if mesh is not None and is_spread else [None]:
            search = _Search(found, with_infinity, replica)
            told = told or search.describe(consts, arrays)
    if is_spread:
        told = told or search.describe_exchange()
    if told:
        # Another worker may not have such a number in its results.
        here = " on this worker" if is_spread else ""
        raise FloatingPointError(f"{text}. {told} No variable was changed{here}.")


@final
@dataclasses.dataclass
class _NotedValue:
    """A value of a program.

    Attributes:
        what: what it is, in words.
        sources: the numbers of the values that it was computed from.
        is_own: whether each replica has its own, as a row of what is taken of it.
        where: which replica has it, in words, if replicas were traced in turn.
    """

    what: str
    sources: list[int]
    is_own: bool
    where: str


@final
class _Search:
    """Runs a program with its values as results.

    Args:
        found: the program.
        with_infinity: whether infinity is forbidden, too.
        replica: the replica of this worker whose part of the program runs, without
            those of others; None for the whole program.
    """

    def __init__(
        self, found: TracedFunction, with_infinity: bool, replica: int | None
    ) -> None:
        self._found = found
        self._with_infinity = with_infinity
        self._replica = replica
        self._values: list[_NotedValue] = []
        # Called with the number of a value and the value. It returns an array to keep.
        self._take: Callable[[int, jax.Array], jax.Array | None] = self._is_bad
        self._taken: list[jax.Array] = []
        # The numbers of outputs, and of what goes where other workers are needed.
        self._ends: list[int] = []
        self._exchange = ""  # The first operation that needs other workers.
        self._is_replica = False
        self._where, self._line = "", ""  # Of the operation that is computed.

    def describe(self, consts: Sequence[jax.Array], arrays: Sequence[jax.Array]) -> str:
        """Return what to tell of the first value that is not finite; "" if all are."""
        consts = [self._take_own(x) for x in consts]
        arrays = [self._take_own(x) for x in arrays]
        flags = [np.asarray(x) for x in self._run(consts, arrays)]
        bad = {i for i, flag in enumerate(flags) if flag.any()}
        reached = [i for i in self._ends if i in bad]
        if not reached:
            return ""
        first = self._find_first(bad)
        self._take = lambda i, x: x if i == first else None
        (array,) = [np.asarray(x) for x in self._run(consts, arrays)]
        value = self._values[first]
        where = value.where
        if value.is_own:
            number = int(np.argmax(flags[first]))
            array, number = array[number], number + (self._replica or 0)
            where = f"on replica {number} "
        place = tuple(np.argwhere(self._find_bad(array))[0].tolist())
        told = f"It appeared first {where}as {value.what}, "
        told += f"{array.dtype}{list(array.shape)}"
        if place:
            told += f", at position {list(place)}"
        if place and array.shape[0] in self._count_examples(value.is_own):
            told += f", which is example {place[0]} of {array.shape[0]}"
        names = dict.fromkeys(self._values[i].what for i in reached)
        return f"{told}. It is in {', '.join(names)}."

    def describe_exchange(self) -> str:
        """Return what to tell if this worker has found nothing."""
        if not self._exchange:
            return (
                "Nothing that this worker computes is wrong. The message of another "
                "worker may name where it appeared."
            )
        return (
            "Nothing that this worker computes before the workers exchange numbers is "
            "wrong. Either the message of another worker names where it appeared, or "
            f"it appeared in the exchange or after it, which is first {self._exchange}."
        )

    def _take_own(self, x: Any) -> Any:
        """Return the part of an input that the replica has."""
        mesh = self._found.mesh
        if mesh is None or self._replica is None or not isinstance(x, jax.Array):
            return x
        device = mesh.devices[self._replica]
        parts = (s.data for s in x.addressable_shards if s.device == device)
        return next(parts, x)

    def _find_first(self, bad: set[int]) -> int:
        """Return the first of the bad values that reach an output.

        Others are of no account, such as a logarithm that `jnp.where` leaves out.
        """
        found = bad.intersection(self._ends)
        # Values have larger numbers than those that they were computed from.
        for i in range(len(self._values) - 1, -1, -1):
            if i in found:
                found.update(bad.intersection(self._values[i].sources))
        return min(found)

    def _find_bad(self, x: ArrayLike) -> jax.Array:
        """Return for each number whether it is forbidden."""
        return ~jnp.isfinite(x) if self._with_infinity else jnp.isnan(x)

    def _is_bad(self, _: int, x: jax.Array) -> jax.Array:
        """Return whether a value has a forbidden number."""
        return jnp.any(self._find_bad(x))

    def _count_examples(self, is_own: bool) -> set[int]:
        """Return how many rows the arguments have, for each replica or in all."""
        axis = int(is_own)
        inputs = self._found.jaxpr.invars[len(self._found.read) :]
        shapes = [equations.aval_of(v).shape for v in inputs]
        return {s[axis] for s in shapes if len(s) > axis}

    def _run(
        self, consts: Sequence[jax.Array], arrays: Sequence[jax.Array]
    ) -> list[jax.Array]:
        """Run the program, and return the arrays that were taken."""
        found = self._found
        split, (given, made) = _find_split(found), _name_ends(found)

        def program(*arrays: jax.Array) -> list[jax.Array]:
            self._values, self._taken, self._ends = [], [], []
            inputs = [
                (x, self._note(name, x, [], v in split))
                for v, x, name in zip(found.jaxpr.invars, arrays, given, strict=True)
            ]
            consts_ = [(x, None) for x in consts]
            outs = self._evaluate(found.jaxpr, consts_, inputs)
            for out, name in zip(outs, made, strict=True):
                self._note_end(name, out)
            return self._taken

        taken: list[jax.Array] = jax.jit(program)(*arrays)
        return taken

    def _note(
        self,
        what: str,
        x: jax.Array,
        sources: Sequence[int | None],
        is_own: bool = False,
    ) -> int | None:
        """Number a value, take an array of it, and return the number.

        Args:
            what: what the value is, in words.
            x: the value. None is returned if its numbers are always finite.
            sources: the numbers of the values that it was computed from.
            is_own: whether it has a row for each replica.
        """
        if not _has_fractions(jax.typeof(x)):
            return None
        number = len(self._values)
        take = functools.partial(self._take, number)
        taken = jax.vmap(take)(x) if is_own else take(x)
        known = [i for i in sources if i is not None]
        own = is_own or self._is_replica
        self._values.append(_NotedValue(what, known, own, self._where))
        if taken is not None:
            self._taken.append(taken)
        return number

    def _note_end(self, what: str, value: _Numbered) -> None:
        """Note a value where the search ends."""
        x, source = value
        number = None if x is None else self._note(what, x, [source])
        if number is not None:
            self._ends.append(number)

    def _evaluate(
        self, jaxpr: Jaxpr, consts: Sequence[_Numbered], args: Sequence[_Numbered]
    ) -> list[_Numbered]:
        """Return the results of a program, and note its values."""

        def follow(eqn: JaxprEqn, given: list[_Numbered]) -> list[_Numbered]:
            if not eqn.outvars:
                return []  # It prints or asserts, which it has done already.
            around = self._where, self._line
            self._where = _find_replica(eqn) or self._where
            self._line = _find_line(eqn) or self._line
            called = equations.inlinable_program(eqn)
            if called is not None:
                constants = [(x, None) for x in called.consts]
                out = self._evaluate(called.jaxpr, constants, given)
            elif AXIS in eqn.params.get("newly_manual_axes", ()):
                out = self._evaluate_replicas(eqn, given)
            else:
                out = self._compute(jaxpr, eqn, given)
            self._where, self._line = around
            return out

        return equations.interpret(jaxpr, consts, args, follow, lambda v: (v.val, None))

    def _compute(
        self, jaxpr: Jaxpr, eqn: JaxprEqn, given: Sequence[_Numbered]
    ) -> list[_Numbered]:
        """Return the results of an operation, and note them."""
        known, name = [x for x, _ in given if x is not None], eqn.primitive.name
        is_unknown = len(known) < len(given)
        if self._replica is not None:
            if name == "axis_index":
                return [(jnp.int32(self._replica), None)]
            if name == "sharding_constraint":
                return list(given)  # It is on one device here.
            exchange = None if is_unknown else _find_exchange(jaxpr, eqn, known)
            if exchange is not None:
                line, is_unknown = _find_line(exchange) or self._line, True
                inside = "" if exchange is eqn else f" inside {name}{self._line}"
                exchanged = f"{exchange.primitive.name}{line}{inside}"
                self._exchange = self._exchange or exchanged
        if is_unknown:
            for value in given if _passes_on(eqn) else ():
                if value[1] is not None:
                    self._note_end(f"an operand of {name}{self._line}", value)
            return [(None, None)] * len(eqn.outvars)
        found = equations.compute(jaxpr, eqn, known)
        what, sources = f"the result of {name}{self._line}", [n for _, n in given]
        return [(x, self._note(what, x, sources)) for x in found]

    def _evaluate_replicas(
        self, eqn: JaxprEqn, given: Sequence[_Numbered]
    ) -> list[_Numbered]:
        """Return the results of a `shard_map`, and note the values of each replica."""
        params, around = eqn.params, self._taken
        start, numbers = len(self._values), [number for _, number in given]
        made: list[int | None] = []

        def body(*args: Any) -> tuple[list[Any], list[jax.Array]]:
            self._taken, self._is_replica = [], True
            del self._values[start:]
            inputs = list(zip(args, numbers, strict=True))
            out = self._evaluate(params["jaxpr"], (), inputs)
            self._is_replica = False
            made[:] = [number for _, number in out]
            return [x for x, _ in out], [x[None] for x in self._taken]

        if self._replica is not None:
            pairs = zip(eqn.invars, params["jaxpr"].invars, given, strict=True)
            out, taken = body(*[self._cut(x, v, inner) for v, inner, (x, _) in pairs])
        else:
            out, taken = jax.shard_map(
                body,
                mesh=params["mesh"],
                in_specs=tuple(params["in_specs"]),
                out_specs=(list(params["out_specs"]), PartitionSpec(AXIS)),
                axis_names=set(params["newly_manual_axes"]),
                check_vma=False,
            )(*[x for x, _ in given])
        self._taken = [*around, *taken]
        return list(zip(out, made, strict=True))

    def _cut(
        self, x: jax.Array | None, v: equations.Atom, inner: Var
    ) -> jax.Array | None:
        """Return the replica's part of an operand of a `shard_map`, if it is known.

        Args:
            x: the operand, whole or already a part.
            v: the operand in the program around the replicas.
            inner: the same in the replica's program.
        """
        size = equations.aval_of(inner).shape
        if x is None or jnp.shape(x) == size:
            return x
        if self._replica is None or _is_part(v, x):
            return None  # It is split in another way.
        start = [
            self._replica * m if m != n else 0
            for m, n in zip(size, jnp.shape(x), strict=True)
        ]
        return jax.lax.dynamic_slice(x, start, size)


def _name_ends(found: TracedFunction) -> tuple[list[str], list[str]]:
    """Return the names of the inputs and of the outputs of a program."""
    count = len(found.jaxpr.invars) - len(found.read)
    given = [f"the variable '{c.name}'" for c in found.read]
    given += [f"argument {i}" for i in range(count)]
    results = len(found.result_avals())
    made = [f"the variable '{c.name}'" for c in found.written]
    made += ["a new value of a variable"] * (
        len(found.jaxpr.outvars) - len(made) - results
    )
    made += ["the result"] if results == 1 else [f"result {i}" for i in range(results)]
    return given, made


def _find_split(found: TracedFunction) -> set[Var]:
    """Return the inputs of a program of which each replica has a row."""
    inputs = found.jaxpr.invars
    # Other cells that are split are so by the rows of one value.
    stacked = [v for v, c in zip(inputs, found.read, strict=False) if c.is_stacked]
    rows = {*stacked, *inputs[len(found.read) :]}
    split = set()
    for eqn in found.jaxpr.eqns:
        if eqn.primitive.name == "shard_map":
            pairs = zip(eqn.invars, eqn.params["in_specs"], strict=True)
            split |= {v for v, spec in pairs if len(spec) and spec[0] == AXIS}
    return rows & split


def _is_part(v: equations.Atom, x: jax.Array) -> bool:
    """Whether a replica has only a part of the value of `v`, which is `x`."""
    shape: tuple[int, ...] = equations.aval_of(v).shape
    return jnp.shape(x) != shape


def _has_fractions(aval: jax.core.ShapedArray) -> bool:
    """Whether a value of a shape and type may have numbers that are not finite."""
    return bool(jnp.issubdtype(aval.dtype, jnp.inexact))


def _passes_on(eqn: JaxprEqn) -> bool:
    """Whether a number of an operand that is not finite is so in the results, too."""
    results = map(_has_fractions, map(equations.aval_of, eqn.outvars))
    return eqn.primitive.name not in _CHOOSES and any(results)


def _find_exchange(
    program: Jaxpr, eqn: JaxprEqn, operands: Sequence[jax.Array]
) -> JaxprEqn | None:
    """Return what in an operation of a program a replica cannot compute by itself."""
    walked = equations.walk(program.replace(eqns=[eqn]))
    inside = [e for e in walked if e.primitive.name in _NEEDS_OTHERS]
    if not inside and not any(map(_is_part, eqn.invars, operands)):
        return None
    met = (e for e in inside if e.primitive.name in value_sources.COLLECTIVES)
    return next(met, eqn)


def _find_replica(eqn: JaxprEqn) -> str:
    """Return which of several replicas that were traced in turn has an operation."""
    found = re.search(lockstep.replica_scope(r"(\d+)"), str(eqn.source_info.name_stack))
    return f"on replica {found[1]} " if found else ""


def _find_line(eqn: JaxprEqn) -> str:
    """Return the line of the user's code that has an operation, if it is known."""
    frames = jax_internals.user_frames(eqn.source_info.traceback)
    lines = (
        f" at {f.file_name}:{f.start_line}"
        for f in frames
        if not f.file_name.startswith(_PACKAGE)
    )
    return next(lines, "")
