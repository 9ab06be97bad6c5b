"""Writes a checkpoint of which each worker has parts, in a directory that all share.

The chief makes a hidden directory, and each worker looks for it before anything is
written. Then all write, each to a database of its own; the chief merges them, and makes
the checkpoint visible. See docs/decisions/0039.
"""

from __future__ import annotations

import json
import pathlib
import secrets
from collections.abc import Callable
from typing import final

from unisono._src.foundation import errors, row_files
from unisono._src.saving.checkpoint import snapshot, worker_meeting
from unisono._src.saving.checkpoint.snapshot import Snapshot
from unisono._src.saving.format import (
    checkpoint_directory,
    checksummed_files,
    manifest,
)

# In the hidden directory, until all workers have seen it.
_PROBE = "probe"


def write(
    taken: Snapshot,
    target: pathlib.Path,
    is_step: bool,
    meeting: worker_meeting.Meeting,
    then: Callable[[], None],
) -> None:
    """Writes a snapshot together with all other workers.

    Args:
        taken: the state to write.
        target: the path of the checkpoint.
        is_step: whether the checkpoint can be the latest of its directory.
        meeting: the meeting of the workers that save; it ends here.
        then: called by the chief when the checkpoint is safe on the disk.

    Raises:
        SaveError: a worker could not write, or does not see the directory; nothing is
            saved.
    """
    kind = _ChiefWriting if worker_meeting.is_writer() else _PartWriting
    try:
        with meeting.share_failure():
            try:
                kind(taken, target, meeting).run(is_step, then)
            except (errors.SaveError, errors.WorkerError):
                raise
            except Exception as error:
                raise snapshot.to_save_error(target, error) from error
        # The others wait here for the chief.
        meeting.finish()
    except errors.WorkerFailedError as error:
        raise errors.SaveError(f"Nothing was saved. {error}") from error
    finally:
        taken.held.release()


@final
class _PartWriting:
    """What a worker does that is not the chief.

    Args:
        taken: the state to write.
        target: the path of the checkpoint.
        meeting: the meeting of the workers.
    """

    def __init__(
        self, taken: Snapshot, target: pathlib.Path, meeting: worker_meeting.Meeting
    ) -> None:
        self._taken, self._target, self._meeting = taken, target, meeting

    def run(self, is_step: bool, then: Callable[[], None]) -> None:
        """Writes the parts of this worker, and waits for the chief."""
        del is_step, then  # The chief's.
        name = self._meeting.broadcast_from_chief("")
        directory = self._target.parent / name
        _check_shared(directory, self._target, self._meeting)
        _write_parts(directory, self._taken, self._meeting)


@final
class _ChiefWriting:
    """What the chief does; takes the same as `_PartWriting`."""

    def __init__(
        self, taken: Snapshot, target: pathlib.Path, meeting: worker_meeting.Meeting
    ) -> None:
        self._taken, self._target, self._meeting = taken, target, meeting

    def run(self, is_step: bool, then: Callable[[], None]) -> None:
        """Writes what all workers have alike and the own parts, and joins all."""
        with snapshot.stage(self._target, is_step) as staging:
            directory = staging.directory
            (directory / manifest.ARRAYS).mkdir()
            (directory / _PROBE).write_text(directory.name)
            self._meeting.broadcast_from_chief(directory.name)
            _check_shared(directory, self._target, self._meeting)
            (directory / _PROBE).unlink()
            header = checkpoint_directory.new_header(self._target, is_step)
            snapshot.write_arrays(directory, self._taken)
            known = _write_parts(directory, self._taken, self._meeting)
            folders = sorted({name.split("/")[1] for name in known})
            row_files.finish(directory / manifest.ARRAYS, folders, {})
            snapshot.seal(directory, self._taken, header, known)
        then()


def _check_shared(
    directory: pathlib.Path, target: pathlib.Path, meeting: worker_meeting.Meeting
) -> None:
    """Raises unless all workers see the hidden directory of the chief.

    Raises:
        SaveError: a worker does not.
    """
    try:
        is_seen = (directory / _PROBE).read_text() == directory.name
    except OSError:
        is_seen = False
    told = meeting.gather("" if is_seen else str(target), worker_meeting.FILES_SECONDS)
    blind = [f"worker {i} looked for {path}" for i, path in enumerate(told) if path]
    if blind:
        raise errors.SaveError(
            f"Worker 0 saves {meeting.details[0]}, and {'; '.join(blind)}, and found "
            "another directory there, or none. Of variables that are split over the "
            "workers each worker writes its part. Give all of them one path, in a "
            "directory that they share. Nothing was saved."
        )


def _write_parts(
    directory: pathlib.Path, taken: Snapshot, meeting: worker_meeting.Meeting
) -> dict[str, manifest.File]:
    """Writes the parts of this worker, and returns the checksums of all workers' files.

    Each worker reads its own files, so that the chief need not read all.
    """
    # A random part in the name: a worker's folder of an earlier attempt may be there.
    folder = f"w{meeting.index}-{secrets.token_hex(4)}"
    where = directory / manifest.ARRAYS / folder
    for name, array in taken.find_parts().items():
        array.write(where, name)
    found: dict[str, manifest.File] = {}
    if where.is_dir():
        checksummed_files.flush(where)
        found = checksummed_files.checksums(where)
    own = {
        f"{manifest.ARRAYS}/{folder}/{k}": [f.size, f.crc32] for k, f in found.items()
    }
    told = meeting.gather(json.dumps(own), worker_meeting.FILES_SECONDS)
    every: dict[str, manifest.File] = {}
    for text in told:
        every |= {
            name: manifest.File(*sizes) for name, sizes in json.loads(text).items()
        }
    return every
