"""`Progress`: shows how far a loop is, and how its steps spend their time."""

from __future__ import annotations

import abc
import dataclasses
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, final

import jax
import numpy as np

from unisono._src.cluster import launcher_pipes as launcher
from unisono._src.state.variables import Variable
from unisono._src.values import array_operators
from unisono._src.workers import process_group

if TYPE_CHECKING:
    import rich.console

_Item = TypeVar("_Item")

# A terminal gets ten pictures a second: more cannot be read, and each costs time.
_REFRESH_SECONDS = 0.1
_NAMES = ("input", "dispatch", "compute")


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """The time that the parts of a loop took, in seconds.

    Attributes:
        steps: the number of steps.
        total: the time from the request for the first batch to the end of the last
            step.
        first: the time of the first step, including compilation.
        input: the time that a step waits for its batch.
        dispatch: the time of a step from getting the batch to `show`: running Python
            and starting the program.
        compute: the time of a step from `show` until its values are computed, while the
            device does nothing else; None if no arrays were passed to `show`.
        samples: the number of measured steps; `input`, `dispatch` and `compute` are
            means over them.

    >>> str(StepTimes(steps=10, total=2.0, input=0.05, dispatch=0.002, samples=1))
    '5 steps/s, input 50 ms, dispatch 2 ms'
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
                parts.append(f"{name} {_format_seconds(seconds)}")
        return ", ".join(parts)


def _format_seconds(seconds: float) -> str:
    """Returns a time with three digits in the unit that fits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


class Progress(Generic[_Item]):
    """Iterates over a dataset and shows the progress, on the first worker.

    In a terminal it shows a bar; elsewhere it prints a line every few seconds, and one
    at the end. Every `sample_seconds` one step is measured: the loop waits before it
    until the device is idle, and after it until the values given to `show` are
    computed. It also waits for the first and the last step. All other steps run as they
    would without this class.

    Args:
        iterable: a dataset, distributed or not, or any other iterable. Each `for` loop
            over the object is a loop over it, with a new bar.
        total: the number of steps; by default the size of the dataset, if it is known.
        description: the text before the bar.
        sample_seconds: the time between two steps that are measured.
        line_seconds: the time between two lines, if there is no terminal.
        console: a `rich.console.Console`; by default one for standard error.

    Raises:
        ValueError: `sample_seconds` or `line_seconds` is not positive.

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
        self._meter = _StepMeter(sample_seconds)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._iterable!r}>"

    @property
    def times(self) -> StepTimes:
        """The times of the current loop, or of the last one.

        >>> progress = Progress([1, 2])
        >>> for x in progress:
        ...     progress.show(x=x)
        >>> progress.times.steps, progress.times.total > 0
        (2, True)
        """
        return self._meter.times()

    def show(self, **values: object) -> None:
        """Sets the numbers to show; call it once per iteration, after the step.

        Args:
            **values: numbers, arrays with one element, variables or metrics. They are
                read only at the steps that are measured, and at the first and the last
                step, so that other steps do not wait for the device.

        >>> import io, rich.console
        >>> text = rich.console.Console(file=io.StringIO())
        >>> progress = Progress(range(2), description="epoch 1", console=text)
        >>> for x in progress:
        ...     progress.show(loss=0.5 * x)
        >>> line = text.file.getvalue().strip()
        >>> line.startswith("epoch 1: 2/2 steps"), line.endswith("loss 0.5")
        (True, True)
        """
        self._meter.show(values)

    def __iter__(self) -> Iterator[_Item]:
        # The other workers do the same steps; one of them is enough to show it.
        if not process_group.current().is_chief:
            yield from self._iterable
            return
        self._meter = meter = _StepMeter(self._every)
        display = make_display(
            self._console, self._description, self._total, self._line_every
        )
        iterator = iter(self._iterable)
        try:
            while True:
                meter.begin_input()
                try:
                    element = next(iterator)
                except StopIteration:
                    break
                meter.end_input()
                yield element
                meter.end_step()
                display.update(meter)
        finally:
            # Reached also when the loop ends by `break` or an error.
            meter.stop()
            display.close(meter)

    def __len__(self) -> int:
        if self._total is None:
            raise TypeError(
                "The number of steps is not known: the iterable has no length. Pass "
                "total=... to Progress."
            )
        return self._total


def _size(iterable: object) -> int | None:
    """Returns the number of elements; None if it is unknown or infinite."""
    # A method of datasets, and a number of some loaders.
    size = getattr(iterable, "cardinality", None)
    try:
        found = int(size() if callable(size) else size) if size is not None else None
        if found is None and isinstance(iterable, Sized):
            found = len(iterable)
    except TypeError:
        return None
    # TensorFlow's cardinalities are -1 for infinite and -2 for unknown.
    return found if found is not None and found >= 0 else None


@final
class _StepMeter:
    """Measures steps, and waits for the device only at those that are samples.

    The loop calls `begin_input`, `end_input`, `show` and `end_step` in this order.
    """

    # What it counts, for displays.
    unit = "steps"

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
        self.values: dict[str, object] = {}
        self._given: dict[str, object] = {}

    def begin_input(self) -> None:
        """Decides whether the next step is a sample, and starts its clock."""
        now = time.perf_counter()
        # The first step compiles, so its times say nothing about the others.
        self._is_sample = self.steps > 0 and now >= self._next_sample
        if self._is_sample:
            # Else the time of earlier steps would count as that of this one.
            jax.block_until_ready(self._arrays)
        self._mark = time.perf_counter()

    def end_input(self) -> None:
        """Notes the time that the batch took."""
        now = time.perf_counter()
        self._input, self._mark = now - self._mark, now
        self._dispatched = None

    def show(self, values: dict[str, object]) -> None:
        """Notes the values of a step whose program was started."""
        self._dispatched = time.perf_counter()
        self._given = values
        self._arrays = [x for v in values.values() for x in _arrays(v)]

    def end_step(self) -> None:
        """Counts the step, and measures it if it is the first or a sample."""
        if self._dispatched is None:
            # The step did not call `show`: nothing is left to show or to wait for.
            self._dispatched = time.perf_counter()
            self._given, self._arrays = {}, []
        self.steps += 1
        # The first step is waited for, so that its time has the compilation in it.
        if self.steps == 1:
            jax.block_until_ready(self._arrays)
            self._first = time.perf_counter() - self._began
            self.values = {k: _number(v) for k, v in self._given.items()}
        elif self._is_sample:
            self._sample(self._dispatched)

    def _sample(self, dispatched: float) -> None:
        """Adds the times of a step to the sums, after waiting for its values."""
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
        """Ends the measurement after the last step, and drops its arrays."""
        jax.block_until_ready(self._arrays)
        self._ended = time.perf_counter()
        self.values = {k: _number(v) for k, v in self._given.items()}
        self._arrays, self._given = [], {}

    def times(self) -> StepTimes:
        """Returns the times so far."""
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


def _arrays(value: object) -> list[jax.Array]:
    """Returns the arrays in a value, to wait for."""
    found = [value] if isinstance(value, jax.Array) else jax.tree.leaves(value)
    return [x for x in found if isinstance(x, jax.Array)]


def _number(value: object) -> object:
    """Returns a Python number for a value with one element, else the value."""
    own = array_operators.find_own_variable(value)
    if isinstance(own, Variable):
        value = own.numpy()
    elif hasattr(value, "result"):
        value = value.result()
    found = np.asarray(value)
    return found.reshape(()).item() if found.size == 1 else value


def _format_values(values: dict[str, object]) -> str:
    """Returns names and values in one line."""
    parts = (
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}"
        for k, v in values.items()
    )
    return ", ".join(parts)


# Displays.


class Meter(Protocol):
    """What a display shows: the steps, or what else is counted, and values of them."""

    unit: str

    @property
    def steps(self) -> int: ...

    @property
    def values(self) -> dict[str, object]: ...

    def times(self) -> object: ...


def make_display(
    console: rich.console.Console | None,
    description: str,
    total: int | None,
    every: float,
) -> TimedDisplay:
    """Returns a bar for a terminal, else lines.

    Args:
        console: a `rich.console.Console`; None for one for standard error.
        description: the text before the bar.
        total: the number of steps, if it is known.
        every: the time between two lines where there is no terminal.
    """
    import rich.console

    console = console or rich.console.Console(file=sys.stderr)
    if console.is_terminal:
        return _BarDisplay(console, description, total)
    return _LineDisplay(console, description, total, every)


class TimedDisplay(abc.ABC):
    """Shows a meter every so many seconds, and at the end; abstract.

    Args:
        total: the number of steps, if it is known.
        every: the time between two pictures.
        first: when the first picture may be shown.
    """

    def __init__(self, total: int | None, every: float, first: float) -> None:
        self._total = total
        self._every = every
        self._next = first

    def update(self, meter: Meter) -> None:
        """Shows the meter if it is time."""
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + self._every
            self._show(meter)

    def close(self, meter: Meter) -> None:
        """Shows the meter for the last time, and leaves it on the screen."""
        self._show(meter)
        self._end()

    def _show(self, meter: Meter) -> None:
        launcher.report(meter.steps, self._total)
        told = (str(meter.times()), _format_values(meter.values))
        self._draw(meter, "; ".join(t for t in told if t))

    @abc.abstractmethod
    def _draw(self, meter: Meter, told: str) -> None:
        """Shows how many steps there were, and what is told of them."""

    @abc.abstractmethod
    def _end(self) -> None:
        """Frees the screen."""


@final
class _LineDisplay(TimedDisplay):
    """Prints a line every few seconds, and one at the end."""

    def __init__(
        self,
        console: rich.console.Console,
        description: str,
        total: int | None,
        every: float,
    ) -> None:
        super().__init__(total, every, time.perf_counter() + every)
        self._file = console.file
        self._head = f"{description}: " if description else ""

    def _draw(self, meter: Meter, told: str) -> None:
        of = "" if self._total is None else f"/{self._total}"
        rest = f"; {told}" if told else ""
        self._file.write(f"{self._head}{meter.steps}{of} {meter.unit}{rest}\n")
        self._file.flush()

    def _end(self) -> None:
        pass


@final
class _BarDisplay(TimedDisplay):
    """Draws a bar and a line below it.

    The loop itself draws, at most every `_REFRESH_SECONDS`: there is no thread that
    would take time from it.
    """

    def __init__(
        self, console: rich.console.Console, description: str, total: int | None
    ) -> None:
        import rich.live
        import rich.markup
        import rich.progress

        super().__init__(total, _REFRESH_SECONDS, 0.0)
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
        )
        # A description may hold square brackets, which are markup to Rich.
        self._task = self._bar.add_task(rich.markup.escape(description), total=total)
        self._live = rich.live.Live(self._bar, console=console, auto_refresh=False)
        self._live.start()

    def _draw(self, meter: Meter, told: str) -> None:
        import rich.console
        import rich.text

        below = rich.text.Text(told, no_wrap=True, overflow="ellipsis")
        self._bar.update(self._task, completed=meter.steps)
        self._live.update(rich.console.Group(self._bar, below), refresh=True)

    def _end(self) -> None:
        self._live.stop()
