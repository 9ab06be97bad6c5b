"""Functions that look which checkpoints a directory has, and wait for new ones."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from typing import final

from unisono._src.saving.checkpoint import reading, snapshot
from unisono._src.saving.checkpoint.reading import PathLike
from unisono._src.saving.format import checkpoint_directory

# Seconds between two looks into the directory, as in TensorFlow.
_PAUSE = 1.0


@final
@dataclasses.dataclass(frozen=True)
class CheckpointState:
    """Which checkpoints a directory has; `get_checkpoint_state` makes one.

    Attributes:
        model_checkpoint_path: the path of the newest undamaged checkpoint.
        all_model_checkpoint_paths: the paths of all checkpoints, oldest first.
        all_model_checkpoint_timestamps: when each was saved, in seconds since 1970.
    """

    model_checkpoint_path: str
    all_model_checkpoint_paths: tuple[str, ...]
    all_model_checkpoint_timestamps: tuple[float, ...]


def get_checkpoint_state(
    checkpoint_dir: PathLike, latest_filename: str | None = None
) -> CheckpointState | None:
    """Returns which checkpoints a directory has; None if it has none that is whole.

    Args:
        checkpoint_dir: the directory.
        latest_filename: accepted, no effect; no file records which is the latest.

    >>> import tempfile, unisono
    >>> directory = tempfile.mkdtemp()
    >>> unisono.train.get_checkpoint_state(directory) is None
    True
    >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable(1.0))
    >>> paths = [checkpoint.save(directory + "/ckpt") for _ in range(2)]
    >>> state = unisono.train.get_checkpoint_state(directory)
    >>> state.model_checkpoint_path == paths[-1]
    True
    >>> list(state.all_model_checkpoint_paths) == paths
    True
    """
    latest = reading.latest_checkpoint(checkpoint_dir)
    if latest is None:
        return None
    found = checkpoint_directory.list_steps(snapshot.absolute_path(checkpoint_dir))
    return CheckpointState(
        latest,
        tuple(os.path.join(os.fspath(checkpoint_dir), p.name) for p, _ in found),
        tuple(header.saved_at / 1e9 for _, header in found),
    )


def checkpoints_iterator(
    checkpoint_dir: PathLike,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], object] | None = None,
) -> Iterator[str]:
    """Yields the latest checkpoint of a directory whenever there is a new one.

    A program that evaluates beside one that trains loops over it. Checkpoints that
    are saved and followed by others while it evaluates are left out.

    Args:
        checkpoint_dir: the directory.
        min_interval_secs: the least number of seconds between two checkpoints.
        timeout: how many seconds to wait for a new checkpoint; None to wait forever.
        timeout_fn: called without arguments after each checkpoint, and whenever
            `timeout` has passed. The loop ends if it returns something true. Without
            it, the loop ends when `timeout` has passed.

    Yields:
        The path of a checkpoint.

    >>> import tempfile, unisono
    >>> directory = tempfile.mkdtemp()
    >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable(1.0))
    >>> for path in unisono.train.checkpoints_iterator(directory, timeout=0):
    ...     print("there is none")
    >>> saved = checkpoint.save(directory + "/ckpt")
    >>> list(unisono.train.checkpoints_iterator(directory, timeout=0)) == [saved]
    True
    """
    last: str | None = None
    while True:
        found = _wait_for_new(checkpoint_dir, last, timeout)
        if found is not None:
            started, last = time.monotonic(), found
            yield found
            time.sleep(max(0.0, started + min_interval_secs - time.monotonic()))
        elif timeout_fn is None:
            return
        if timeout_fn is not None and timeout_fn():
            return


def _wait_for_new(
    directory: PathLike, last: str | None, timeout: float | None
) -> str | None:
    """Waits for another latest checkpoint; returns None if the time is over."""
    end = None if timeout is None else time.monotonic() + timeout
    looked_at = None
    while True:
        # Only what is new is read and verified: a checkpoint may be large.
        steps = checkpoint_directory.list_steps(snapshot.absolute_path(directory))
        newest = [(path, header.saved_at) for path, header in steps[-1:]]
        if newest != looked_at:
            looked_at = newest
            found = reading.latest_checkpoint(directory)
            if found not in (None, last):
                return found
        if end is not None and time.monotonic() + _PAUSE > end:
            return None
        time.sleep(_PAUSE)
