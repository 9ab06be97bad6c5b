"""Runs a group of workers, and restarts it as often as allowed until it succeeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import final

from unisono._src.cli.launch import (
    allocation,
    group,
    launch_plan,
    output,
    worker_process,
)
from unisono._src.cluster import paused_processes, replica_checks
from unisono._src.foundation import options


@final
@dataclasses.dataclass(frozen=True)
class GroupSize:
    """The number of workers that a group may have.

    Attributes:
        start: the number of workers to start with here; None if a larger job decides.
        minimum: the smallest number of workers to restart with.
    """

    start: int | None
    minimum: int | None = None

    @classmethod
    def from_options(
        cls, workers: int | None, minimum: int | None, maximum: int | None
    ) -> GroupSize:
        """Returns the size that ``-n``, ``--min`` and ``--max`` mean together.

        >>> GroupSize.from_options(None, 2, 4)
        GroupSize(start=4, minimum=2)

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

    def next_size(self, outcome: group.GroupOutcome) -> GroupSize:
        """Returns the size for the next start, without the workers that were killed.

        If a worker was killed, we assume that this machine has no room for it. A worker
        that raised an exception, or aborted because a peer did, is started again. So is
        a chief or a parameter server, which are no workers.
        """
        if self.start is None or self.minimum is None:
            return self
        lost = sum(
            failure.was_killed and failure.worker.command.job == "worker"
            for failure in outcome.failures
        )
        return dataclasses.replace(self, start=max(self.start - lost, self.minimum))


@final
@dataclasses.dataclass(frozen=True)
class JobAttachment:
    """The larger job of the workers.

    Attributes:
        attach: the kind of larger job.
        port: the first port on each machine of a larger job.
        nodes: for Kubernetes, how many pods the job has.
        service: for Kubernetes, the headless service in front of the pods.
    """

    attach: allocation.JobKind = allocation.JobKind.NONE
    port: int = 8888
    nodes: int | None = None
    service: str | None = None


@final
@dataclasses.dataclass(frozen=True)
class RunRequest:
    """The program to run as workers, and the way to run it.

    Attributes:
        argv: the program and its arguments.
        size: the number of workers.
        servers: the number of parameter servers; with them, there is also a chief.
        devices: the devices that each worker gets.
        restarts: how often the group may be restarted.
        grace_seconds: after a failure, how long the others may take to end.
        stop_seconds: after a signal, how long a worker may take to end.
        timeout_seconds: how long the group may take after each start; None for any
            time.
        stopped_seconds: how long a worker may be stopped, as by SIGSTOP; 0 for any
            time, None for what the environment says.
        check_replicas: after how many steps workers compare their copies of mirrored
            variables again; 0 for never, None for what the environment says.
        place: the larger job of the workers.
        descriptors: for each worker, file descriptors to inherit.
        is_called: whether a program calls this, which may use SIGUSR1 and SIGUSR2.
    """

    argv: tuple[str, ...]
    size: GroupSize
    servers: int = 0
    devices: launch_plan.Devices = dataclasses.field(
        default_factory=launch_plan.Devices
    )
    restarts: int = 0
    grace_seconds: float = 15.0
    stop_seconds: float = 30.0
    timeout_seconds: float | None = None
    stopped_seconds: float | None = None
    check_replicas: int | None = None
    place: JobAttachment = dataclasses.field(default_factory=JobAttachment)
    descriptors: Sequence[Sequence[int]] = ()
    is_called: bool = False


def run(request: RunRequest, out: output.WorkerOutput) -> group.GroupOutcome:
    """Runs the group, restarts it as allowed, and returns the last outcome.

    Raises:
        RuntimeError: the environment is not that of the larger job.
        ValueError: the size or the devices do not fit this machine or job.
    """
    stopped_seconds = paused_processes.limit_seconds(request.stopped_seconds)
    if replica_checks.check_interval(request.check_replicas) and request.servers:
        raise ValueError(
            "--check-replicas compares mirrored variables, and with --ps the variables "
            "are on parameter servers, each of them once; leave one of the two out."
        )
    size, placement = request.size, _place_workers(request, request.size)
    if request.size.minimum is not None and not placement.is_local:
        raise ValueError(
            "--min and --max are for workers on one machine, and this is a larger job; "
            "leave them out, or say --attach none."
        )
    if request.servers and not placement.is_local:
        raise ValueError(
            "--ps starts a job on one machine, and this is a larger job. Start one "
            "task on each machine, with TF_CONFIG, or say --attach none."
        )
    with group.catch_signals(request.is_called) as signals:
        for restart in range(request.restarts + 1):
            outcome = group.WorkerGroup(
                _plan_commands(request, placement, restart, stopped_seconds),
                out,
                signals,
                request.grace_seconds,
                request.stop_seconds,
                request.timeout_seconds,
                stopped_seconds,
            ).run()
            _tell(outcome, out)
            # A group that the user has stopped is not started again.
            if outcome.code == 0 or outcome.signal is not None:
                break
            if restart < request.restarts:
                size = size.next_size(outcome)
                if placement.is_local:  # In a larger job the addresses stay.
                    placement = _place_workers(request, size)
                out.note(
                    f"restart {restart + 1} of {request.restarts}, with "
                    f"{len(placement.mine)} worker(s)."
                )
    return outcome


def _plan_commands(
    request: RunRequest,
    placement: launch_plan.WorkerPlacement,
    restart: int,
    stopped_seconds: float,
) -> list[worker_process.Command]:
    if request.servers:
        # The tasks start servers and workers by Ray, to which the same time applies.
        own = {paused_processes.VARIABLE: str(stopped_seconds)}
        made = launch_plan.plan_server_job(
            request.argv,
            len(placement.mine),
            request.servers,
            request.devices,
            restart,
        )
        return [dataclasses.replace(c, env=c.env | own) for c in made]
    made = launch_plan.plan_commands(
        request.argv, placement, request.devices, restart, request.descriptors
    )
    every = replica_checks.check_interval(request.check_replicas)
    own = {replica_checks.VARIABLE: str(every)}
    return [dataclasses.replace(c, env=c.env | own) for c in made]


def _place_workers(request: RunRequest, size: GroupSize) -> launch_plan.WorkerPlacement:
    place = request.place
    return allocation.place(
        place.attach, size.start, place.port, place.nodes, place.service
    )


def _tell(outcome: group.GroupOutcome, out: output.WorkerOutput) -> None:
    """Shows the first failure, then the tracebacks of the others."""
    if outcome.signal is not None or not outcome.failures:
        _tell_each(outcome.failures, out)
        return
    first, *others = outcome.failures
    how = group.describe_end(first.worker)
    if first.traceback:
        out.note(f"{first.worker.name} failed first, with {how}:")
        for text in first.traceback:
            out.show(text, "err")
    elif first.worker.code == options.RESTART_CODE:
        out.note(
            f"{first.worker.name} ended with {how}: it has saved its state and asks to "
            "be started again."
        )
    else:
        out.note(f"{first.worker.name} failed first, with {how} and no traceback.")
    _tell_each(others, out)


def _tell_each(
    failures: Sequence[group.WorkerFailure], out: output.WorkerOutput
) -> None:
    for failure in failures:
        after = "was stopped" if failure.worker.was_stopped else "followed"
        how = group.describe_end(failure.worker)
        out.note(f"{failure.worker.name} {after}, with {how}.")
        for line in failure.worker.release():
            out.show_line(line)
