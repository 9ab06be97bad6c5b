"""Differences between two runs, and how much of them is rounding."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol, final

import numpy as np

from unisono._src.testing import batches as rows
from unisono._src.testing.records import (
    GRADIENT,
    KINDS,
    METRIC,
    RESULT,
    VARIABLE,
    Key,
    Run,
)

# A difference counts if it is so many times what rounding changes on one device.
_MARGIN = 10.0
# Rounding errors of one operation that a right program may add up; in units of the
# element type. The second is for arrays that are small beside the others of a step and
# may be rounding errors themselves: what changes them is none or more than `_KNOWN`.
_UNITS, _UNITS_OF_KIND, _KNOWN = 40.0, 8.0, 1e-3
# A step that another order of the rows changes by more depends on the order. Then the
# order shows no rounding, and so many units of the element type stand for it.
_UNITS_IF_HALF = 4.0
_ORDER_MATTERS, _UNITS_IF_ORDERED = 2e-2, 1000.0
# A variable that rounding may change by so much of a step is looked at more closely.
_WIDE = 2e-2
# Two differences are the same one if so much of the first is not in the second.
_ALIKE = 0.5


@final
@dataclasses.dataclass(frozen=True)
class Difference:
    """A value that differs between one device and several.

    Attributes:
        key: identifies the value.
        step: the step, counted from zero.
        replicas: the number of replicas.
        size: the largest difference, relative to the largest number on one device.
        floor: the relative difference that rounding causes on one device.
    """

    key: Key
    step: int
    replicas: int
    size: float
    floor: float

    @property
    def kind(self) -> str:
        """The kind of the value: a gradient, a metric, and so on."""
        return self.key.kind

    @property
    def name(self) -> str:
        """The name of the value; empty for the only result of a step."""
        return self.key.name

    def order(self) -> tuple[int, int, int]:
        """Returns the sort key, by which differences are in the order of a step."""
        return self.step, KINDS.index(self.key.kind), self.replicas

    def __str__(self) -> str:
        return (
            f"step {self.step}, {self.replicas} replicas: {self.key} differs by "
            f"{self.size:.1e}, floor {self.floor:.1e}"
        )


@final
class Floor:
    """How much rounding changes each value on one device.

    Attributes:
        is_ordered: whether the step depends on the order of the rows.
        others: the runs that it is measured by.

    Args:
        one: the run on one device.
        others: runs with other orders of the rows and other last digits of the weights.
        orders: for each of these, the order of the rows at each step.
        half: the rounding of products in 16 bits, if the step computes some.
        least: what is rounding in any case, relative to the largest number.
    """

    def __init__(
        self,
        one: Run,
        others: Sequence[Run],
        orders: Sequence[Sequence[np.ndarray]],
        half: float = 0.0,
        least: float = 0.0,
    ) -> None:
        self._one, self.others = one, others
        self._half, self._least = half, least
        self._largest: dict[tuple[int, Key], float] = {}
        # Of each value's numbers, and of what they are compared with.
        self._numbers: dict[tuple[int, Key], float] = {}
        self._scales: dict[tuple[int, Key], float] = {}
        reordered: list[dict[Key, float]] = []
        for run, of_steps in zip(others, orders, strict=True):
            if not np.array_equal(of_steps[0], np.sort(of_steps[0])):
                reordered.append({})
            for step, order in enumerate(of_steps):
                for key, value in run.steps[step].values.items():
                    base = one.steps[step].values.get(key)
                    if base is None:
                        continue
                    if key.kind == RESULT and value.shape[:1] == order.shape:
                        value = value[np.argsort(order)]
                    place = step, key
                    found = measure(value, base)
                    self._largest[place] = max(self._largest.get(place, 0.0), found)
                    if step == 0 and reordered:
                        reordered[-1][key] = found
        # Rounding that turns a relu on or off does so in one of them only.
        self.is_ordered = bool(reordered) and all(map(self._is_large, reordered))

    def _is_large(self, changes: dict[Key, float]) -> bool:
        """Whether changes of the first step are too large for rounding."""
        for kind in (GRADIENT, RESULT, VARIABLE):
            keys = [key for key in changes if key.kind == kind]
            scale = max((self.scale(0, key) for key in keys), default=0.0)
            if any(changes[key] > _ORDER_MATTERS * scale for key in keys):
                return True
            if keys and kind != GRADIENT:
                return False
        return False

    def absolute(self, step: int, key: Key) -> float:
        """Returns the largest change of a value up to a step."""
        found = (self._largest.get((s, key), 0.0) for s in range(step + 1))
        return max(found, default=0.0)

    def relative(self, step: int, key: Key) -> float:
        """Returns that change, relative to the largest number."""
        return self.absolute(step, key) / self.scale(step, key)

    def scale(self, step: int, key: Key) -> float:
        """Returns the largest number of a value, or of a variable's change."""
        if (step, key) not in self._scales:
            largest = 0.0
            if key.kind == VARIABLE:
                largest = _largest(self._one.signal(step, key))
            largest = largest or self._largest_number(step, key)
            self._scales[step, key] = largest or 1.0
        return self._scales[step, key]

    def _largest_number(self, step: int, key: Key) -> float:
        if (step, key) not in self._numbers:
            found = _largest(self._one.steps[step].values.get(key))
            self._numbers[step, key] = found
        return self._numbers[step, key]

    def is_wide(self, step: int, key: Key) -> bool:
        """Whether a variable may differ by a good part of its change.

        An optimizer makes much of the few gradients that are nearly zero. The other
        numbers of the variable tell more.
        """
        if key.kind != VARIABLE or self.is_ordered or self._half:
            return False
        return self.tolerance(step, key) > _WIDE * self.scale(step, key)

    def typical(self, step: int, key: Key) -> float:
        """Returns how much rounding changes half of a value's numbers, or less."""
        one = self._one.steps[step].values[key]
        others = (run.steps[step].values.get(key) for run in self.others)
        return max(_typical(x, one) for x in others if x is not None)

    def least_units(self, step: int, key: Key) -> float:
        """Returns the rounding errors of one operation that may add up."""
        epsilon = self._one.steps[step].epsilon.get(key, 0.0)
        return epsilon * _UNITS * self._largest_number(step, key)

    def tolerance(self, step: int, key: Key) -> float:
        """Returns the largest difference that may be rounding."""
        record = self._one.steps[step]
        epsilon = record.epsilon.get(key, 0.0)
        own = self._largest_number(step, key)
        alike = (k for k in record.values if k.kind == key.kind)
        kind = max((self._largest_number(step, k) for k in alike), default=0.0)
        # A sum of float32 is exact for whole numbers: no rounding, no tolerance.
        if self.is_ordered:
            return epsilon * _UNITS_IF_ORDERED * max(own, kind)
        least = _MARGIN * self._least * own
        rounding = self.least_units(step, key)
        measured = self.absolute(step, key)
        if not 0.0 < measured < _KNOWN * own:
            rounding = max(rounding, epsilon * _UNITS_OF_KIND * kind)
        # Each replica rounds its products, and one device rounds their sum.
        rounding = max(rounding, _UNITS_IF_HALF * self._half * kind)
        return max(_MARGIN * measured, rounding, least)


def _largest(value: np.ndarray | None) -> float:
    if value is None or not value.size:
        return 0.0
    largest = float(np.max(np.abs(value)))
    if np.isfinite(largest):
        return largest
    finite = value[np.isfinite(value)]
    return float(np.max(np.abs(finite))) if finite.size else 0.0


def measure(a: np.ndarray, b: np.ndarray) -> float:
    """Returns the largest difference of two arrays; infinite if their shapes differ.

    >>> measure(np.array([1.0, np.nan]), np.array([1.5, np.nan]))
    0.5
    """
    if a.shape != b.shape:
        return float("inf")
    if not a.size:
        return 0.0
    with np.errstate(invalid="ignore"):
        largest = float(np.max(np.abs(a - b)))
        if np.isfinite(largest):
            return largest
        equal = (a == b) | (np.isnan(a) & np.isnan(b))
        found = np.where(equal, 0.0, np.abs(a - b))
    return float("inf") if np.isnan(found).any() else float(found.max())


def _typical(a: np.ndarray, b: np.ndarray) -> float:
    """Returns what half of the differences of two arrays are not above."""
    if a.shape != b.shape or not a.size:
        return 0.0
    with np.errstate(invalid="ignore"):
        found = np.abs(a - b)
    return float(np.median(found)) if np.isfinite(found).all() else 0.0


def compare(one: Run, many: Run, replicas: int, floor: Floor) -> list[Difference]:
    """Returns the values that differ by more than rounding, in order."""
    found = []
    for step, (a, b) in enumerate(zip(one.steps, many.steps, strict=True)):
        skipped = _counted_alike(a.values, b.values)
        for key, base in a.values.items():
            if key not in b.values or key in skipped:
                continue
            value, scale = b.values[key], floor.scale(step, key)
            size, of_floor = measure(value, base), floor.absolute(step, key)
            if size <= floor.tolerance(step, key):
                if not floor.is_wide(step, key):
                    continue
                size, of_floor = _typical(value, base), floor.typical(step, key)
                if size <= max(_MARGIN * of_floor, floor.least_units(step, key)):
                    continue
            found.append(
                Difference(key, step, replicas, size / scale, of_floor / scale)
            )
    return sorted(found, key=Difference.order)


def course(one: Run, many: Run, floor: Floor) -> tuple[tuple[float, float], ...]:
    """Returns for each step the largest relative difference, and the floor of it."""
    found = []
    for step, (a, b) in enumerate(zip(one.steps, many.steps, strict=True)):
        sizes = [
            (
                measure(b.values[key], base) / floor.scale(step, key),
                max(floor.relative(step, key), a.epsilon.get(key, 0.0)),
            )
            for key, base in a.values.items()
            if key in b.values
        ]
        finite = [x for x in sizes if np.isfinite(x[0])]
        found.append(max(finite, default=(0.0, 0.0)))
    return tuple(found)


def _counted_alike(one: dict[Key, np.ndarray], many: dict[Key, np.ndarray]) -> set[Key]:
    """Returns the sums of metrics whose totals and counts differ by one factor.

    A mean that every replica has updated once is the same mean as on one device.
    """
    groups: dict[str, list[Key]] = {}
    for key in one:
        if key.kind == METRIC and key in many:
            groups.setdefault(key.name.rpartition("/")[0], []).append(key)
    alike = set()
    for keys in groups.values():
        ratios = [ratio(many[k], one[k]) for k in keys]
        same = all(abs(r - ratios[0]) <= 1e-5 * abs(ratios[0]) for r in ratios)
        if len(keys) > 1 and same and ratios[0]:
            alike |= set(keys)
    return alike


def ratio(a: np.ndarray, b: np.ndarray) -> float:
    """Returns the factor by which `a` is nearest to `b`; NaN if there is none."""
    square = float(np.vdot(b, b).real)
    if not square or a.shape != b.shape or not np.isfinite(a).all():
        return float("nan")
    return float(np.vdot(b, a).real) / square


class StepRunner(Protocol):
    """Runs a step on a number of replicas, and knows its variables."""

    def run(
        self,
        replicas: int,
        given: Sequence[rows.Batch],
        fresh: bool = False,
        digits: int = 0,
    ) -> Run:
        """Runs the step once for each batch.

        Args:
            replicas: the number of replicas.
            given: global batches.
            fresh: whether the step is traced anew.
            digits: which other last digits the weights begin with; zero for none.
        """

    def is_first_only(self, name: str) -> bool:
        """Whether a variable keeps the value of the first replica."""

    def find_line(self, difference: Difference) -> str | None:
        """Returns file and line of the code that made a value, if it is known."""

    def find_half_precision(self) -> float:
        """Returns the rounding of products in 16 bits, if the step computes some."""


def make_floor(
    one: Run,
    runner: StepRunner,
    given: Sequence[rows.Batch],
    count: int,
) -> Floor:
    """Returns the floor, from runs on one device that round differently.

    Each begins with other last digits of the weights, and all but the first have
    another order of the rows.

    Args:
        one: the run with weights and rows as they are.
        runner: runs the step.
        given: the global batches.
        count: how many runs.
    """
    by_step = [rows.orders(rows.count_rows(b))[:count] for b in given]
    orders = list(zip(*by_step, strict=True))
    changed = [
        [rows.pick(b, o) for b, o in zip(given, order, strict=True)]
        for order in orders[1:]
    ]
    others = [
        runner.run(1, batches, digits=i + 1)
        for i, batches in enumerate([given, *changed])
    ]
    return Floor(one, others, orders, runner.find_half_precision())


def keep_lasting(
    found: Sequence[Difference],
    pair: Sequence[Run],
    again: Sequence[Run],
    floor: Floor,
) -> list[Difference]:
    """Returns the differences that other last digits of the weights do not remove.

    Rounding can turn a relu on or off, or the sign of an update. Then much differs,
    and with other last digits something else, or nothing. What is wrong in a program
    stays, and stays the same.

    Args:
        found: the differences of a pair of runs, in order.
        pair: the run on one device, and the one on several.
        again: two such runs from weights with other last digits.
        floor: the effect of rounding.
    """
    one, many = again
    repeated = compare(one, many, found[0].replicas, floor)
    # What a step makes of Python's own state may differ anew in each run.
    first = found[0].step
    is_first = bool(repeated) and repeated[0].step == first
    kept = []
    for difference in found:
        step, key = difference.step, difference.key
        a, b = (_subtract(runs[0], runs[1], step, key) for runs in (pair, again))
        if a is None or b is None:
            kept.append(difference)
            continue
        is_alike = np.max(np.abs(a - b)) <= _ALIKE * np.max(np.abs(a))
        is_large = np.max(np.abs(b)) > _ALIKE * np.max(np.abs(a))
        if is_alike or (is_first and step == first and is_large):
            kept.append(difference)
    return kept


def _subtract(one: Run, many: Run, step: int, key: Key) -> np.ndarray | None:
    """Returns the difference of a value; None if it is not finite."""
    a, b = (run.steps[step].values.get(key) for run in (one, many))
    if a is None or b is None or a.shape != b.shape:
        return None
    with np.errstate(invalid="ignore"):
        found = b - a
    return found if np.isfinite(found).all() else None
