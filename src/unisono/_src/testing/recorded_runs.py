"""Runs a ported program as a recording says, and makes the two comparable."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from unisono._src.testing import records, script_runs, stored_runs
from unisono._src.testing.recordings import Recording
from unisono._src.testing.records import GRADIENT, RESULT, Key, Run, StepRecord


@final
@dataclasses.dataclass(frozen=True)
class PortedRun:
    """A run of a ported program.

    Attributes:
        run: its values.
        batches: the rows that its own steps got before they were exchanged.
        lines: the line that made each value.
        pairs: for numbers of recorded variables, the names of its own.
        by_order: those of them that only their order has paired.
        unset: the variables of these that could not hold the recorded value.
        extra: its trainable variables that the original does not have.
        optimizers: the settings of its optimizers.
        use: whether its steps got the recorded ``"parts"`` of the replicas, the
            ``"global"`` batch, or their ``"own"``.
    """

    run: Run
    batches: list[list[np.ndarray]]
    lines: dict[Key, str]
    pairs: dict[int, str]
    by_order: list[int]
    unset: list[str]
    extra: list[str]
    optimizers: list[dict[str, Any]]
    use: str


@final
class PortRunner:
    """Runs the first steps of a ported program, each time from the recorded values.

    Args:
        script: the program.
        args: its arguments.
        recorded: the folder of the recording.
        recording: what is in it.
        given: names of variables of the original, and of the ported program.
        step: the function that is its step; None for the recording's.
        folder: an empty folder for files.
    """

    def __init__(
        self,
        script: pathlib.Path,
        args: Sequence[str],
        recorded: pathlib.Path,
        recording: Recording,
        given: Mapping[str, str],
        step: str | None,
        folder: pathlib.Path,
    ) -> None:
        self.recording = recording
        self._folder, self._count = folder, 0
        self._request = {
            "script": str(script),
            "args": list(args),
            "replicas": recording.replicas,
            "steps": len(recording.steps),
            "write": False,
            "recorded": str(recorded),
            "map": dict(given),
            "step": step,
        }

    def run(
        self, is_turned: bool = False, is_swapped: bool = False, seed: int = 0
    ) -> PortedRun:
        """Runs the program.

        Args:
            is_turned: whether the rows of each part come in the other order, and
                weights begin with other last digits.
            is_swapped: whether what order has paired is paired in the other order.
            seed: what random numbers begin with.

        Raises:
            CannotCompareError: it failed, or made no step.
        """
        self._count += 1
        folder = self._folder / f"run_{self._count}"
        folder.mkdir()
        asked = {"turned": is_turned, "swapped": is_swapped, "seed": seed}
        script_runs.start_process(folder, self._request | asked)
        stored = stored_runs.read(folder)
        if not stored.run.steps:
            raise script_runs.CannotCompareError(
                f"{self._request['script']} ended without a step: a call of a compiled "
                "function, of Strategy.run or of Keras' fit that changes trainable "
                "variables. Name the function that is the step: --step train_step."
            )
        told = json.loads((folder / "port.json").read_text())
        told["pairs"] = {int(number): name for number, name in told["pairs"]}
        return PortedRun(stored.run, stored.batches, stored.lines, **told)

    def orders(self) -> list[np.ndarray]:
        """Returns the order of the rows of each step in a run that is turned."""
        found = []
        for step in self.recording.steps:
            sizes = step.sizes()[0] if step.batch else []
            ends = np.cumsum(sizes, dtype=int)
            parts = [
                np.arange(e - n, e)[::-1] for e, n in zip(ends, sizes, strict=True)
            ]
            found.append(np.concatenate(parts) if parts else np.arange(0))
        return found


def as_run(recording: Recording, ported: PortedRun) -> Run:
    """Returns what is recorded under the names of the ported program."""
    first = ported.run.steps[0].values
    keys = {k.name: k for k in first if k.kind not in (GRADIENT, RESULT)}
    made = Run(StepRecord())
    for number, name in ported.pairs.items():
        if name in keys:
            made.before.add(keys[name], recording.variables[number].first)
    for at, step in enumerate(recording.steps[: len(ported.run.steps)]):
        own = ported.run.steps[at]
        record = StepRecord()
        for number, name in ported.pairs.items():
            if name in keys and number in step.after:
                record.add(keys[name], step.after[number])
            if number in step.gradients:
                key, copies = Key(GRADIENT, name), step.gradients[number]
                record.add(key, np.sum(copies, axis=0, dtype=copies[0].dtype))
                record.copies[key] = np.stack([np.asarray(c, float) for c in copies])
        _add_results(record, own, step.result)
        made.steps.append(record)
    return made


def _add_results(
    made: StepRecord, own: StepRecord, recorded: Sequence[Sequence[np.ndarray]]
) -> None:
    """Adds the recorded results that have the shape of those of the program."""
    keys = [key for key in own.values if key.kind == RESULT]
    if len(keys) != len(recorded):
        made.uncompared |= {k.name or "result" for k in keys}
        return
    for key, parts in zip(keys, recorded, strict=True):
        is_row = len(parts) > 1 and not parts[0].ndim
        whole = np.stack(parts) if is_row else parts[0]
        if len(parts) > 1 and not is_row:
            whole = np.concatenate(parts)
        if whole.shape == own.values[key].shape:
            made.add(key, whole)
        else:
            made.uncompared.add(key.name or "result")


def find_types(recording: Recording) -> set[str]:
    """Returns the wide types that the recorded program computes with."""
    arrays = [a for s in recording.steps for parts in s.batch for a in parts]
    types = {str(a.dtype) for a in arrays}
    types |= {v.type for v in recording.variables if v.kind == "variable"}
    return types & {"float64", "complex128"}


def compare_batches(
    recording: Recording, ported: PortedRun
) -> tuple[list[tuple[Key, int, float]], str | None]:
    """Compares the batches that the program itself has read with the recorded ones.

    Returns:
        The arrays that are something else than recorded, with the step and the size
        of the difference; and what is worth telling, but may be right.
    """
    found: list[tuple[Key, int, float]] = []
    told = None
    for at, (own, step) in enumerate(
        zip(ported.batches, recording.steps, strict=False)
    ):
        whole = step.whole_batch()
        if len(own) != len(whole):
            return found, "its steps get other arrays than recorded"
        for j, (a, b) in enumerate(zip(own, whole, strict=True)):
            key = Key(records.BATCH, f"{j}")
            if a.shape[1:] != b.shape[1:] or (a.dtype.kind in "iub") != (
                b.dtype.kind in "iub"
            ):
                found.append((key, at, float("inf")))
                continue
            size = _compare_ranges(a, b)
            if size:
                found.append((key, at, size))
            elif a.shape != b.shape or not np.allclose(a, b, rtol=1e-5, atol=1e-6):
                told = told or f"the program itself reads other rows from step {at} on"
    return found, told


def _compare_ranges(a: np.ndarray, b: np.ndarray) -> float:
    """Returns how much the range of two arrays differs; 0 if they may be alike."""
    if a.dtype.kind != "f" or not a.size or not b.size:
        return 0.0
    one, two = (np.asarray(x, float) for x in (a, b))
    spread = max(float(np.std(two)), 1e-12)
    size = max(
        abs(float(np.std(one)) / spread - 1), abs(one.mean() - two.mean()) / spread
    )
    return size if size > 1.0 and one.size > 8 else 0.0
