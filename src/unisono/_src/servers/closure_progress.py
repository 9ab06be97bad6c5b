"""`ClosureProgress`: shows how many scheduled functions workers have run."""

from __future__ import annotations

import collections
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, final

from unisono._src.servers import parameter_server
from unisono._src.servers.cluster_coordinator import ClusterCoordinator
from unisono._src.training import progress

if TYPE_CHECKING:
    import rich.console

# Rates are those of the last seconds, so that a worker that stands still is seen.
_WINDOW_SECONDS = 5.0
_REFRESH_SECONDS = 0.1


class ClosureProgress:
    """Shows how many functions workers have run, and how many they run per second.

    For each worker it counts the functions of `ClusterCoordinator.schedule` that end
    in the ``with`` block. A terminal shows a progress bar. Elsewhere, a line is printed
    every few seconds, and another one at the end.

    Args:
        coordinator: the coordinator.
        total: the number of functions that will be scheduled in the block, if known.
        description: the text before the progress bar.
        line_seconds: the time between two lines if the output is not a terminal.
        console: a `rich.console.Console`; by default one for standard error.

    Raises:
        TypeError: `coordinator` is not a `ClusterCoordinator`.
        ValueError: `line_seconds` is not positive.

    >>> import io, rich.console, unisono
    >>> cluster = unisono.train.ClusterSpec({"worker": ["a:1"], "ps": ["b:1"]})
    >>> strategy = unisono.distribute.ParameterServerStrategy(
    ...     unisono.distribute.cluster_resolver.SimpleClusterResolver(cluster),
    ...     carrier="threads",
    ... )
    >>> coordinator = unisono.distribute.coordinator.ClusterCoordinator(strategy)
    >>> step = unisono.function(lambda: 1)
    >>> text = rich.console.Console(file=io.StringIO())
    >>> with ClosureProgress(coordinator, total=20, console=text) as shown:
    ...     for _ in range(20):
    ...         remote = coordinator.schedule(step)
    ...     coordinator.join()
    >>> shown.counts, text.file.getvalue().startswith("20/20 closures; ")
    ((20,), True)
    >>> strategy.shutdown()
    """

    def __init__(
        self,
        coordinator: ClusterCoordinator,
        total: int | None = None,
        description: str = "",
        *,
        line_seconds: float = 10.0,
        console: rich.console.Console | None = None,
    ) -> None:
        if not isinstance(coordinator, ClusterCoordinator):
            raise TypeError(
                "ClosureProgress shows what a ClusterCoordinator does, received "
                f"{coordinator!r}. For a loop over a dataset use train.Progress."
            )
        if line_seconds <= 0:
            raise ValueError(f"line_seconds must be positive, received {line_seconds}.")
        self._meter = _ClosureMeter(coordinator)
        self._given = console, description, total, line_seconds
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of functions that each worker has run in the block."""
        return self._meter.counts()

    def __enter__(self) -> ClosureProgress:
        self._meter.begin()
        self._is_over.clear()
        # A thread, because the program waits in `join`, or does something else.
        self._thread = threading.Thread(
            target=self._show, name="unisono progress", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._meter.stop()
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        display = progress.make_display(*self._given)
        while not self._is_over.wait(_REFRESH_SECONDS):
            self._meter.look()
            display.update(self._meter)
        self._meter.sum_up()
        display.close(self._meter)


@final
class _ClosureMeter:
    """Counts the closures that workers have run.

    Args:
        coordinator: the coordinator.
    """

    unit = "closures"

    def __init__(self, coordinator: ClusterCoordinator) -> None:
        self._runners = parameter_server.cluster_of(coordinator.strategy).runners
        self._first = [0] * len(self._runners)
        # When it was stopped, and what was counted until then.
        self._last: tuple[float, tuple[int, ...]] | None = None
        # The times of the latest looks, and how many closures each worker had run.
        self._seen: collections.deque[tuple[float, tuple[int, ...]]] = (
            collections.deque()
        )
        self._began = 0.0

    def begin(self) -> None:
        """Starts to count the closures that end."""
        self._first, self._last = [r.ended for r in self._runners], None
        self._began = time.monotonic()
        self._seen.clear()
        self.look()

    def look(self) -> None:
        """Notes how many closures each worker has run by now."""
        now = time.monotonic()
        self._seen.append((now, self.counts()))
        # Two looks stay at least: a rate is the difference between two.
        while len(self._seen) > 2 and now - self._seen[1][0] > _WINDOW_SECONDS:
            self._seen.popleft()

    def stop(self) -> None:
        """Stops counting, and keeps the counts."""
        self._last = time.monotonic(), self.counts()

    def sum_up(self) -> None:
        """Makes the rates those of the whole block."""
        assert self._last is not None
        self._seen.clear()
        self._seen.append((self._began, (0,) * len(self._runners)))
        self._seen.append(self._last)

    def counts(self) -> tuple[int, ...]:
        """Returns how many closures each worker has run."""
        if self._last is not None:
            return self._last[1]
        pairs = zip(self._runners, self._first, strict=True)
        return tuple(r.ended - first for r, first in pairs)

    # The properties and methods that displays read.

    @property
    def steps(self) -> int:
        """How many closures have ended."""
        return sum(self._seen[-1][1])

    def times(self) -> str:
        """Returns how many closures end in a second, on all workers together."""
        return f"{_format_rate(sum(self._rates()))} closures/s"

    @property
    def values(self) -> dict[str, Any]:
        """For each worker, how many closures end in a second, and have ended."""
        pairs = zip(self._rates(), self._seen[-1][1], strict=True)
        return {
            f"worker {i}": f"{_format_rate(rate)}/s ({count})"
            for i, (rate, count) in enumerate(pairs)
        }

    def _rates(self) -> list[float]:
        (start, first), (end, last) = self._seen[0], self._seen[-1]
        seconds = max(end - start, 1e-9)
        return [(n - m) / seconds for n, m in zip(last, first, strict=True)]


def _format_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
