"""A group of workers, started anew as often as allowed until it succeeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import final

from unisono._src.cli.launch import allocation, group, launch_plan, output, report


@final
@dataclasses.dataclass(frozen=True)
class Size:
    """How many workers a group may have.

    Attributes:
        start: how many to start with here; None where a larger job may say.
        minimum: how few it may be restarted with.
    """

    start: int | None
    minimum: int | None = None

    @classmethod
    def of(cls, workers: int | None, minimum: int | None, maximum: int | None) -> Size:
        """The size that ``-n``, ``--min`` and ``--max`` mean together.

        >>> Size.of(None, 2, 4)
        Size(start=4, minimum=2)

        Raises:
            ValueError: they contradict one another.
        """
        start = maximum if workers is None else workers
        start = minimum if start is None else start
        low = start if minimum is None else minimum
        high = start if maximum is None else maximum
        if start is not None and not (low or 0) <= start <= (high or 0):
            raise ValueError(
                f"{start} workers were asked for, with at least {low} and at most "
                f"{high}; choose a number between them."
            )
        return cls(start, minimum)

    def after(self, outcome: group.Outcome) -> Size:
        """The size for the next start: without workers that were killed.

        A worker that was killed is taken for one that this machine has no room for.
        One that raised an exception, or aborted because a peer did, is not.
        """
        if self.start is None or self.minimum is None:
            return self
        lost = sum(failure.was_killed for failure in outcome.failures)
        return dataclasses.replace(self, start=max(self.start - lost, self.minimum))


@final
@dataclasses.dataclass(frozen=True)
class Place:
    """Where the workers belong; see `allocation.place`."""

    attach: allocation.Attach = allocation.Attach.NONE
    port: int = 8888
    nodes: int | None = None
    service: str | None = None


@final
@dataclasses.dataclass(frozen=True)
class Request:
    """What to run, and how.

    Attributes:
        argv: the program and its arguments.
        size: how many workers.
        devices: which devices each gets.
        restarts: how often the group may be started anew.
        grace_seconds: after a failure, how long the others may take to end.
        stop_seconds: after a signal, how long a worker may take to end.
        timeout_seconds: how long one start may take; None for as long as it does.
        place: where the workers belong.
        descriptors: for each worker, file descriptors to inherit.
        is_called: whether a program runs this, which has signals of its own.
    """

    argv: tuple[str, ...]
    size: Size
    devices: launch_plan.Devices = dataclasses.field(
        default_factory=launch_plan.Devices
    )
    restarts: int = 0
    grace_seconds: float = 15.0
    stop_seconds: float = 30.0
    timeout_seconds: float | None = None
    place: Place = dataclasses.field(default_factory=Place)
    descriptors: Sequence[Sequence[int]] = ()
    is_called: bool = False


def run(request: Request, out: output.Output) -> group.Outcome:
    """Run the group, restarting it as allowed; how the last start ended."""
    size, placement = request.size, _place(request, request.size)
    if request.size.minimum is not None and not placement.is_local:
        raise ValueError("--min and --max are for workers on one machine.")
    with group.forwarded_signals(request.is_called) as signals:
        for restart in range(request.restarts + 1):
            outcome = group.Group(
                launch_plan.commands(
                    request.argv,
                    placement,
                    request.devices,
                    restart,
                    request.descriptors,
                ),
                out,
                signals,
                request.grace_seconds,
                request.stop_seconds,
                request.timeout_seconds,
            ).run()
            report.tell(outcome, out)
            if outcome.code == 0 or outcome.signal is not None:
                break
            if restart < request.restarts:
                size = size.after(outcome)
                if placement.is_local:  # In a larger job the addresses stay.
                    placement = _place(request, size)
                out.note(
                    f"restart {restart + 1} of {request.restarts}, with "
                    f"{len(placement.mine)} worker(s)."
                )
    return outcome


def _place(request: Request, size: Size) -> launch_plan.Placement:
    place = request.place
    return allocation.place(
        place.attach, size.start, place.port, place.nodes, place.service
    )
