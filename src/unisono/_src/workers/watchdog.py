"""The guard of this process, and what the rest of the library asks of it.

In a process that belongs to no group of workers these functions do nothing.
"""

from __future__ import annotations

import os
from typing import NoReturn, final

import jax

from unisono._src.foundation import errors
from unisono._src.machines.topology import Topology
from unisono._src.workers.step_history import StepLedger
from unisono._src.workers.worker_guard import Guard


@final
class _CurrentGuard:
    """The guard of this process, if it belongs to a group."""

    guard: Guard | None = None


CURRENT = _CurrentGuard()


def _abandon_guard() -> None:
    """Ends watching in a forked child."""
    guard, CURRENT.guard = CURRENT.guard, None
    if guard is not None:
        guard.abandon()


if hasattr(os, "register_at_fork"):
    # A forked child is no worker: neither its end nor its exceptions are the worker's.
    os.register_at_fork(after_in_child=_abandon_guard)


def enter(
    label: object, is_seen: bool = False, ledger: StepLedger | None = None
) -> None:
    """Notes that this worker goes into a step; see `Guard.enter`."""
    if CURRENT.guard is not None:
        CURRENT.guard.enter(label, is_seen, ledger)


def find_ledger(topology: Topology | None) -> StepLedger | None:
    """Returns the ledger of the steps on some devices; None without a guard."""
    if CURRENT.guard is None or topology is None:
        return None
    return CURRENT.guard.steps.find_ledger(topology)


def check_marks(wait: bool = False) -> None:
    """Raises if workers have differed in a step that is done; see `Guard.check_marks`.

    Args:
        wait: whether to wait for the steps that are not done yet.
    """
    if CURRENT.guard is not None:
        CURRENT.guard.check_marks(wait)


def leave() -> None:
    """Takes back an `enter`; see `Guard.leave`."""
    if CURRENT.guard is not None:
        CURRENT.guard.leave()


def publish() -> None:
    """Publishes what this worker has done; see `OwnRecord.publish`."""
    if CURRENT.guard is not None:
        CURRENT.guard.own.try_publish()


def compare() -> None:
    """Raises unless all workers have done the same; see `Guard.compare`."""
    if CURRENT.guard is not None:
        CURRENT.guard.compare()


def count_steps() -> int:
    """Returns how many steps this worker has taken that all workers must take."""
    return 0 if CURRENT.guard is None else CURRENT.guard.step


def patience() -> float:
    """Returns how many seconds to wait for a worker that is behind the others."""
    return 30.0 if CURRENT.guard is None else CURRENT.guard.peers.limits.stall


def watch(values: object) -> None:
    """Notes the newest results of a step; see `StepResults.newest`."""
    if CURRENT.guard is not None:
        CURRENT.guard.results.newest = values


def wait_for_result(array: jax.Array) -> None:
    """Waits for an array where workers watch each other; else leaves that to JAX."""
    if CURRENT.guard is not None:
        CURRENT.guard.results.wait_for(array)


def explain_absence(worker: int) -> errors.WorkerError | None:
    """Returns why a worker that is waited for does not come; None if not known."""
    return (
        None if CURRENT.guard is None else CURRENT.guard.peers.explain_absence(worker)
    )


def notice(error: errors.WorkerError) -> errors.WorkerError:
    """Returns an error that is about to be raised; see `OwnRecord.notice`."""
    return error if CURRENT.guard is None else CURRENT.guard.own.notice(error)


def explain(error: BaseException) -> BaseException:
    """Returns the error of the worker that caused this one; see `Peers.explain`."""
    return error if CURRENT.guard is None else CURRENT.guard.peers.explain(error)


def raise_explained(error: BaseException) -> NoReturn:
    """Raises the result of `explain` for an error, with the error as its cause."""
    explained = explain(error)
    if explained is error:
        raise error
    raise explained from error
