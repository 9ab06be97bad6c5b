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

# A difference counts if it is so many times what another order of the rows changes.
_MARGIN = 10.0
# Rounding errors of one operation that a right program may add up; in units of the
# element type. The second is for arrays that are small beside the others of a step.
_UNITS, _UNITS_OF_KIND = 40.0, 8.0
# A step that another order of the rows changes by more depends on the order. Then the
# order shows no rounding, and so many units of the element type stand for it.
_UNITS_IF_HALF = 4.0
_ORDER_MATTERS, _UNITS_IF_ORDERED = 2e-2, 1000.0


@final
@dataclasses.dataclass(frozen=True)
class Difference:
    """A value that differs between one device and several.

    Attributes:
        key: the value.
        step: the step, from zero.
        replicas: the number of replicas.
        size: the largest difference, relative to the largest number on one device.
        floor: what another order of the rows changes on one device, likewise.
    """

    key: Key
    step: int
    replicas: int
    size: float
    floor: float

    @property
    def kind(self) -> str:
        """What the value is in a step: a gradient, a metric, and so on."""
        return self.key.kind

    @property
    def name(self) -> str:
        """The name of the value; empty for the one result of a step."""
        return self.key.name

    def order(self) -> tuple[int, int, int]:
        """By which differences are sorted: what comes first in a step comes first."""
        return self.step, KINDS.index(self.key.kind), self.replicas

    def __str__(self) -> str:
        return (
            f"step {self.step}, {self.replicas} replicas: {self.key} differs by "
            f"{self.size:.1e}, floor {self.floor:.1e}"
        )


@final
class Floor:
    """How much another order of the rows changes each value on one device.

    Attributes:
        is_ordered: whether the step depends on the order of the rows.

    Args:
        one: the run on one device.
        others: runs with other orders.
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
        self._one = one
        self._half, self._least = half, least
        self._largest: dict[tuple[int, Key], float] = {}
        for run, of_steps in zip(others, orders, strict=True):
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
        self.is_ordered = self._find_ordered()

    def _find_ordered(self) -> bool:
        """Returns whether the first step, on equal variables, depends on the order."""
        values = self._one.steps[0].values
        for kind in (GRADIENT, RESULT, VARIABLE):
            keys = [key for key in values if key.kind == kind]
            scale = max((self.scale(0, key) for key in keys), default=0.0)
            if any(self.absolute(0, k) > _ORDER_MATTERS * scale for k in keys):
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
        signal = self._one.signal(step, key)
        largest = _largest(signal)
        if key.kind == VARIABLE and largest == 0.0:
            largest = _largest(self._one.steps[step].values.get(key))
        return largest or 1.0

    def tolerance(self, step: int, key: Key) -> float:
        """Returns the largest difference that may be rounding."""
        record = self._one.steps[step]
        epsilon = record.epsilon.get(key, 0.0)
        own = _largest(record.values.get(key))
        kind = max(_largest(v) for k, v in record.values.items() if k.kind == key.kind)
        # A sum of float32 is exact for whole numbers: no rounding, no tolerance.
        if self.is_ordered:
            return epsilon * _UNITS_IF_ORDERED * max(own, kind)
        least = _MARGIN * self._least * own
        rounding = epsilon * max(_UNITS * own, _UNITS_OF_KIND * kind)
        # Each replica rounds its products, and one device rounds their sum.
        rounding = max(rounding, _UNITS_IF_HALF * self._half * kind)
        return max(_MARGIN * self.absolute(step, key), rounding, least)


def _largest(value: np.ndarray | None) -> float:
    if value is None or not value.size:
        return 0.0
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
        equal = (a == b) | (np.isnan(a) & np.isnan(b))
        found = np.where(equal, 0.0, np.abs(a - b))
    return float("inf") if np.isnan(found).any() else float(found.max())


def compare(one: Run, many: Run, replicas: int, floor: Floor) -> list[Difference]:
    """Returns the values that differ by more than rounding, in order."""
    found = []
    for step, (a, b) in enumerate(zip(one.steps, many.steps, strict=True)):
        skipped = _counted_alike(a.values, b.values)
        for key, base in a.values.items():
            if key not in b.values or key in skipped:
                continue
            size = measure(b.values[key], base)
            if size > floor.tolerance(step, key):
                scale = floor.scale(step, key)
                relative = floor.relative(step, key)
                found.append(Difference(key, step, replicas, size / scale, relative))
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


class OneDeviceRunner(Protocol):
    """Runs a step on one device."""

    def run(self, replicas: int, given: Sequence[rows.Batch]) -> Run:
        """Runs the step once for each batch."""


def make_floor(
    one: Run,
    runner: OneDeviceRunner,
    given: Sequence[rows.Batch],
    count: int = 3,
    half: float = 0.0,
) -> Floor:
    """Returns the floor, from runs on one device with other orders of the rows.

    Args:
        one: the run with the rows as they are.
        runner: runs the step.
        given: the global batches.
        count: how many other orders.
        half: the rounding of products in 16 bits, if the step computes some.
    """
    by_step = [rows.orders(rows.count_rows(b))[:count] for b in given]
    orders = list(zip(*by_step, strict=True))
    changed = [
        [rows.pick(b, o) for b, o in zip(given, order, strict=True)] for order in orders
    ]
    return Floor(one, [runner.run(1, c) for c in changed], orders, half)
