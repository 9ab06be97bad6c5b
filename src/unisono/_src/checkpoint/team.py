"""Where the processes of a job meet to save: the one seam for several workers.

Saving is collective: every worker enters, one writes the manifest and commits, all
leave when the checkpoint is visible. Each meeting has a bound, and whoever waits in
vain says who did not come.
"""

from __future__ import annotations

from typing import Protocol


class Team(Protocol):
    """The workers that save and restore together."""

    @property
    def is_writer(self) -> bool:
        """Whether this worker makes, commits and removes directories."""

    def agree(self, what: str, timeout: float) -> None:
        """Wait until every worker is about to do `what`.

        Raises:
            TimeoutError: names the workers that did not come.
        """


class Alone:
    """One process: it agrees with itself."""

    is_writer = True

    def agree(self, what: str, timeout: float) -> None:
        """Return at once."""


def current() -> Team:
    """The workers of this job."""
    return Alone()
