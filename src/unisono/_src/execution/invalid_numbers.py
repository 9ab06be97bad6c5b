"""Where a step computes a number that is not finite, for JAX's `jax_debug_nans`.

With this option JAX looks at what a program returns. If a number there is not finite,
it calls the program's function again, outside `jax.jit`, to raise at the operation that
computed it. For a program of several replicas it tells no more than that. So that call
comes here: the program runs once more with the search in it. Until such a number
appears, nothing of this costs anything.
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

from unisono._src.execution import equations, lockstep
from unisono._src.execution.traced_function import TracedFunction
from unisono._src.foundation import jax_internals
from unisono._src.machines.topology import AXIS

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn, Var

# A value, and its number; None if it has none.
_Numbered = tuple[jax.Array, int | None]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep


def explain(
    found: TracedFunction, consts: Sequence[jax.Array], arrays: Sequence[jax.Array]
) -> None:
    """Raise an error that names the first number of a program that is not finite.

    Return if there is none: XLA may compute otherwise in the program as a whole.

    Args:
        found: the program.
        consts: its constants.
        arrays: its inputs.

    Raises:
        FloatingPointError: there is one.
    """
    text = f"'{found.name}' computed a number that is not finite"
    if any(x.is_deleted() for x in arrays if isinstance(x, jax.Array)):
        raise FloatingPointError(
            f"{text}, and it cannot be run again to find where, because it has updated "
            "variables in place. Set the option before the first call of the step"
        )
    if found.mesh is not None and found.mesh.is_spread:
        raise FloatingPointError(
            f"{text}. One worker cannot run the step again without the others; run the "
            "program with one worker to find where."
        )
    with_infinity = jax_internals.find_setting("jax_debug_infs").value
    with jax.debug_nans(False), jax.debug_infs(False):
        told = _Search(found, with_infinity).describe(consts, arrays)
    if told:
        raise FloatingPointError(f"{text}. {told} No variable was changed.")


@final
@dataclasses.dataclass
class _NotedValue:
    """A value of a program.

    Attributes:
        what: what it is, in words.
        sources: the numbers of the values that it was computed from.
        is_own: whether each replica has its own, as a row of what is taken of it.
        where: which replica has it, in words, if they were traced in turn.
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
    """

    def __init__(self, found: TracedFunction, with_infinity: bool) -> None:
        self._found = found
        self._with_infinity = with_infinity
        self._values: list[_NotedValue] = []
        # Called with the number of a value and the value. It returns an array to keep.
        self._take: Callable[[int, jax.Array], jax.Array | None] = self._is_bad
        self._taken: list[jax.Array] = []
        self._inner = 0  # How many of the values are no outputs.
        self._is_replica = False
        self._where = ""

    def describe(self, consts: Sequence[jax.Array], arrays: Sequence[jax.Array]) -> str:
        """Return what to tell of the first value that is not finite; "" if all are."""
        flags = [np.asarray(x) for x in self._run(consts, arrays)]
        bad = {i for i, flag in enumerate(flags) if flag.any()}
        reached = [i for i in sorted(bad) if i >= self._inner]
        if not reached:
            return ""
        first = self._find_first(bad)
        self._take = lambda i, x: x if i == first else None
        (array,) = [np.asarray(x) for x in self._run(consts, arrays)]
        value = self._values[first]
        where = value.where
        if value.is_own:
            number = int(np.argmax(flags[first]))
            array, where = array[number], f"on replica {number} "
        place = tuple(np.argwhere(self._find_bad(array))[0].tolist())
        told = f"It appeared first {where}as {value.what}, "
        told += f"{array.dtype}{list(array.shape)}"
        if place:
            told += f", at position {list(place)}"
        if place and array.shape[0] in self._count_examples(value.is_own):
            told += f", which is example {place[0]} of {array.shape[0]}"
        names = ", ".join(self._values[i].what for i in reached)
        return f"{told}. It is in {names}."

    def _find_first(self, bad: set[int]) -> int:
        """Return the first of the bad values that reach an output.

        Others are of no account, such as a logarithm that `jnp.where` leaves out.
        """
        found = {i for i in bad if i >= self._inner}
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
            self._values, self._taken = [], []
            inputs = [
                (x, self._note(name, x, [], v in split))
                for v, x, name in zip(found.jaxpr.invars, arrays, given, strict=True)
            ]
            consts_ = [(x, None) for x in consts]
            outs = self._evaluate(found.jaxpr, consts_, inputs)
            self._inner = len(self._values)
            for (x, number), name in zip(outs, made, strict=True):
                self._note(name, x, [number])
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
        if not jnp.issubdtype(jax.typeof(x).dtype, jnp.inexact):
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

    def _evaluate(
        self, jaxpr: Jaxpr, consts: Sequence[_Numbered], args: Sequence[_Numbered]
    ) -> list[_Numbered]:
        """Return the results of a program, and note its values."""
        env: dict[Any, _Numbered] = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))

        def read(v: equations.Atom) -> _Numbered:
            return (v.val, None) if equations.is_literal(v) else env[v]

        for eqn in jaxpr.eqns:
            if not eqn.outvars:
                continue  # It prints or asserts, which it has done already.
            given = [read(v) for v in eqn.invars]
            around, self._where = self._where, _find_replica(eqn) or self._where
            called = equations.inlinable_program(eqn)
            if called is not None:
                constants = [(x, None) for x in called.consts]
                out = self._evaluate(called.jaxpr, constants, given)
            elif eqn.primitive.name == "shard_map":
                out = self._evaluate_replicas(eqn, given)
            else:
                sources = [number for _, number in given]
                found = equations.compute(jaxpr, eqn, [x for x, _ in given])
                out = [(x, self._note(_describe(eqn), x, sources)) for x in found]
            self._where = around
            env.update(zip(eqn.outvars, out, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _evaluate_replicas(
        self, eqn: JaxprEqn, given: Sequence[_Numbered]
    ) -> list[_Numbered]:
        """Return the results of a `shard_map`, and note the values of each replica."""
        params, around = eqn.params, self._taken
        start, numbers = len(self._values), [number for _, number in given]
        made: list[int | None] = []

        def body(*args: jax.Array) -> tuple[list[jax.Array], list[jax.Array]]:
            self._taken, self._is_replica = [], True
            del self._values[start:]
            inputs = list(zip(args, numbers, strict=True))
            out = self._evaluate(params["jaxpr"], (), inputs)
            self._is_replica = False
            made[:] = [number for _, number in out]
            return [x for x, _ in out], [x[None] for x in self._taken]

        mapped = jax.shard_map(
            body,
            mesh=params["mesh"],
            in_specs=tuple(params["in_specs"]),
            out_specs=(list(params["out_specs"]), PartitionSpec(AXIS)),
            axis_names=set(params["newly_manual_axes"]),
            check_vma=False,
        )
        out, taken = mapped(*[x for x, _ in given])
        self._taken = [*around, *taken]
        return list(zip(out, made, strict=True))


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


def _find_replica(eqn: JaxprEqn) -> str:
    """Return which of several replicas that were traced in turn has an operation."""
    found = re.search(lockstep.replica_scope(r"(\d+)"), str(eqn.source_info.name_stack))
    return f"on replica {found[1]} " if found else ""


def _describe(eqn: JaxprEqn) -> str:
    """Return the name of an operation, and the line of the user's code that has it."""
    frames = jax_internals.user_frames(eqn.source_info.traceback)
    lines = [
        f" at {f.file_name}:{f.start_line}"
        for f in frames
        if not f.file_name.startswith(_PACKAGE)
    ]
    return f"the result of {eqn.primitive.name}{lines[0] if lines else ''}"
