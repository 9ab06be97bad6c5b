"""`check_parity`: whether a step gives the same numbers on any number of replicas."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

from unisono._src.state import storage
from unisono._src.strategies import resizing
from unisono._src.strategies.base import Strategy
from unisono._src.testing import (
    batches as rows,
    causes,
    comparison,
    diagnosis,
    last_digits,
    pictures,
    runs,
)
from unisono._src.testing.causes import Cause
from unisono._src.testing.comparison import Difference, Floor, StepRunner
from unisono._src.testing.records import Run


@final
@dataclasses.dataclass(frozen=True)
class ParityReport:
    """The result of `check_parity`; it is true if there is no difference.

    Attributes:
        replicas: the numbers of replicas that were compared with one device.
        steps: the number of steps.
        compared: the number of values that were compared after each step.
        largest: the largest relative difference that counts as rounding.
        floor: the relative difference that rounding causes in the same value on one
            device.
        differences: the values that differ by more than rounding, in the order in which
            they appear.
        cause: the probable cause of the first difference; None if there is none.
        line: the file and line of the code that causes it, if they are known.
        uncompared: results that have one value per replica, and were not compared.
        course: for each step, the largest relative difference and its floor.
    """

    replicas: tuple[int, ...]
    steps: int
    compared: int
    largest: float
    floor: float
    differences: tuple[Difference, ...] = ()
    cause: Cause | None = None
    line: str | None = None
    uncompared: tuple[str, ...] = ()
    course: tuple[tuple[float, float], ...] = ()

    def __bool__(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.replicas))
        title = f"1 and {sizes} replicas, {self.steps} steps, {self.compared} values"
        lines = [f"{title}: {'the same' if self else 'DIFFERENT'}"]
        rounding = f"  rounding: {self.largest:.1e}, floor {self.floor:.1e}"
        lines += tell(self.differences, self.cause, self.line)
        lines += [] if self else pictures.draw_lines(self.course)
        lines.append(rounding)
        for name in self.uncompared:
            lines.append(f"  not compared: {name}, one value per replica; reduce it")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return pictures.as_html(str(self), self.course)


def tell(
    differences: Sequence[Difference], cause: Cause | None, line: str | None
) -> list[str]:
    """Returns lines that tell of differences and of the cause of the first one."""
    lines = []
    if differences:
        lines.append(f"  first:    {differences[0]}")
    if cause is not None:
        lines.append(f"  cause:    {cause.code}. {cause.told}")
        lines += [f"  at:       {line}"] if line else []
        lines += [f"  write:    {cause.write}"] if cause.write else []
    if len(differences) > 1:
        lines.append(f"  and {len(differences) - 1} more differences")
    return lines


def check_parity(
    step: Callable[..., Any],
    batches: Iterable[Any],
    replicas: Sequence[int] = (1, 2, 3, 8),
    *,
    strategy: Strategy | None = None,
    steps: int | None = None,
    distribute: bool = True,
) -> ParityReport:
    """Runs a step on one device and on several, and compares all its numbers.

    Each run starts from the current state. After every step, results, gradients that
    reach optimizers, variables, slots and metrics are compared. To measure rounding,
    the step also runs on one device with the rows in another order, and with weights
    that differ in their last digits. Afterwards variables, random states and datasets
    are restored; only Python objects that the step itself changes are not.

    Args:
        step: the step, compiled or not, of a `MirroredStrategy` or a
            `CentralStorageStrategy`. If it has one parameter, it gets the batch; if it
            has several, they are the members of the batch.
        batches: global batches, as a list or a dataset: structures of arrays whose
            first axis is that of the rows.
        replicas: the numbers of replicas. Their parts of a batch may be uneven.
        strategy: the strategy; by default that of the variables that exist.
        steps: how many batches to use; by default all.
        distribute: whether batches are distributed as by
            `experimental_distribute_dataset`. If False, the step gets the global batch.

    Returns:
        A `ParityReport`. It is true if nothing differs, and prints the differences.

    Raises:
        TypeError: the batches can be read only once.
        ValueError: there are no batches or not enough devices, or the strategy is not
            known or cannot be resized.

    >>> import jax.numpy as jnp, numpy as np, unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> @unisono.function
    ... def step(x):
    ...     return strategy.reduce("SUM", strategy.run(jnp.mean, (x,)), axis=None)
    >>> report = check_parity(step, [np.arange(8.0)], (1, 2), strategy=strategy)
    >>> bool(report), report.cause.code
    (False, 'times-n')
    """
    given = rows.take(batches, steps)
    sizes = check_sizes(replicas)
    chosen = _find_strategy() if strategy is None else strategy
    resizing.find_devices(chosen, max(sizes))
    runner = runs.Runner(step, chosen, distribute)
    try:
        return compare_sizes(runner, given, sizes)
    finally:
        runner.close()


def compare_sizes(
    runner: StepRunner,
    given: Sequence[rows.Batch],
    sizes: Sequence[int],
    floors: int = 3,
) -> ParityReport:
    """Returns how runs on several numbers of replicas differ from one device.

    Args:
        runner: runs the step.
        given: the global batches.
        sizes: the numbers of replicas.
        floors: how many runs on one device measure rounding.
    """
    one = runner.run(1, given)
    floor = comparison.make_floor(one, runner, given, floors)
    made = {1: one}
    found: list[Difference] = []

    @functools.cache
    def run_far(count: int, end: int) -> Run:
        some = given if end == len(given) else given[:end]
        return runner.run(count, some, digits=last_digits.FAR)

    for count in sizes:
        made[count] = runner.run(count, given)
        differing = comparison.compare(one, made[count], count, floor)
        found += _keep_lasting(differing, run_far, len(given), made, floor)
    found.sort(key=Difference.order)
    uncompared = {name for r in made.values() for s in r.steps for name in s.uncompared}
    cause, line = None, None
    if found:
        looked = diagnosis.Diagnosis(runner, given, made, found, floor)
        cause = causes.CAUSES[looked.find()]
        line = runner.find_line(found[0])
    largest, lowest = _largest_rounding(made, floor, found)
    courses = [comparison.course(one, made[count], floor) for count in sizes]
    return ParityReport(
        replicas=tuple(sizes),
        steps=len(given),
        compared=len(one.steps[0].values),
        largest=largest,
        floor=lowest,
        differences=tuple(found),
        cause=cause,
        line=line,
        uncompared=tuple(sorted(uncompared)),
        course=tuple(map(max, zip(*courses, strict=True))),
    )


def _keep_lasting(
    found: list[Difference],
    run_far: Callable[[int, int], Run],
    steps: int,
    made: dict[int, Run],
    floor: Floor,
) -> list[Difference]:
    """Returns the differences that are there from slightly other weights, too.

    Args:
        found: the differences of one number of replicas, in order.
        run_far: makes the first steps from slightly other weights, for a number of
            replicas and of steps.
        steps: the number of steps.
        made: the runs from the weights as they are.
        floor: the effect of rounding.
    """
    if not found:
        return []
    count = found[0].replicas
    # If the first step that differs does so again, later steps need not be run.
    for end in sorted({found[0].step + 1, steps}):
        again = [run_far(1, end), run_far(count, end)]
        seen = [d for d in found if d.step < end]
        kept = comparison.keep_lasting(seen, (made[1], made[count]), again, floor)
        if kept:
            return [*kept, *(d for d in found if d.step >= end)]
    return []


def check_sizes(replicas: Sequence[int]) -> list[int]:
    """Returns the numbers of replicas beside one, in order."""
    sizes = sorted(set(replicas) - {1})
    if not sizes or min(replicas) < 1:
        raise ValueError(
            "replicas must name numbers of replicas, at least one of them larger than "
            f"1, such as (1, 2, 3, 8); received {tuple(replicas)}."
        )
    return sizes


def _find_strategy() -> Strategy:
    """Returns the one strategy that has placed the variables of the process.

    Raises:
        ValueError: there is none, or there are several.
    """
    owners = {
        id(c.placement.strategy): c.placement.strategy
        for c in storage.live_cells()
        if c.placement is not None
    }
    if len(owners) != 1:
        raise ValueError(
            f"There are variables of {len(owners)} strategies; pass "
            "strategy=..., the one whose replicas run the step."
        )
    (found,) = owners.values()
    return found  # type: ignore[no-any-return]


def _largest_rounding(
    made: dict[int, Run], floor: Floor, found: Sequence[Difference]
) -> tuple[float, float]:
    """Returns the largest relative difference that does not count, and its floor."""
    differing = {(d.step, d.key) for d in found}
    one = made[1]
    sizes = [
        (
            comparison.measure(run.steps[s].values[key], base) / floor.scale(s, key),
            floor.relative(s, key),
        )
        for run in made.values()
        for s, record in enumerate(one.steps)
        for key, base in record.values.items()
        if key in run.steps[s].values and (s, key) not in differing
    ]
    return max((x for x in sizes if x[0] != float("inf")), default=(0.0, 0.0))
