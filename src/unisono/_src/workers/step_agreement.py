"""Has workers agree on a step before they take it, where it was not to be expected.

Workers that run programs with other payloads at the same time exchange wrong numbers,
and Gloo aborts a worker that gets a longer message than it expects. To agree on each
step before it is taken would take longer than many steps do.

But workers with the same past have the same forecast. If two of them differ in a step,
then at most one of them does what both have expected. So it is enough that a worker
which does something else first waits for the others: the collective of the one that
went ahead cannot end without the one that waits, and no number of it is ever seen. See
docs/decisions/0028.
"""

from __future__ import annotations

import contextlib
import time
from typing import final

from unisono._src.workers.coordination_client import CoordinationClient
from unisono._src.workers.peers import Peers
from unisono._src.workers.step_history import StepHistory
from unisono._src.workers.worker_records import OwnRecord

_PLACE = "unisono/guard/step"
# After each wait of this length a worker looks why another one does not come.
_LOOK_MILLISECONDS = 250
# A step is foretold from so many before it, or from one where these are new. Longer
# rounds of different steps are foretold but for their turns.
_PAST = 8
# The memory of a program that takes ever new steps begins anew at this size.
_LARGEST = 4096


@final
class _PointInProgram:
    """A point in programs with the same last steps, and what came next the last time.

    The places that follow are kept here, too: to look one up by all its steps would
    take longer than everything else that a step costs.
    """

    __slots__ = ("followed", "next", "past")

    def __init__(self, past: tuple[str, ...]) -> None:
        self.past = past
        self.followed: str | None = None
        self.next: dict[str, _PointInProgram] = {}


@final
class StepForecast:
    """What has followed in the past, in a form that is the same on all workers."""

    def __init__(self) -> None:
        self._forget()
        self._place = self._find(())
        # The newest step; it may still be taken back.
        self._newest: str | None = None

    def expects(self, kind: str) -> bool:
        """Whether a step was to be expected; remembers it.

        Args:
            kind: what the step is; steps that may have other payloads differ in it.
        """
        if self._newest is not None:
            self._learn(self._newest)
        self._newest = kind
        followed = self._place.followed
        if followed is None and self._place.past:
            followed = self._followed.get(self._place.past[-1])
        return followed == kind

    def take_back(self) -> None:
        """Forgets the newest step, which was not taken."""
        self._newest = None

    def _learn(self, kind: str) -> None:
        place = self._place
        place.followed = kind
        if place.past:
            self._followed[place.past[-1]] = kind
        self._place = place.next.get(kind) or self._find((*place.past, kind)[-_PAST:])
        place.next[kind] = self._place

    def _find(self, past: tuple[str, ...]) -> _PointInProgram:
        if len(self._places) >= _LARGEST:
            self._forget()
        return self._places.setdefault(past, _PointInProgram(past))

    def _forget(self) -> None:
        self._places: dict[tuple[str, ...], _PointInProgram] = {}
        # What came next after a step, whatever was before it.
        self._followed: dict[str, str] = {}


@final
class StepAgreement:
    """Meetings of the workers in the coordination service, before a step.

    Args:
        client: JAX's client of the coordination service.
        own: the record of this worker.
        peers: the other workers.
        stall_seconds: how long to wait for them.
    """

    def __init__(
        self,
        client: CoordinationClient,
        own: OwnRecord,
        peers: Peers,
        stall_seconds: float,
    ) -> None:
        self._client = client
        self._own = own
        self._peers = peers
        self._stall = stall_seconds
        # The key that told the others that this worker was at the last meeting.
        self._last = ""

    def agree(self, history: StepHistory) -> None:
        """Waits until all workers are about to take the step that this one is in.

        In the first step the workers connect to each other, too; JAX would wait long
        for one that is gone.

        Raises:
            WorkerError: a worker is lost, differs, or does not come.
        """
        # The mark tells the step and all before it, so workers that differ do not meet
        # here, and their records show how they differ.
        place = f"{_PLACE}/{history.step}/{history.mark}/"
        own = f"{place}{self._own.worker}"
        self._client.key_value_set(own, "here", allow_overwrite=True)
        until = time.monotonic() + self._stall
        for worker in self._peers.numbers:
            self._wait_for(f"{place}{worker}", worker, until)
        # All have come to this place, so all have left the last one, unless it is the
        # same: this worker may have taken the step back.
        if self._last not in ("", own):
            with contextlib.suppress(Exception):
                self._client.key_value_delete(self._last)
        self._last = own

    def _wait_for(self, key: str, worker: int, until: float) -> None:
        """Waits for a worker's key; raises if the worker is lost or does not come."""
        # The waits are short, so that a verdict of the thread is raised soon.
        while True:
            try:
                self._client.blocking_key_value_get(key, _LOOK_MILLISECONDS)
                return
            except Exception:
                with contextlib.suppress(Exception):
                    self._peers.exchange()
                found = self._peers.explain_absence(worker)
                if found is None and time.monotonic() > until:
                    found = self._peers.stalled_error(worker)
                if found is not None:
                    raise self._own.notice(found) from None
