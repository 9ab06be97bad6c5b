"""The labels by which workers tell that they take the same compiled step.

A label has a digest of the program: workers that have another version of a step, or
another constant in it, would compute together what none of them has written.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import numpy as np

from unisono._src.execution import equations
from unisono._src.execution.traced_function import TracedFunction
from unisono._src.machines.topology import Topology

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr

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
        text += f", captured arrays {digest_arrays(arrays)}"
    return text


def digest_lowered(lowered: jax.stages.Lowered) -> str:
    """Return a digest of a lowered program: its operations, shapes and constants.

    The text has no places in source files, so two copies of one file count as equal.
    """
    return _digest([lowered.as_text()])


def digest_jaxpr(jaxpr: Jaxpr) -> str:
    """Return a digest of a program that calls Python while it runs.

    Its lowered text may hold addresses, which differ between processes. So this one
    covers the operations, their types and the numbers written in the program.
    """
    return _digest(_lines(jaxpr))


def digest_arrays(arrays: Sequence[jax.Array]) -> str:
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
