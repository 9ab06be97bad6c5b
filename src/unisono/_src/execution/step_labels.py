"""The labels by which workers tell that they take the same compiled step."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from unisono._src.execution import program_digest
from unisono._src.execution.traced_function import TracedFunction
from unisono._src.machines.topology import Topology


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
        self._labels: dict[tuple[Any, ...], tuple[str, Any]] = {}

    def find(self, leaves: Sequence[Any]) -> str | None:
        """Return the label of a call with these arguments, if it has one."""
        found = self._labels.get(_shapes_of(leaves))
        return None if found is None else found[0]

    def find_number(self, leaves: Sequence[Any]) -> Any:
        """Return a number that stands for the label, on the devices of the program."""
        return self._labels[_shapes_of(leaves)][1]

    def make_number(self, text: str) -> Any:
        """Return a number that stands for a text, on the devices of the program."""
        number = np.uint32(zlib.crc32(text.encode()))
        return number if self._mesh is None else self._mesh.spread(number)

    def add(self, leaves: Sequence[Any], found: TracedFunction, digest: str) -> str:
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


def _shapes_of(leaves: Sequence[Any]) -> tuple[Any, ...]:
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
        text += f", captured arrays {program_digest.digest_arrays(arrays)}"
    return text
