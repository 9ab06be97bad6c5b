"""Foretells the next step of a program, so that only a surprise needs a meeting.

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

from typing import final

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
