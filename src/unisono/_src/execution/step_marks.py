"""Has a step of several workers tell them whether they do the same.

Workers that run two known steps in another order would add up numbers that do not
belong together. So a step adds its mark to a buffer that is summed over the replicas
anyway. If all of them have sent the same mark, the sum is this worker's mark times
their number. The result goes into the ledger (`workers/step_history`), which is looked
at before a number is read. See docs/decisions/0013.

Before that, workers tell by labels that they take the same compiled step. A label has a
digest of the program: workers that have another version of a step, or another constant
in it, would compute together what none of them has written.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import operator
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jax.typing import DTypeLike

from unisono._src.execution import equations
from unisono._src.execution.traced_function import TracedFunction
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.values import gradient_packing

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn


# A larger array is not copied to send the marks with it; they go by themselves.
_LARGEST_COPY = 1 << 20


def run(
    found: TracedFunction,
    consts: Sequence[jax.Array],
    args: Sequence[jax.Array],
    ledger: jax.Array,
    label: jax.Array,
) -> tuple[list[jax.Array], jax.Array]:
    """Compute a program, and compare its marks with those of all replicas.

    Args:
        found: the program.
        consts: its constants.
        args: its arguments.
        ledger: the ledger after the step before it.
        label: a number that stands for the program.

    Returns:
        The results of the program, and the ledger after it.
    """
    topology: Any = found.mesh
    values = [args[i] for i in found.unproved.inputs]
    if found.unproved.written:
        # They are known at the end only, when all sums are done.
        out = jax.core.eval_jaxpr(found.jaxpr, consts, *args)
        values += [out[i] for i in found.unproved.written]
        marks = advance(ledger, label, values)
        sums = send(marks, topology)
    else:
        marks = advance(ledger, label, values)
        out, sums = evaluate(found.jaxpr, consts, args, marks, topology)
    return out, close(ledger, marks, sums, topology.replicas)


# The marks.


@final
@dataclasses.dataclass(frozen=True)
class StepMarks:
    """The marks of this worker, two numbers of 32 bits.

    Attributes:
        step: the mark of the steps up to this one.
        value: the mark of the values that must be equal on all workers.
    """

    step: jax.Array
    value: jax.Array


# All of this is written element by element, so that XLA makes one loop of it: each
# operation of its own takes about as long as the rest.


def advance(
    ledger: jax.Array, label: jax.Array, values: Sequence[jax.Array]
) -> StepMarks:
    """Return the marks of a step.

    Args:
        ledger: the ledger after the step before it.
        label: a number that stands for the program.
        values: arrays that must be equal on all workers.
    """
    step, value = _mix(ledger[0], label), ledger[1]
    for x in values:
        value = _mix(value, digest(x))
    return StepMarks(step, value)


def close(
    ledger: jax.Array, marks: StepMarks, sums: jax.Array, replicas: int
) -> jax.Array:
    """Return the ledger after a step.

    Args:
        ledger: the ledger before it.
        marks: the marks of this worker.
        sums: the sum of what each replica has sent of its marks.
        replicas: how many there are.
    """
    lanes, half = split(marks, replicas, sums.dtype), sums.size // 2
    same = [sums[i] == lanes[i] * replicas for i in range(sums.size)]
    count, place = ledger[2] + 1, jax.lax.iota(jnp.uint32, ledger.size)
    words = [marks.step, marks.value, count]
    for i, parts in enumerate((same[:half], same[half:])):
        is_first = (ledger[3 + i] == 0) & ~functools.reduce(operator.and_, parts)
        words.append(jnp.where(is_first, count, ledger[3 + i]))
    return functools.reduce(
        lambda rest, i: jnp.where(place == i, words[i], rest), range(len(words)), place
    )


def split(
    marks: StepMarks, replicas: int, dtype: DTypeLike, place: jax.Array | None = None
) -> jax.Array:
    """Return the marks as numbers whose sum over the replicas is exact in `dtype`.

    Floats of 32 bits have 24 digits: numbers of 16 bits are exact to 256 replicas.

    Args:
        marks: the marks.
        replicas: how many replicas there are.
        dtype: the type of the numbers.
        place: which of the numbers to return; all of them by default.
    """
    bits = gradient_packing.lane_bits(replicas)
    half = gradient_packing.count_lanes(replicas) // 2
    if place is None:
        place = jax.lax.iota(jnp.uint32, 2 * half)
    word = jnp.where(place < half, marks.step, marks.value)
    lanes = (word >> (place % half * bits)) & np.uint32((1 << bits) - 1)
    return lanes.astype(dtype)


def digest(x: jax.Array) -> jax.Array:
    """Return a number of 32 bits that depends on every bit of an array."""
    words = _to_words(x).reshape(-1)
    places = jax.lax.iota(jnp.uint32, words.size) * np.uint32(0x9E3779B9)
    # The order of the sum does not matter, so every device gets the same one.
    return jnp.sum(_mix(words, places), dtype=jnp.uint32)


def _mix(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return a number of 32 bits made of two, in which every bit counts."""
    h = (a ^ (b + np.uint32(0x7FEB352D))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(15)) ^ b) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(13))


def _to_words(x: jax.Array) -> jax.Array:
    """Return the bits of an array as numbers of 32 bits."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        x = jnp.stack([x.real, x.imag])
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        # Integers of 64 bits are cut into halves below, like floats.
        if x.dtype.itemsize < 8:
            return x.astype(jnp.uint32)
        return jax.lax.bitcast_convert_type(x, jnp.uint32)
    if x.dtype.itemsize >= 4:
        return jax.lax.bitcast_convert_type(x, jnp.uint32)
    narrow = jnp.uint16 if x.dtype.itemsize == 2 else jnp.uint8
    return jax.lax.bitcast_convert_type(x, narrow).astype(jnp.uint32)


# The program.


@final
@dataclasses.dataclass(frozen=True)
class _MarkedSum:
    """The sum over the replicas that carries the marks.

    Attributes:
        mapped: the position of the `shard_map` in the program.
        equation: the position of the sum in the replica's program.
        has_room: whether its buffer was made with room for the marks.
        size: the number of bytes that are summed.
    """

    mapped: int
    equation: int
    has_room: bool
    size: int


def evaluate(
    jaxpr: Jaxpr,
    consts: Sequence[jax.Array],
    args: Sequence[jax.Array],
    marks: StepMarks,
    topology: Topology,
) -> tuple[list[jax.Array], jax.Array]:
    """Compute a program that sends its marks to all replicas.

    Args:
        jaxpr: the program.
        consts: its constants.
        args: its arguments.
        marks: the marks of this worker.
        topology: the replicas.

    Returns:
        The results of the program, and the sums of what the replicas have sent.
    """
    found = _find_marked_sum(jaxpr)
    if found is None:
        sums = send(marks, topology)
        return jax.core.eval_jaxpr(jaxpr, consts, *args), sums

    def map_replicas(
        mapped: JaxprEqn, values: Sequence[jax.Array]
    ) -> tuple[list[jax.Array], jax.Array]:
        return _call_mapped(mapped, values, found, marks, topology.replicas)

    return _evaluate_around(jaxpr, consts, args, found.mapped, map_replicas)


def send(marks: StepMarks, topology: Topology) -> jax.Array:
    """Return the sums of the marks of all replicas, sent by themselves."""
    same = PartitionSpec()
    lanes = split(marks, topology.replicas, jnp.int32)
    total: jax.Array = jax.shard_map(
        lambda x: jax.lax.psum(x, AXIS),
        mesh=topology.mesh,
        in_specs=same,
        out_specs=same,
        axis_names={AXIS},
        check_vma=False,
    )(lanes)
    return total


def _find_marked_sum(jaxpr: Jaxpr) -> _MarkedSum | None:
    """Return the sum that carries the marks at the least cost, if there is one."""
    found = [
        carrier
        for i, e in enumerate(jaxpr.eqns)
        if e.primitive.name == "shard_map" and AXIS in e.params["newly_manual_axes"]
        for carrier in _list_sums(i, e.params["jaxpr"])
    ]
    found = [c for c in found if c.has_room or c.size <= _LARGEST_COPY]
    return min(found, key=lambda c: (not c.has_room, c.size), default=None)


def _list_sums(mapped: int, body: Jaxpr) -> list[_MarkedSum]:
    """Return the sums of a replica's program that could carry marks."""
    # Sums in branches and loops may be left out, or be done many times.
    found = []
    for i, e in enumerate(body.eqns):
        has_room = gradient_packing.has_room(e)
        is_sum = e.primitive.name == "psum" and (
            tuple(e.params["axes"]) == (AXIS,)
            and e.params["axis_index_groups"] is None
            and len(e.invars) == 1
            and equations.aval_of(e.invars[0]).dtype in gradient_packing.CARRIERS
        )
        if has_room or is_sum:
            aval = equations.aval_of(e.invars[0])
            size = aval.size * aval.dtype.itemsize
            found.append(_MarkedSum(mapped, i, has_room, size))
    return found


def _call_mapped(
    mapped: JaxprEqn,
    values: Sequence[jax.Array],
    carrier: _MarkedSum,
    marks: StepMarks,
    replicas: int,
) -> tuple[list[jax.Array], jax.Array]:
    """Compute the replicas' program, with the marks in one of its sums."""
    params, same = mapped.params, PartitionSpec()

    def add_marks(
        equation: JaxprEqn, given: Sequence[jax.Array], own: StepMarks
    ) -> tuple[list[jax.Array], jax.Array]:
        (x,) = given
        flat, room = x.reshape(-1), gradient_packing.count_lanes(replicas)
        if carrier.has_room:
            end = flat.size - room
            lanes = split(own, replicas, x.dtype)
            flat = jax.lax.dynamic_update_slice(flat, lanes, (end,))
            total = jax.lax.psum(flat, AXIS)
            return [total], total[end:]
        end = flat.size
        # Not `concatenate`; see docs/decisions/0019.
        padded = jnp.pad(flat, (0, room))
        place = jax.lax.iota(jnp.uint32, padded.size)
        lanes = split(own, replicas, x.dtype, place - np.uint32(end))
        total = jax.lax.psum(jnp.where(place < end, padded, lanes), AXIS)
        return [total[:end].reshape(x.shape)], total[end:]

    def body(*args: jax.Array) -> tuple[jax.Array, ...]:
        *own, step, value = args
        out, sums = _evaluate_around(
            params["jaxpr"],
            (),
            own,
            carrier.equation,
            lambda e, given: add_marks(e, given, StepMarks(step, value)),
        )
        return (*out, sums)

    *out, sums = jax.shard_map(
        body,
        mesh=params["mesh"],
        in_specs=(*params["in_specs"], same, same),
        out_specs=(*params["out_specs"], same),
        axis_names=set(params["newly_manual_axes"]),
        check_vma=params["check_vma"],
    )(*values, marks.step, marks.value)
    return out, sums


def _evaluate_around(
    jaxpr: Jaxpr,
    consts: Sequence[jax.Array],
    args: Sequence[jax.Array],
    at: int,
    compute: Callable[
        [JaxprEqn, Sequence[jax.Array]], tuple[list[jax.Array], jax.Array]
    ],
) -> tuple[list[jax.Array], jax.Array]:
    """Compute a program of which one equation is computed in another way.

    Args:
        jaxpr: the program.
        consts: its constants.
        args: its arguments.
        at: the position of the equation.
        compute: returns the equation's results for its operands, and one thing more.

    Returns:
        The program's results, and what else `compute` has returned.
    """
    more: list[jax.Array] = []

    def follow(eqn: JaxprEqn, given: list[jax.Array]) -> list[jax.Array]:
        if eqn is not jaxpr.eqns[at]:
            return equations.compute(jaxpr, eqn, given)
        results, found = compute(eqn, given)
        more.append(found)
        return results

    out = equations.interpret(jaxpr, consts, args, follow, equations.value_of)
    return out, more[0]


# Long enough that two programs of a job do not share one by chance.
_LENGTH = 12


@final
class StepLabels:
    """The labels of a program, one for each set of shapes and types of its arguments.

    Args:
        name: the name of the function.
        mesh: the devices of the program; None for a single device.
    """

    def __init__(self, name: str, mesh: Topology | None) -> None:
        self._name = name
        self._mesh = mesh
        self._labels: dict[tuple[object, ...], tuple[str, jax.Array]] = {}

    def find(self, leaves: Sequence[equations.HasShape]) -> str | None:
        """Return the label of a call with these arguments, if it has one."""
        found = self._labels.get(_shapes_of(leaves))
        return None if found is None else found[0]

    def find_number(self, leaves: Sequence[equations.HasShape]) -> jax.Array:
        """Return a number that stands for the label, on the devices of the program.

        Args:
            leaves: arguments of a call that has a label.
        """
        labels = self._labels
        if len(labels) == 1:  # A step asks each time, and most have one label only.
            return next(iter(labels.values()))[1]
        return labels[_shapes_of(leaves)][1]

    def make_number(self, text: str) -> jax.Array:
        """Return a number that stands for a text, on the devices of the program."""
        number: Any = np.uint32(zlib.crc32(text.encode()))
        return number if self._mesh is None else self._mesh.spread(number)

    def add(
        self, leaves: Sequence[equations.HasShape], found: TracedFunction, digest: str
    ) -> str:
        """Return the new label of calls with such arguments.

        Args:
            leaves: the arguments.
            found: the trace that serves them.
            digest: a digest of the program.
        """
        shapes = _shapes_of(leaves)
        told = [shape for shape, _ in shapes]
        text = f"{self._name}{told}, program {digest}{_name_unproved(found)}"
        self._labels[shapes] = text, self.make_number(text)
        return text


def _shapes_of(
    leaves: Sequence[equations.HasShape],
) -> tuple[tuple[tuple[int, ...], np.dtype], ...]:
    return tuple([(x.shape, x.dtype) for x in leaves])


def _name_unproved(found: TracedFunction) -> str:
    """Return for people what must be equal on all workers, if anything is."""
    unproved, count = found.unproved, len(found.read)
    names = [
        f"'{found.read[i].name}'" if i < count else f"array {i - count}"
        for i in unproved.inputs
    ]
    names += [f"the new '{found.written[i].name}'" for i in unproved.written]
    text = f", which needs the same {', '.join(names)}" if names else ""
    if unproved.captured:
        arrays = [found.constants.captured[i] for i in unproved.captured]
        text += f", captured arrays {_digest_arrays(arrays)}"
    return text


def digest_lowered(lowered: jax.stages.Lowered, jaxpr: Jaxpr) -> str:
    """Return a digest of a lowered program: its operations, shapes and constants.

    The text has no places in source files, so two copies of one file count as equal.

    Args:
        lowered: the program.
        jaxpr: the same program before it was lowered.
    """
    # With `jax_use_simplified_jaxpr_constants` arrays are here, and not in the text.
    atoms = (x for eqn in equations.walk(jaxpr) for x in eqn.invars)
    arrays = [x.val for x in atoms if equations.is_literal(x) and np.ndim(x.val)]
    return _digest([lowered.as_text(), _digest_arrays(arrays) if arrays else ""])


def digest_jaxpr(jaxpr: Jaxpr) -> str:
    """Return a digest of a program that calls Python while it runs.

    Its lowered text may hold addresses, which differ between processes. So this one
    covers the operations, their types and the numbers written in the program.
    """
    return _digest(_lines(jaxpr))


def _digest_arrays(arrays: Sequence[jax.Array]) -> str:
    """Return a digest of the elements of arrays."""
    found = hashlib.sha256()
    for x in arrays:
        if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
            x = jax.random.key_data(x)
        plain = np.asarray(x)
        found.update(f"{plain.dtype}{plain.shape}".encode())
        found.update(plain.tobytes())
    return found.hexdigest()[:_LENGTH]


def _lines(jaxpr: Jaxpr) -> Iterator[str]:
    for equation in equations.walk(jaxpr):
        # A literal has `val`. Names of variables are left out: they differ between
        # traces.
        given = [str(getattr(x, "val", x.aval)) for x in equation.invars]
        made = [str(x.aval) for x in equation.outvars]
        yield f"{equation.primitive.name} {given} {made}"


def _digest(lines: Iterable[str]) -> str:
    found = hashlib.sha256()
    for line in lines:
        found.update(line.encode())
    return found.hexdigest()[:_LENGTH]
