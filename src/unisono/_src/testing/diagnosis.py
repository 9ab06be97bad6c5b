"""Finds the cause of a difference, from its ratio and place and from further runs.

A further run changes one thing: it repeats, takes one part alone, makes all parts
equal, or changes one row. Each rule below says what it would see if it were the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import jax.numpy as jnp
import numpy as np

from unisono._src.testing import batches as rows, comparison, records
from unisono._src.testing.comparison import Difference, Floor, StepRunner
from unisono._src.testing.records import (
    GRADIENT,
    METRIC,
    RESULT,
    VARIABLE,
    Key,
    Run,
)

# Two numbers are the same for a rule if they differ by less, relatively.
_SAME = 1e-3
# How many rows are changed one by one to see which count.
_MOST_ROWS = 8
# A difference that may come of numbers of 16 bits is smaller.
_HALF = 5e-2


@final
class Diagnosis:
    """The rules, and what they look at.

    Args:
        runner: makes further runs.
        given: the global batches.
        runs: the runs so far, by number of replicas.
        found: the differences, the first one first.
        floor: the effect of rounding.
    """

    def __init__(
        self,
        runner: StepRunner,
        given: Sequence[rows.Batch],
        runs: dict[int, Run],
        found: Sequence[Difference],
        floor: Floor,
    ) -> None:
        self._runner = runner
        self._given = list(given)
        self._runs = runs
        self._found = found
        self._floor = floor
        self._repeated: dict[tuple[int, int], Run] = {}
        self.first = found[0]
        self._step = self.first.step
        self._batch = self._given[self._step]
        self._rows = rows.count_rows(self._batch)
        own = [d for d in found if d.step == self._step and d.kind == self.first.kind]
        sizes = sorted({d.replicas for d in own})
        even = [n for n in sizes if self._rows % n == 0]
        # Parts of equal size leave fewer causes, and small numbers fewer runs.
        self._replicas = (even or sizes)[0]
        self._is_uneven = not even
        self._even = even
        differing = {d.key for d in own if d.replicas == self._replicas}
        # All gradients of a step belong together; other values stand for themselves.
        self._keys = [
            key
            for key in self._one.steps[self._step].values
            if key in differing or key.kind == self.first.kind == GRADIENT
        ]

    @property
    def _one(self) -> Run:
        return self._runs[1]

    @property
    def _many(self) -> Run:
        return self._runs[self._replicas]

    def find(self) -> str:
        """Returns the code of the cause."""
        rules: list[Callable[[], str | None]] = [
            self._python_state,
            self._accumulation,
            self._random,
            self._ratio,
            self._half,
            self._clipped,
            self._regulariser,
            self._data,
            self._first_replica,
            self._means,
            self._statistics,
        ]
        return next((code for code in (rule() for rule in rules) if code), "unknown")

    # What the rules look at.

    def _signal(self, run: Run) -> np.ndarray:
        """Returns the values that differ, in one row of numbers."""
        parts = [run.signal(self._step, key) for key in self._keys]
        return np.concatenate([np.ravel(p) for p in parts if p is not None])

    def _try(self, replicas: int, batch: rows.Batch) -> Run:
        """Runs the step of the difference with another batch."""
        return self._runner.run(replicas, [*self._given[: self._step], batch])

    def _try_equal_parts(self, replicas: int, part: int = 0) -> Run:
        """Runs that step with one replica's rows in place of those of each."""
        if (replicas, part) not in self._repeated:
            equal = rows.repeat_part(self._batch, self._replicas, part)
            self._repeated[replicas, part] = self._try(replicas, equal)
        return self._repeated[replicas, part]

    def _try_part(self, part: int) -> Run:
        """Runs that step on one device, with one replica's rows."""
        if not self._is_uneven:
            # As many rows as the batch has, so that no program is compiled for fewer.
            return self._try_equal_parts(1, part)
        return self._try(1, rows.part(self._batch, self._replicas, part))

    def _copies(self, run: Run, batch_step: int | None = None) -> np.ndarray | None:
        """Returns the gradients of each replica, in one row each."""
        step = self._step if batch_step is None else batch_step
        copies = run.steps[step].copies
        if self.first.kind != GRADIENT or not copies:
            return None
        found = [copies[key].reshape(len(copies[key]), -1) for key in self._keys]
        return np.concatenate(found, axis=1)

    # The rules.

    def _python_state(self) -> str | None:
        again = self._runner.run(1, self._given[: self._step + 1], fresh=True)
        one = Run(self._one.before, self._one.steps[: self._step + 1])
        found = comparison.compare(one, again, 1, self._floor)
        return "python-state" if found else None

    def _accumulation(self) -> str | None:
        keys = [k for k in self._one.steps[0].values if k.kind == VARIABLE]
        for replicas, run in self._runs.items():
            for step in range(len(run.steps)):
                ours = any(_moves(self._one, step, k) for k in keys)
                theirs = any(_moves(run, step, k) for k in keys)
                if ours != theirs and replicas > 1:
                    return "accumulation"
        return None

    def _random(self) -> str | None:
        is_ordered = self._floor.is_ordered
        copies = self._copies(self._try_equal_parts(self._replicas))
        if copies is None:
            return "random-different" if is_ordered else None
        if not _is_near(copies, copies[:1]):
            return "random-different"
        return "random-equal" if is_ordered else None

    def _ratio(self) -> str | None:
        one = self._signal(self._one)
        sizes = self._even or [self._replicas]
        ratios = [
            _fit(self._signal(self._runs[n]), one) for n in sizes if n in self._runs
        ]
        if all(_is_near(r, n) for r, n in zip(ratios, sizes, strict=True)):
            return self._judge_times_n()
        if all(_is_near(r, 1 / n) for r, n in zip(ratios, sizes, strict=True)):
            return "over-n"
        if self.first.kind == METRIC:
            counts = [
                _fit(np.ravel(self._many.steps[self._step].values[k]), np.ravel(v))
                for k, v in self._one.steps[self._step].values.items()
                if k.kind == METRIC
            ]
            if any(_is_near(r, self._replicas) for r in counts):
                return "metric-not-weighted"
        return None

    def _judge_times_n(self) -> str:
        """Returns why values are N times too large."""
        copies = self._copies(self._many)
        if copies is None or not _is_near(copies, copies[:1]):
            return "times-n"
        if self._replicas == 1 or not np.any(copies):
            return "times-n"
        # Each replica has the whole gradient: of the whole batch, or summed already.
        results = [k for k in self._one.steps[self._step].values if k.kind == RESULT]
        for key in results:
            one = np.ravel(self._one.steps[self._step].values[key])
            many = np.ravel(self._many.steps[self._step].values[key])
            if _is_near(_fit(many, one), self._replicas):
                return "data-repeated"
        return "doubled-reduction"

    def _half(self) -> str | None:
        own = [d for d in self._found if d.step == self._step]
        if self.first.kind != GRADIENT or max(d.size for d in own) > _HALF:
            return None
        copies = self._copies(self._many)
        looked = [self._signal(self._many), *([] if copies is None else [copies])]
        for array in looked:
            for kind in (jnp.bfloat16, jnp.float16):
                rounded = np.asarray(np.asarray(array, kind), np.float64)
                if np.any(array) and np.array_equal(rounded, array):
                    return "half-precision"
        return None

    def _clipped(self) -> str | None:
        copies = self._copies(self._many)
        if copies is None or self._replicas == 1:
            return None
        one = self._signal(self._one)
        for size in (np.linalg.norm, lambda x: np.max(np.abs(x))):
            limit = size(one)
            at_limit = [_is_near(size(copy), limit) for copy in copies]
            if limit and sum(at_limit) >= max(2, self._replicas / 2):
                return "clipped-per-replica"
        return None

    def _regulariser(self) -> str | None:
        if self.first.kind not in (GRADIENT, RESULT, VARIABLE):
            return None
        same_rows = [b for b in self._given if rows.count_rows(b) == self._rows]
        others = [b for b in same_rows if b is not self._batch]
        other = others[0] if others else rows.change_row(self._batch, 0)
        extra = self._signal(self._many) - self._signal(self._one)
        again = self._signal(self._try(self._replicas, other)) - self._signal(
            self._try(1, other)
        )
        if not np.any(extra) or not _is_near(extra, again, 1e-2):
            return None
        return "regulariser-n-times"

    def _data(self) -> str | None:
        """Changes row by row, and looks which count on one device and on several."""
        if not self._is_uneven or self.first.kind == METRIC:
            return None
        base = [self._signal(self._one), self._signal(self._many)]
        # Rows are lost or repeated where the parts of the replicas begin and end.
        parts = rows.bounds(self._batch, self._replicas)
        chosen = sorted({row for a, b in parts if b > a for row in (a, b - 1)})
        if len(chosen) > _MOST_ROWS:
            chosen = [*chosen[: _MOST_ROWS // 2], *chosen[-_MOST_ROWS // 2 :]]
        effects = []
        for row in chosen:
            batch = rows.change_row(self._batch, row)
            one = self._signal(self._try(1, batch)) - base[0]
            many = self._signal(self._try(self._replicas, batch)) - base[1]
            if np.any(one):
                effects.append(_fit_loosely(many, one))
        if not effects:
            return None
        if any(abs(e) < 1e-6 for e in effects):
            return "data-dropped"
        whole = [round(e) for e in effects]
        is_whole = all(
            _is_near(e, w, 1e-2) for e, w in zip(effects, whole, strict=True)
        )
        return "data-repeated" if is_whole and max(whole) > 1 else None

    def _first_replica(self) -> str | None:
        alone = self._signal(self._try_part(0))
        found = self._signal(self._many)
        n = self._replicas
        if not any(_is_near(found, factor * alone) for factor in (1, n, 1 / n)):
            return None
        is_first = [self._runner.is_first_only(key.name) for key in self._keys]
        has_own = self.first.kind not in (GRADIENT, RESULT)
        return (
            "only-first-replica" if has_own and all(is_first) else "missing-reduction"
        )

    def _means(self) -> str | None:
        n = self._replicas
        if n > self._rows:
            return None
        parts = [self._signal(self._try_part(i)) for i in range(n)]
        found, one = self._signal(self._many), self._signal(self._one)
        if any(p.shape != found.shape for p in parts):
            return None
        is_sum = self._is_uneven and _is_near(found, sum(parts))
        if is_sum and _is_near(comparison.ratio(found, one), n, 0.3):
            return "times-n"
        mean = np.mean(parts, axis=0)
        is_nearer = np.max(np.abs(found - mean)) < np.max(np.abs(found - one)) / 2
        if not (_is_near(found, mean) and is_nearer):
            return None
        if self.first.kind == METRIC or not self._is_training():
            return "metric-not-weighted"
        if found.size > n + 2:
            # With the right weights, which add up to one, the means would give the
            # whole; statistics of another kind do not.
            weights, *_ = np.linalg.lstsq(np.transpose(parts), one, rcond=None)
            is_whole = _is_near(np.transpose(parts) @ weights, one, 1e-2)
            if not is_whole or not _is_near(float(np.sum(weights)), 1.0, 2e-4):
                return "part-statistics"
        return "mean-of-means"

    def _statistics(self) -> str | None:
        one = self._signal(self._try_equal_parts(1))
        many = self._signal(self._try_equal_parts(self._replicas))
        return "part-statistics" if _is_near(many, one, 1e-4) else None

    def _is_training(self) -> bool:
        """Whether the step changes variables, or computes gradients."""
        values = self._one.steps[self._step].values
        return any(
            k.kind == GRADIENT or _moves(self._one, self._step, k) for k in values
        )


def _moves(run: Run, step: int, key: Key) -> bool:
    """Whether a step has changed a variable."""
    if key.kind != records.VARIABLE:
        return False
    before = (run.steps[step - 1] if step else run.before).values.get(key)
    after = run.steps[step].values.get(key)
    if before is None or after is None:
        return False
    return not np.array_equal(before, after)


def _is_near(a: object, b: object, tolerance: float = _SAME) -> bool:
    """Whether numbers are the same, relative to the largest of them."""
    first, second = np.asarray(a, float), np.asarray(b, float)
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return False
    scale = max(np.max(np.abs(first), initial=0.0), np.max(np.abs(second), initial=0.0))
    try:
        return bool(np.max(np.abs(first - second), initial=0.0) <= tolerance * scale)
    except ValueError:  # Their shapes differ.
        return False


def _fit(a: np.ndarray, b: np.ndarray) -> float:
    """Returns the factor between two arrays; NaN if one is no multiple of the other."""
    found = comparison.ratio(a, b)
    return found if _is_near(a, found * b) else float("nan")


def _fit_loosely(a: np.ndarray, b: np.ndarray) -> float:
    """Returns the factor by which `a` is nearest to `b`."""
    found = comparison.ratio(a, b)
    return found if np.isfinite(found) else float("inf")
