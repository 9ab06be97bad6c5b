"""What `recorder` has written of a TensorFlow program, read with care.

The files come from elsewhere: what they say of themselves is checked before it is used.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import zipfile
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from unisono._src.testing import recorder

# More is no recording of some steps, but a file that fills the memory.
_MOST_BYTES = 64 * 2**30
_MEMBER = re.compile(
    r"(first/\d+|step\d+/(after/\d+|(batch|result|gradient)/\d+/\d+))\.npy"
)
_KINDS = ("variable", "slot", "state")


@final
class RecordingError(Exception):
    """A recording is damaged, or is none."""


@final
@dataclasses.dataclass(frozen=True)
class RecordedVariable:
    """A variable of the recorded program.

    Attributes:
        name: its path in Keras, or its name.
        kind: ``"variable"`` if it is trainable, ``"slot"`` or ``"state"``.
        type: the name of its element type.
        first: its value before the first step.
    """

    name: str
    kind: str
    type: str
    first: np.ndarray


@final
@dataclasses.dataclass(frozen=True)
class RecordedStep:
    """A step of the recorded program.

    Attributes:
        batch: the arrays that it got, each as the parts of the replicas.
        result: what it returned, likewise.
        gradients: for the numbers of variables, the gradients of the replicas.
        after: for the numbers of variables, their values after the step.
    """

    batch: list[list[np.ndarray]]
    result: list[list[np.ndarray]]
    gradients: dict[int, list[np.ndarray]]
    after: dict[int, np.ndarray]

    def whole_batch(self) -> list[np.ndarray]:
        """Returns the global batch: the parts of the replicas, one after the other."""
        return [np.concatenate(parts) for parts in self.batch]

    def sizes(self) -> list[list[int]]:
        """Returns how many rows of each array each replica got."""
        return [[len(part) for part in parts] for parts in self.batch]


@final
@dataclasses.dataclass(frozen=True)
class Recording:
    """The first steps of a TensorFlow program.

    Attributes:
        replicas: its number of replicas.
        has_strategy: whether it has a strategy of its own.
        step: the name of the function that is its step, if it was given.
        floor: what running eagerly has changed, relatively; None if it is not known.
        optimizers: the settings of its optimizers.
        variables: its variables, in the order of their creation.
        steps: its steps.
    """

    replicas: int
    has_strategy: bool
    step: str | None
    floor: float | None
    optimizers: list[dict[str, Any]]
    variables: list[RecordedVariable]
    steps: list[RecordedStep]

    def is_used(self, number: int) -> bool:
        """Whether the steps change a variable or compute its gradient."""
        first = self.variables[number].first
        return any(
            number in s.gradients
            or not np.array_equal(s.after.get(number, first), first)
            for s in self.steps
        )


def read(folder: pathlib.Path) -> Recording:
    """Returns the recording of a folder.

    Raises:
        RecordingError: there is none, or its bytes are not what they say.
    """
    told = _read_json(folder / "recording.json")
    path = folder / "recording.npz"
    try:
        _check_archive(path)
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise RecordingError(f"{path} cannot be read: {error}") from None
    for name, array in arrays.items():
        if array.dtype.kind not in "fiubc":
            raise RecordingError(f"{path}: {name} has the type {array.dtype}.")
    variables = [
        _read_variable(path, i, v, arrays) for i, v in enumerate(told["variables"])
    ]
    steps = [_read_step(path, i, variables, arrays) for i in range(told["steps"])]
    return Recording(
        told["replicas"],
        told["strategy"],
        told["step"],
        told["floor"],
        told["optimizers"],
        variables,
        steps,
    )


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    """Returns what a file tells, if it has all that a recording tells."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordingError(
            f"{path} cannot be read: {error}. Make a recording: unisono parity "
            "--record > record.py, and python record.py OUT SCRIPT where TensorFlow is."
        ) from None
    if not isinstance(told, dict) or told.get("version") != recorder.VERSION:
        raise RecordingError(
            f"{path} is no recording of version {recorder.VERSION}. Record again with "
            "the file that `unisono parity --record` prints."
        )
    wanted: dict[str, tuple[type, ...]] = {
        "replicas": (int,),
        "strategy": (bool,),
        "steps": (int,),
        "step": (str, type(None)),
        "floor": (float, int, type(None)),
        "optimizers": (list,),
        "variables": (list,),
    }
    for name, kinds in wanted.items():
        if not isinstance(told.get(name), kinds):
            raise RecordingError(f"{path}: {name!r} is {told.get(name)!r}.")
    if not (0 < told["replicas"] <= 4096 and 0 < told["steps"] <= 10**6):
        raise RecordingError(f"{path}: the number of replicas or steps is impossible.")
    return told


def _check_archive(path: pathlib.Path) -> None:
    """Raises `ValueError` if a member is not as large as its own header says."""
    total = 0
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            total += member.file_size
            if not _MEMBER.fullmatch(member.filename) or total > _MOST_BYTES:
                raise ValueError(f"{member.filename!r} is no part of a recording")
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read_header = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }.get(version)
                if read_header is None:
                    raise ValueError(f"{member.filename!r} has the format {version}")
                shape, _, dtype = read_header(file)
                size = int(np.prod(shape, dtype=object)) * dtype.itemsize
                if dtype.hasobject or file.tell() + size != member.file_size:
                    raise ValueError(
                        f"{member.filename!r} has {member.file_size} bytes, and its "
                        f"header says {dtype} of the shape {shape}"
                    )


def _read_variable(
    path: pathlib.Path, number: int, told: Any, arrays: dict[str, np.ndarray]
) -> RecordedVariable:
    is_told = isinstance(told, dict) and told.get("kind") in _KINDS
    texts = [told.get("name"), told.get("type")] if is_told else [None]
    first = arrays.get(f"first/{number}")
    if first is None or not all(isinstance(x, str) for x in texts):
        raise RecordingError(f"{path} says nothing of variable {number}: {told!r}.")
    if not np.isfinite(first).all():
        raise RecordingError(
            f"{path}: the variable {told['name']!r} has numbers before the first step "
            "that are not finite."
        )
    return RecordedVariable(told["name"], told["kind"], told["type"], first)


def _read_step(
    path: pathlib.Path,
    step: int,
    variables: Sequence[RecordedVariable],
    arrays: dict[str, np.ndarray],
) -> RecordedStep:
    gradients: dict[int, list[np.ndarray]] = {}
    after: dict[int, np.ndarray] = {}
    for number, variable in enumerate(variables):
        shown = _parts(arrays, f"step{step}/gradient/{number}")
        own = arrays.get(f"step{step}/after/{number}")
        for array in (*shown, *([] if own is None else [own])):
            if array.shape != variable.first.shape:
                raise RecordingError(
                    f"{path}: the values of {variable.name!r} have the shapes "
                    f"{variable.first.shape} and {array.shape}."
                )
        if shown:
            gradients[number] = shown
        if own is not None:
            after[number] = own
    batch = _lists(arrays, f"step{step}/batch")
    if any(part.ndim == 0 for parts in batch for part in parts):
        raise RecordingError(f"{path}: the batch of step {step} has no rows.")
    return RecordedStep(batch, _lists(arrays, f"step{step}/result"), gradients, after)


def _lists(arrays: dict[str, np.ndarray], at: str) -> list[list[np.ndarray]]:
    found: list[list[np.ndarray]] = []
    while parts := _parts(arrays, f"{at}/{len(found)}"):
        found.append(parts)
    return found


def _parts(arrays: dict[str, np.ndarray], at: str) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    while f"{at}/{len(found)}" in arrays:
        found.append(arrays[f"{at}/{len(found)}"])
    return found
