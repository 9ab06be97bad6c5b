"""Opens a checkpoint to restore it, the same version on all workers."""

from __future__ import annotations

import pathlib

from unisono._src.foundation import errors
from unisono._src.saving.checkpoint import restore_values, worker_meeting
from unisono._src.saving.format import manifest, one_version


def open_same(
    meeting: worker_meeting.Meeting, path: pathlib.Path | None
) -> tuple[one_version.Version, manifest.Manifest] | None:
    """Opens and verifies a checkpoint, the same version on all workers.

    Args:
        meeting: the meeting of the workers.
        path: the path of the checkpoint; None to agree on restoring nothing.

    Returns:
        The open version, which the caller closes, and its manifest; None for no path.

    Raises:
        WorkerMismatchError: the workers restore different checkpoints.
        DataLossError: a file is damaged.
        NotFoundError: there is no such checkpoint.
    """
    for is_last in (False, False, True):
        opened = path and one_version.open_verified(path, restore_values.read_usable)
        try:
            _check_same(meeting, path, opened[1] if opened else None)
            return opened or None
        except BaseException as error:
            if opened:
                opened[0].close()
            # Some workers may have opened it before it was replaced, and some after
            # that. All of them get this error, and all open it again.
            if is_last or not isinstance(error, errors.WorkerMismatchError):
                raise
    raise AssertionError("Unreachable: the last round returns or raises.")


def _check_same(
    meeting: worker_meeting.Meeting,
    path: pathlib.Path | None,
    found: manifest.Manifest | None,
) -> None:
    """Raises unless all workers restore the same checkpoint, or all restore nothing."""
    mark = "nothing" if found is None else f"{path} ({found.digest[:16]})"
    own = "nothing" if found is None else found.digest
    meeting.check_same(
        own,
        mark,
        "The workers restore different checkpoints. Keep checkpoints in a directory "
        "that all workers can see, and give all the same one.",
    )
