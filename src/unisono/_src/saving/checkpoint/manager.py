"""`CheckpointManager`: the newest few checkpoints of a run."""

from __future__ import annotations

import json
import os
import pathlib
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from unisono._src.foundation import errors
from unisono._src.saving.checkpoint import checkpoint as checkpoints
from unisono._src.saving.checkpoint import snapshot, worker_meeting
from unisono._src.saving.checkpoint.checkpoint import Checkpoint, CheckpointOptions
from unisono._src.saving.format import checkpoint_directory, checksummed_files, manifest

_KEPT_FILE = "checkpoint.json"
_HOUR_NANOSECONDS = 3600 * 10**9


class CheckpointManager:
    """Saves to a directory and keeps the newest few.

    With several workers every one makes a manager and calls `save` and
    `restore_or_initialize`; the chief writes and removes. All must see the directory to
    restore from it. A worker that may not write there can be given a directory of its
    own to save to, in which nothing is kept.

    Args:
        checkpoint: what to save.
        directory: where; one manager per directory.
        max_to_keep: how many to keep; None keeps all.
        keep_checkpoint_every_n_hours: of those that would be removed, keep one for
            good whenever this much time lies between it and the last one kept.
        checkpoint_name: the checkpoints are called ``name-number``.
        step_counter: a variable or number that counts steps.
        checkpoint_interval: save only when this many steps have passed since the last
            save.
        init_fn: called by `restore_or_initialize` when there is no checkpoint.
        last_checkpoint_step: the step of the last save.

    >>> import tempfile, unisono
    >>> checkpoint = Checkpoint(v=unisono.Variable(1.0))
    >>> manager = CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=2)
    >>> for _ in range(3):
    ...     path = manager.save()
    >>> [path.rpartition("/")[2] for path in manager.checkpoints]
    ['ckpt-2', 'ckpt-3']
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: str | os.PathLike[str],
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
        step_counter: Any = None,
        checkpoint_interval: int | None = None,
        init_fn: Callable[[], Any] | None = None,
        last_checkpoint_step: int | None = None,
    ) -> None:
        if max_to_keep is not None and max_to_keep <= 0:
            raise ValueError(
                "Expected a positive integer or `None` for `max_to_keep`, got "
                f"{max_to_keep}."
            )
        if checkpoint_interval is not None and step_counter is None:
            raise ValueError(
                "`step_counter` should be passed if `checkpoint_interval` is not None."
            )
        if not checkpoint_name or os.sep in checkpoint_name:
            raise ValueError(
                f"Expected a name for the checkpoints, received {checkpoint_name!r}."
            )
        self._checkpoint = checkpoint
        self._directory = os.fspath(directory)
        self._most = max_to_keep
        self._hours = keep_checkpoint_every_n_hours
        self._name = checkpoint_name
        self._steps = step_counter
        self._interval = checkpoint_interval
        self._init_fn = init_fn
        self._last_step = last_checkpoint_step

    @property
    def directory(self) -> str:
        """Where the checkpoints are."""
        return self._directory

    @property
    def checkpoint(self) -> Checkpoint:
        """What is saved."""
        return self._checkpoint

    @property
    def checkpoint_interval(self) -> int | None:
        """How many steps lie between saves."""
        return self._interval

    @property
    def checkpoints(self) -> list[str]:
        """Paths of the checkpoints that are there, oldest first.

        Those kept for good are not among them.
        """
        kept = self._read_kept()["paths"]
        return [self._join(p) for p, _ in self._list_own() if p.name not in kept]

    @property
    def latest_checkpoint(self) -> str | None:
        """The newest checkpoint all of whose files are whole, or None.

        Damaged ones are passed over with a warning that names the file.
        """
        found = checkpoint_directory.find_latest(self._absolute, self._is_ours)
        return None if found is None else self._join(found)

    @property
    def _absolute(self) -> pathlib.Path:
        return snapshot.absolute_path(self._directory)

    def _join(self, path: pathlib.Path) -> str:
        return os.path.join(self._directory, path.name)

    def _is_ours(self, path: pathlib.Path) -> bool:
        return re.fullmatch(re.escape(self._name) + r"-\d+", path.name) is not None

    def _list_own(self) -> list[tuple[pathlib.Path, manifest.Header]]:
        return [
            x for x in checkpoint_directory.steps(self._absolute) if self._is_ours(x[0])
        ]

    # Saving.

    def save(
        self,
        checkpoint_number: Any = None,
        check_interval: bool = True,
        options: CheckpointOptions | None = None,
    ) -> str | None:
        """Save, then remove what is too old.

        Args:
            checkpoint_number: the number in the name; default `save_counter`.
            check_interval: whether to save only if `checkpoint_interval` steps passed.
            options: how to save.

        Returns:
            The path of the new checkpoint, or None if it is not yet time.

        Raises:
            SaveError: it could not be written; older checkpoints are untouched.
        """
        step = None if self._steps is None else int(np.asarray(self._steps))
        if check_interval and not self._is_time(step):
            return None

        def path_of(count: int) -> str:
            number = count if checkpoint_number is None else int(checkpoint_number)
            return os.path.join(self._directory, f"{self._name}-{number}")

        path = self._checkpoint._save_numbered(
            path_of, options or checkpoints.DEFAULT, then=self._tidy
        )
        self._last_step = step
        return path

    def _is_time(self, step: int | None) -> bool:
        if self._interval is None or self._last_step is None or step is None:
            return True
        return step >= self._last_step + self._interval

    def sync(self) -> None:
        """Wait for a background save to end.

        Raises:
            SaveError: the background save failed.
            TimeoutError: it has not ended in time.
        """
        self._checkpoint.sync()

    def restore_or_initialize(self) -> str | None:
        """Restore the newest checkpoint that is whole, or call `init_fn`.

        Returns:
            The path of the checkpoint, None if there is none.

        Raises:
            DataLossError: there are checkpoints, and all of them are damaged.
        """
        found = self._agree_on_latest()
        if found is None:
            self._check_nothing_there()
            if self._init_fn is not None:
                self._init_fn()
            return None
        self._checkpoint.restore(found)
        if self._steps is not None:
            self._last_step = int(np.asarray(self._steps))
        return found

    def _agree_on_latest(self) -> str | None:
        """The latest checkpoint that the chief sees; the others take the same."""
        meeting = worker_meeting.Meeting("a look for the latest checkpoint")
        with meeting.telling():
            own = self.latest_checkpoint if worker_meeting.is_writer() else None
        name = meeting.from_chief(os.path.basename(own or ""))
        meeting.end()
        return os.path.join(self._directory, name) if name else None

    def _check_nothing_there(self) -> None:
        there = self._absolute.iterdir() if self._absolute.is_dir() else ()
        bad = [p.name for p in there if self._is_ours(p) and p.is_dir()]
        if any((self._absolute / name / manifest.NAME).exists() for name in bad):
            raise errors.DataLossError(
                f"None of the checkpoints {sorted(bad)} in {self._directory} is whole. "
                "Move them away to begin anew."
            )

    # Retention.

    def _tidy(self) -> None:
        """Remove the oldest; the newest is safe by now. Only the chief does this."""
        try:
            if self._most is not None:
                self._remove_old(self._most)
        except OSError as error:
            # The new checkpoint is there; too many old ones are no loss.
            warnings.warn(
                f"Old checkpoints in {self._directory} could not be removed: {error}.",
                stacklevel=2,
            )

    def _remove_old(self, most: int) -> None:
        kept = self._read_kept()
        if self._hours and not (self._absolute / _KEPT_FILE).exists():
            self._write_kept(kept)
        found = [(p, h) for p, h in self._list_own() if p.name not in kept["paths"]]
        for path, header in found[:-most]:
            if (
                self._hours
                and header.saved_at - self._hours * _HOUR_NANOSECONDS >= kept["time"]
            ):
                kept = {"time": header.saved_at, "paths": [*kept["paths"], path.name]}
                self._write_kept(kept)
            else:
                checkpoint_directory.remove(path)

    def _read_kept(self) -> dict[str, Any]:
        """Which checkpoints are kept for good, and when the last of them was saved."""
        try:
            kept = json.loads((self._absolute / _KEPT_FILE).read_text("utf-8"))
            return {"time": int(kept["time"]), "paths": [str(p) for p in kept["paths"]]}
        except (OSError, ValueError, KeyError, TypeError):
            # Time counts from the first checkpoint of the directory.
            oldest = [h.saved_at for _, h in self._list_own()[:1]]
            return {"time": oldest[0] if oldest else 0, "paths": []}

    def _write_kept(self, kept: dict[str, Any]) -> None:
        path = self._absolute / _KEPT_FILE
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(kept), "utf-8")
        checksummed_files.flush_one(fresh)
        os.replace(fresh, path)
        checksummed_files.flush_one(self._absolute)
