"""Whether a ported program computes what TensorFlow did, and if not, why."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from unisono._src.testing import causes, comparison, parity, pictures, recorded_runs
from unisono._src.testing.causes import Cause
from unisono._src.testing.comparison import Difference, Floor
from unisono._src.testing.recorded_runs import PortedRun, PortRunner
from unisono._src.testing.records import (
    BATCH,
    GRADIENT,
    METRIC,
    RESULT,
    STATE,
    VARIABLE,
    Key,
    Run,
)

# Two numbers are the same for a rule if they differ by less, relatively.
_SAME = 1e-3
# A difference that may come of 32 bits in place of 64 is smaller.
_SINGLE = 1e-3


@final
@dataclasses.dataclass(frozen=True)
class PortReport:
    """What the comparison with a recording has found; true if there is no difference.

    Attributes:
        replicas: the number of replicas of both programs.
        steps: the number of steps.
        compared: the number of values that were compared at each step.
        differences: the values that differ, the first one first.
        course: for each step, the largest relative difference and its floor.
        cause: the probable cause of the first difference; None if there is none.
        line: file and line of the code that made it, if it is known.
        notes: what else is worth knowing.
    """

    replicas: int
    steps: int
    compared: int
    differences: tuple[Difference, ...] = ()
    course: tuple[tuple[float, float], ...] = ()
    cause: Cause | None = None
    line: str | None = None
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.cause is None

    def __str__(self) -> str:
        many = f"{self.replicas} replica{'s' if self.replicas > 1 else ''}"
        title = f"TensorFlow and unisono, {many}, {self.steps} steps"
        title += f", {self.compared} values"
        lines = [f"{title}: {'the same' if self else 'DIFFERENT'}"]
        lines += parity.tell(self.differences, self.cause, self.line)
        lines += pictures.draw_lines(self.course)
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return pictures.as_html(str(self), self.course)


def compare_with_recording(runner: PortRunner) -> PortReport:
    """Runs a ported program from recorded values, and compares all its numbers."""
    recording = runner.recording
    ported = runner.run()
    turned = runner.run(is_turned=True)
    one = recorded_runs.as_run(recording, ported)
    steps = min(len(one.steps), len(turned.run.steps))
    one, many, other = (
        Run(r.before, r.steps[:steps]) for r in (one, ported.run, turned.run)
    )
    least = recording.floor if recording.floor and recording.floor < _SAME else 0.0
    floor = Floor(many, [other], [runner.orders()[:steps]], least=least)
    found = comparison.compare(one, many, recording.replicas, floor)
    batches, told = recorded_runs.compare_batches(recording, ported)
    found += [Difference(k, s, recording.replicas, d, 0.0) for k, s, d in batches]
    found.sort(key=Difference.order)
    missing = [
        v.name
        for i, v in enumerate(recording.variables)
        if (i not in ported.pairs or ported.pairs[i] in ported.unset)
        and recording.is_used(i)
    ]
    looked = _PortDiagnosis(runner, ported, one, found, floor)
    cause = causes.CAUSES[looked.find()] if found else None
    if cause is None and (ported.extra or looked.has_lost_weights()):
        cause = causes.CAUSES["initial-values"]
    return PortReport(
        replicas=recording.replicas,
        steps=steps,
        compared=len(one.steps[0].values),
        differences=tuple(found),
        course=comparison.course(one, many, floor),
        cause=cause,
        line=_find_line(ported, found[0]) if found else None,
        notes=tuple(_notes(runner, ported, one, missing, told, cause)),
    )


def _find_line(ported: PortedRun, first: Difference) -> str | None:
    kind = GRADIENT if first.kind == GRADIENT else ""
    lines = [ported.lines.get(Key(k, first.name)) for k in (kind, "")]
    # A step of `fit` hands its gradients to the optimizer in a line of ours.
    own = str(pathlib.Path(__file__).parent)
    return next((line for line in lines if line and own not in line), None)


def _notes(
    runner: PortRunner,
    ported: PortedRun,
    one: Run,
    missing: Sequence[str],
    told: str | None,
    cause: Cause | None,
) -> list[str]:
    """Returns lines about what was used, and what was not compared."""
    recording = runner.recording
    used = {
        "parts": f"the recorded parts of {recording.replicas} replicas",
        "global": "the recorded global batches",
        "own": "the program's own, not the recorded ones",
    }
    notes = [f"batches:  {used[ported.use]}" + (f"; {told}" if told else "")]
    if len(one.steps) < len(recording.steps):
        notes.append(f"steps:    {len(recording.steps)} are recorded")
    eager = recording.floor
    notes.append(
        "recorder: functions ran eagerly, "
        + ("which changes what is not known" if eager is None else f"floor {eager:.1e}")
    )
    if cause is not None and cause.code == "optimizer-settings":
        notes += _compare_settings(recording.optimizers, ported.optimizers)
    paired = [(recording.variables[n].name, ported.pairs[n]) for n in ported.by_order]
    notes += [f"paired by order: {old} = {new}" for old, new in paired if old != new]
    notes += [
        f"not matched: {name} of TensorFlow; --map {name}=..." for name in missing
    ]
    notes += [
        f"not matched: {name} of unisono; --map ...={name}" for name in ported.extra
    ]
    uncompared = {name for s in one.steps for name in s.uncompared}
    notes += [f"not compared: {name}, of other shapes" for name in sorted(uncompared)]
    return notes


def _compare_settings(
    ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]
) -> list[str]:
    """Returns the settings of optimizers that differ."""
    found = []
    for old, new in zip(ours, theirs, strict=False):
        for name in sorted(old.keys() & new.keys() - {"name"}):
            a, b = old[name], new[name]
            are_numbers = all(isinstance(n, float | int) for n in (a, b))
            is_near = are_numbers and bool(np.isclose(float(a), float(b), rtol=1e-5))
            if a != b and not is_near:
                found.append(f"setting:  {name} is {a!r} in TensorFlow, {b!r} here")
    return found


@final
class _PortDiagnosis:
    """Finds the cause of a difference, from its place and from further runs."""

    def __init__(
        self,
        runner: PortRunner,
        ported: PortedRun,
        one: Run,
        found: Sequence[Difference],
        floor: Floor,
    ) -> None:
        self._runner, self._ported = runner, ported
        self._one, self._many = one, ported.run
        self._found, self._floor = found, floor

    def find(self) -> str:
        """Returns the code of the cause."""
        self._first = self._found[0]
        self._step = self._first.step
        rules: list[Callable[[], str | None]] = [
            self._batch,
            self._missing,
            self._too_wide,
            self._ratio,
            self._dropout,
            self._swapped,
            self._statistics,
            self._wide,
            self._place,
        ]
        return next((code for code in (rule() for rule in rules) if code), "unknown")

    def has_lost_weights(self) -> bool:
        """Whether a trainable variable that the original uses has no partner."""
        recording, pairs = self._runner.recording, self._ported.pairs
        # Keras 2 counts its batches in variables that are called trainable.
        return any(
            v.kind == "variable"
            and v.first.dtype.kind == "f"
            and recording.is_used(i)
            and (i not in pairs or pairs[i] in self._ported.unset)
            for i, v in enumerate(recording.variables)
        )

    def _batch(self) -> str | None:
        return "data" if self._first.kind == BATCH else None

    def _missing(self) -> str | None:
        return "initial-values" if self.has_lost_weights() else None

    def _dropout(self) -> str | None:
        if self._floor.is_ordered:
            return "dropout"
        seeds = [
            v.first.shape == (2,)
            and "seed" in v.name
            and self._runner.recording.is_used(i)
            for i, v in enumerate(self._runner.recording.variables)
        ]
        if any(seeds):
            return "dropout"
        other = self._runner.run(seed=1).run
        steps = min(len(other.steps), len(self._many.steps))
        runs = [Run(r.before, r.steps[:steps]) for r in (self._many, other)]
        found = comparison.compare(runs[0], runs[1], 1, self._floor)
        return "dropout" if found else None

    def _keys(self, kind: str) -> list[Key]:
        ours, theirs = self._one.steps[self._step], self._many.steps[self._step]
        return [k for k in ours.values if k.kind == kind and k in theirs.values]

    def _ratio(self) -> str | None:
        """A constant factor of all gradients, or of the result alone."""
        kind = self._first.kind
        keys = self._keys(kind) if kind in (GRADIENT, RESULT) else []
        if kind == VARIABLE and not self._keys(GRADIENT):
            keys = self._keys(VARIABLE)
        if not keys:
            return None
        a, b = (
            np.concatenate([np.ravel(r.signal(self._step, k)) for k in keys])  # type: ignore[arg-type]
            for r in (self._one, self._many)
        )
        factor = comparison.ratio(b, a)
        scale = float(np.max(np.abs(b), initial=0.0))
        is_near = np.max(np.abs(b - factor * a), initial=0.0) <= _SAME * scale
        is_one = abs(factor - 1) < _SAME
        return "loss-reduction" if is_near and not is_one and factor else None

    def _swapped(self) -> str | None:
        """Tries the other order for variables that only their order has paired."""
        if not self._ported.by_order or self._step:
            return None
        swapped = self._runner.run(is_swapped=True)
        one = recorded_runs.as_run(self._runner.recording, swapped)
        steps = min(len(one.steps), len(self._many.steps))
        runs = [Run(r.before, r.steps[:steps]) for r in (one, swapped.run)]
        before = sum(d.step == 0 for d in self._found)
        found = comparison.compare(runs[0], runs[1], 1, self._floor)
        after = sum(d.step == 0 for d in found)
        return "initial-values" if after < before / 2 else None

    def _statistics(self) -> str | None:
        """Moving statistics that differ, or do not move."""
        keys = {d.key for d in self._found if d.step == self._step and d.kind == STATE}
        keys = {k for k in keys if "moving" in k.name or "mean" in k.name}
        if not keys or self._first.kind not in (GRADIENT, STATE):
            return None
        still = [
            np.array_equal(
                self._many.steps[self._step].values[k],
                (
                    self._many.steps[self._step - 1]
                    if self._step
                    else self._many.before
                ).values.get(k, np.array(np.nan)),
            )
            for k in keys
        ]
        return "inference-mode" if all(still) else "batch-statistics"

    def _place(self) -> str | None:
        """What the place of the first difference says by itself."""
        kind = self._first.kind
        if kind in ("slot", VARIABLE) and self._keys(GRADIENT):
            return "optimizer-settings"
        trained = (GRADIENT, "slot", VARIABLE)
        if kind == STATE and not any(d.kind in trained for d in self._found):
            return "metric"
        return {METRIC: "metric", RESULT: "loss-reduction"}.get(kind)

    def _too_wide(self) -> str | None:
        """Numbers of a batch that 32 bits cannot tell apart."""
        batch = self._runner.recording.steps[self._step].whole_batch()
        return "64-bit" if any(map(_loses_digits, batch)) else None

    def _wide(self) -> str | None:
        wide = recorded_runs.find_types(self._runner.recording)
        return "64-bit" if wide and self._first.size < _SINGLE else None


def _loses_digits(array: np.ndarray) -> bool:
    """Whether 32 bits change numbers by much, beside how far they are apart."""
    if array.dtype != np.float64 or not array.size:
        return False
    lost = np.max(np.abs(array - array.astype(np.float32)))
    return bool(lost > _SINGLE * np.std(array))
