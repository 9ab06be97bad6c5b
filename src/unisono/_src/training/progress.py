"""`Progress`: how far a loop is, and what its steps spend their time on."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

import jax
import numpy as np

from unisono._src.cluster import launcher_progress as launcher
from unisono._src.foundation.public_names import publish
from unisono._src.state.variables import Variable
from unisono._src.values import array_operators
from unisono._src.workers import process_group

if TYPE_CHECKING:
    import rich.console

_Item = TypeVar("_Item")

_REFRESH_SECONDS = 0.1
_NAMES = ("input", "dispatch", "compute")


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """Where the time of a loop went, in seconds.

    Attributes:
        steps: how many steps were made.
        total: from the first batch asked for to the end of the last step.
        first: the first step alone, which compiles.
        input: per step, waiting for the next batch.
        dispatch: per step, from the batch to `show`: Python, and starting the program.
        compute: per step, from `show` until the values are there, with nothing else in
            flight; None if `show` was given no arrays.
        samples: how many steps the three are means of.
    """

    steps: int = 0
    total: float = 0.0
    first: float = 0.0
    input: float = 0.0
    dispatch: float = 0.0
    compute: float | None = None
    samples: int = 0

    def __str__(self) -> str:
        rate = self.steps / self.total if self.total else 0.0
        parts = [f"{rate:.3g} steps/s"]
        for name in _NAMES:
            seconds = getattr(self, name)
            if self.samples and seconds is not None:
                parts.append(f"{name} {_short(seconds)}")
        return ", ".join(parts)


def _short(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


class Progress(Generic[_Item]):
    """Iterates over a dataset and shows how far it is, on the first worker.

    In a terminal it is a bar; elsewhere a line every few seconds, and one at the end.
    Every `sample_seconds` one step is looked at: the loop waits before it until nothing
    is in flight, and after it until the values given to `show` are there. All other
    steps run as they would without.

    Args:
        iterable: a dataset, distributed or not, or anything else. Each `for` over the
            progress is a loop over it, with a bar of its own.
        total: how many steps there will be; default what the dataset or `len` says.
        description: the text before the bar.
        sample_seconds: how often a step is looked at.
        line_seconds: how often a line is printed where there is no terminal.
        console: a `rich.console.Console`; default one for standard error.

    >>> progress = Progress(range(3))
    >>> for x in progress:
    ...     progress.show(x=x)
    >>> progress.times.steps
    3
    """

    def __init__(
        self,
        iterable: Iterable[_Item],
        total: int | None = None,
        description: str = "",
        *,
        sample_seconds: float = 1.0,
        line_seconds: float = 10.0,
        console: rich.console.Console | None = None,
    ) -> None:
        if sample_seconds <= 0 or line_seconds <= 0:
            raise ValueError(
                "sample_seconds and line_seconds must be positive, received "
                f"{sample_seconds} and {line_seconds}."
            )
        self._iterable = iterable
        self._total = _size(iterable) if total is None else total
        self._description = description
        self._every = sample_seconds
        self._line_every = line_seconds
        self._console = console
        self._meter = _Meter(sample_seconds)

    @property
    def times(self) -> StepTimes:
        """Where the time went, in the loop that runs or ran last."""
        return self._meter.times()

    def show(self, **values: object) -> None:
        """Give numbers to show: after the step, once in an iteration.

        Args:
            **values: numbers, arrays with one element, variables or metrics. They are
                read when a step is looked at, and else left alone.
        """
        self._meter.shown(values)

    def __iter__(self) -> Iterator[_Item]:
        if not process_group.current().is_chief:
            yield from self._iterable
            return
        self._meter = meter = _Meter(self._every)
        display = _display(
            self._console, self._description, self._total, self._line_every
        )
        iterator = iter(self._iterable)
        try:
            while True:
                meter.before_input()
                try:
                    element = next(iterator)
                except StopIteration:
                    break
                meter.after_input()
                yield element
                meter.after_step()
                display.update(meter)
        finally:
            # Also when the loop is left by `break` or an error.
            meter.stop()
            display.close(meter)

    def __len__(self) -> int:
        if self._total is None:
            raise TypeError("How many steps there will be is not known.")
        return self._total


def _size(iterable: Any) -> int | None:
    size = getattr(iterable, "cardinality", None)
    try:
        found = int(size() if callable(size) else size) if size is not None else None
        found = len(iterable) if found is None else found
    except TypeError:
        return None
    return found if found >= 0 else None


@final
class _Meter:
    """Measures steps; waits for the device at samples only."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._sums = dict.fromkeys(_NAMES, 0.0)
        self._computed = 0
        self._samples = 0
        self._began = self._mark = time.perf_counter()
        self._next_sample = self._began
        self._is_sample = False
        self._arrays: list[jax.Array] = []
        self._first = 0.0
        self._input = 0.0
        self._dispatched: float | None = None
        self._ended: float | None = None
        self.steps = 0
        self.values: dict[str, Any] = {}
        self._given: dict[str, Any] = {}

    def before_input(self) -> None:
        now = time.perf_counter()
        # The first step compiles, so it tells nothing of the others.
        self._is_sample = self.steps > 0 and now >= self._next_sample
        if self._is_sample:
            jax.block_until_ready(self._arrays)
        self._mark = time.perf_counter()

    def after_input(self) -> None:
        now = time.perf_counter()
        self._input, self._mark = now - self._mark, now
        self._dispatched = None

    def shown(self, values: dict[str, Any]) -> None:
        self._dispatched = time.perf_counter()
        self._given = values
        self._arrays = [x for v in values.values() for x in _arrays(v)]

    def after_step(self) -> None:
        if self._dispatched is None:
            self._dispatched = time.perf_counter()
            self._given, self._arrays = {}, []
        self.steps += 1
        if self.steps == 1:
            jax.block_until_ready(self._arrays)
            self._first = time.perf_counter() - self._began
            self.values = {k: _number(v) for k, v in self._given.items()}
        elif self._is_sample:
            self._sample(self._dispatched)

    def _sample(self, dispatched: float) -> None:
        self._samples += 1
        self._sums["input"] += self._input
        self._sums["dispatch"] += dispatched - self._mark
        if self._arrays:
            jax.block_until_ready(self._arrays)
            self._sums["compute"] += time.perf_counter() - dispatched
            self._computed += 1
        self.values = {k: _number(v) for k, v in self._given.items()}
        self._next_sample = time.perf_counter() + self._every

    def stop(self) -> None:
        """After the last step."""
        jax.block_until_ready(self._arrays)
        self._ended = time.perf_counter()
        self.values = {k: _number(v) for k, v in self._given.items()}
        self._arrays, self._given = [], {}

    def times(self) -> StepTimes:
        ended = time.perf_counter() if self._ended is None else self._ended
        count = max(self._samples, 1)
        compute = self._sums["compute"] / self._computed if self._computed else None
        return StepTimes(
            steps=self.steps,
            total=ended - self._began,
            first=self._first,
            input=self._sums["input"] / count,
            dispatch=self._sums["dispatch"] / count,
            compute=compute,
            samples=self._samples,
        )


def _arrays(value: Any) -> list[jax.Array]:
    found = [value] if isinstance(value, jax.Array) else jax.tree.leaves(value)
    return [x for x in found if isinstance(x, jax.Array)]


def _number(value: Any) -> Any:
    own = array_operators.own(value)
    if isinstance(own, Variable):
        value = own.numpy()
    elif hasattr(value, "result"):
        value = value.result()
    found = np.asarray(value)
    return found.reshape(()).item() if found.size == 1 else value


def _text(values: dict[str, Any]) -> str:
    parts = (
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}"
        for k, v in values.items()
    )
    return ", ".join(parts)


# Showing it.


def _display(console: Any, description: str, total: int | None, every: float) -> Any:
    import rich.console

    console = console or rich.console.Console(file=sys.stderr)
    kind = _Bar if console.is_terminal else _Lines
    return kind(console, description, total, every)


@final
class _Lines:
    """A line now and then."""

    def __init__(
        self, console: Any, description: str, total: int | None, every: float
    ) -> None:
        self._file = console.file
        self._description = description
        self._total = total
        self._every = every
        self._next = time.perf_counter() + every

    def update(self, meter: _Meter) -> None:
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + self._every
            self._print(meter)

    def close(self, meter: _Meter) -> None:
        self._print(meter)

    def _print(self, meter: _Meter) -> None:
        launcher.report(meter.steps, self._total)
        of = "" if self._total is None else f"/{self._total}"
        told = [f"{meter.steps}{of} steps", str(meter.times()), _text(meter.values)]
        line = "; ".join(t for t in told if t)
        head = f"{self._description}: " if self._description else ""
        self._file.write(f"{head}{line}\n")
        self._file.flush()


@final
class _Bar:
    """A bar, and a line below it; drawn by the loop itself: there is no thread."""

    def __init__(
        self, console: Any, description: str, total: int | None, every: float
    ) -> None:
        import rich.live
        import rich.markup
        import rich.progress

        self._total = total
        self._next = 0.0
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
        )
        self._task = self._bar.add_task(rich.markup.escape(description), total=total)
        self._live = rich.live.Live(self._bar, console=console, auto_refresh=False)
        self._live.start()

    def update(self, meter: _Meter) -> None:
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + _REFRESH_SECONDS
            self._draw(meter)

    def close(self, meter: _Meter) -> None:
        self._draw(meter)
        self._live.stop()

    def _draw(self, meter: _Meter) -> None:
        import rich.console
        import rich.text

        launcher.report(meter.steps, self._total)
        told = "; ".join(t for t in (str(meter.times()), _text(meter.values)) if t)
        below = rich.text.Text(told, no_wrap=True, overflow="ellipsis")
        self._bar.update(self._task, completed=meter.steps)
        self._live.update(rich.console.Group(self._bar, below), refresh=True)


publish("unisono.train", Progress, StepTimes)
