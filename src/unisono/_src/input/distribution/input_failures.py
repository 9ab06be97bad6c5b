"""The note with which a worker tells the others that reading its input has failed."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from unisono._src.foundation import errors

# The first character of such a note; no JSON begins with it.
_FAILED = "!"
# Characters of a traceback that are sent to the others; its end says what went wrong.
_LARGEST_REPORT = 4000


def report() -> str:
    """Returns the note about the exception that is being handled."""
    return _FAILED + traceback.format_exc()[-_LARGEST_REPORT:]


def check(told: Sequence[str]) -> None:
    """Raises if a worker has told that it failed.

    Args:
        told: the notes of all workers.

    Raises:
        WorkerFailedError: with the report of that worker.
    """
    for worker, note in enumerate(told):
        if note.startswith(_FAILED):
            raise errors.WorkerFailedError(
                f"Worker {worker} failed while it read its input:\n{note[1:]}", worker
            )
