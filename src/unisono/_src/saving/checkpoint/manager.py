"""`CheckpointManager`: keeps the newest checkpoints of a training run."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import secrets
import warnings
from collections.abc import Callable
from typing import Any, SupportsIndex

import numpy as np

from unisono._src.foundation import errors, whole_numbers
from unisono._src.saving.checkpoint import (
    checkpoint as checkpoints,
    restore_values,
    snapshot,
    worker_meeting,
)
from unisono._src.saving.checkpoint.checkpoint import Checkpoint, CheckpointOptions
from unisono._src.saving.format import checkpoint_directory, checksummed_files, manifest
from unisono._src.state.variables import Variable

# Lists the checkpoints that `keep_checkpoint_every_n_hours` keeps forever.
_KEPT_FILE = "checkpoint.json"
_HOUR_NANOSECONDS = 3600 * 10**9


class CheckpointManager:
    """Saves checkpoints in a directory and removes all but the newest.

    With several workers, every worker must create a manager and call `save` and
    `restore_or_initialize`; the chief writes and removes checkpoints. To restore, all
    workers must see the directory. A worker that must not write there can pass a
    directory of its own, which stays empty.

    If the directory already has checkpoints with another name when you create the
    manager, one of them can be the latest, as in TensorFlow. They are never removed.

    Args:
        checkpoint: the checkpoint to save.
        directory: the directory; only one manager may use it.
        max_to_keep: how many checkpoints to keep; None keeps all.
        keep_checkpoint_every_n_hours: keep a checkpoint forever, instead of removing
            it, if it was saved at least this many hours after the last one that was
            kept forever.
        checkpoint_name: the name of the checkpoints, which are called ``name-number``.
        step_counter: a variable or number that counts steps.
        checkpoint_interval: save only when this many steps have passed since the last
            save.
        init_fn: called by `restore_or_initialize` when there is no checkpoint.
        last_checkpoint_step: the step of the last save.

    Raises:
        TypeError: a number of checkpoints or steps is not an integer.
        ValueError: `max_to_keep` is not positive, `checkpoint_interval` is given
            without `step_counter`, or `checkpoint_name` has a path separator.

    >>> import tempfile, unisono
    >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable(1.0))
    >>> manager = unisono.train.CheckpointManager(checkpoint, tempfile.mkdtemp(), 2)
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
        step_counter: Variable | None = None,
        checkpoint_interval: int | None = None,
        init_fn: Callable[[], Any] | None = None,
        last_checkpoint_step: int | None = None,
    ) -> None:
        if max_to_keep is not None:
            max_to_keep = whole_numbers.integer(max_to_keep, "max_to_keep")
        if max_to_keep is not None and max_to_keep <= 0:
            raise ValueError(
                "Expected a positive integer or `None` for `max_to_keep`, got "
                f"{max_to_keep}."
            )
        if checkpoint_interval is not None and step_counter is None:
            raise ValueError(
                "`step_counter` should be passed if `checkpoint_interval` is not None."
            )
        if checkpoint_interval is not None:
            checkpoint_interval = whole_numbers.integer(
                checkpoint_interval, "checkpoint_interval"
            )
        if (
            not isinstance(checkpoint_name, str)
            or not checkpoint_name
            or os.sep in checkpoint_name
        ):
            raise ValueError(
                "Expected a name without a path separator for `checkpoint_name`, "
                f"such as 'ckpt', got {checkpoint_name!r}."
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
        # What is there now, of whatever name. Later ones of another name are not seen:
        # another manager may save them, such as that of the best checkpoints.
        self._found = frozenset[str]()
        with contextlib.suppress(OSError):
            self._found = frozenset(os.listdir(self._absolute_path))

    def __repr__(self) -> str:
        return f"<CheckpointManager of {self._directory!r}>"

    @property
    def directory(self) -> str:
        """The directory of the checkpoints."""
        return self._directory

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint that the manager saves and restores."""
        return self._checkpoint

    @property
    def checkpoint_interval(self) -> int | None:
        """The minimum number of steps between two saves, or None."""
        return self._interval

    @property
    def checkpoints(self) -> list[str]:
        """The paths of the checkpoints in the directory, oldest first.

        Checkpoints that `keep_checkpoint_every_n_hours` keeps forever are left out.

        >>> import tempfile, unisono
        >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable(1.0))
        >>> directory = tempfile.mkdtemp()
        >>> manager = unisono.train.CheckpointManager(checkpoint, directory, 3)
        >>> paths = [manager.save(checkpoint_number=n) for n in (10, 20)]
        >>> manager.checkpoints == paths
        True
        """
        kept = self._read_kept()["paths"]
        found = checkpoint_directory.list_steps(self._absolute_path)
        return [
            self._join(p) for p, _ in found if self._is_seen(p) and p.name not in kept
        ]

    @property
    def latest_checkpoint(self) -> str | None:
        """The path of the newest undamaged checkpoint, or None.

        A damaged checkpoint is skipped, with a warning that names the damaged file.

        >>> import tempfile, unisono
        >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable(1.0))
        >>> directory = tempfile.mkdtemp()
        >>> manager = unisono.train.CheckpointManager(checkpoint, directory, 3)
        >>> manager.latest_checkpoint is None
        True
        >>> manager.save() == manager.latest_checkpoint
        True
        """
        found = checkpoint_directory.find_latest(
            self._absolute_path, self._is_seen, restore_values.check_keys
        )
        return None if found is None else self._join(found)

    @property
    def _absolute_path(self) -> pathlib.Path:
        return snapshot.absolute_path(self._directory)

    def _join(self, path: pathlib.Path) -> str:
        return os.path.join(self._directory, path.name)

    def _is_ours(self, path: pathlib.Path) -> bool:
        return re.fullmatch(re.escape(self._name) + r"-\d+", path.name) is not None

    def _is_seen(self, path: pathlib.Path) -> bool:
        return path.name in self._found or self._is_ours(path)

    def _list_own(self) -> list[tuple[pathlib.Path, manifest.Header]]:
        return [
            x
            for x in checkpoint_directory.list_steps(self._absolute_path)
            if self._is_ours(x[0])
        ]

    # Saving.

    def save(
        self,
        checkpoint_number: SupportsIndex | Variable | None = None,
        check_interval: bool = True,
        options: CheckpointOptions | None = None,
    ) -> str | None:
        """Saves a checkpoint, then removes those that are too old.

        With several workers, every worker must call it.

        Args:
            checkpoint_number: the number in the name; by default `save_counter`.
            check_interval: whether to save only if `checkpoint_interval` steps have
                passed since the last save.
            options: how to save.

        Returns:
            The path of the new checkpoint, or None if too few steps have passed.

        Raises:
            SaveError: the checkpoint could not be written, or another job saves under
                the same name in this directory; older checkpoints are unchanged.
            WorkerError: not all workers save, or they save different objects.

        >>> import tempfile, unisono
        >>> step = unisono.Variable(0)
        >>> manager = unisono.train.CheckpointManager(
        ...     unisono.train.Checkpoint(step=step),
        ...     tempfile.mkdtemp(),
        ...     max_to_keep=3,
        ...     step_counter=step,
        ...     checkpoint_interval=10,
        ... )
        >>> saved = [
        ...     manager.save() for _ in range(21) if step.assign_add(1) is not None
        ... ]
        >>> [n for n, path in enumerate(saved, 1) if path is not None]
        [1, 11, 21]
        """
        step = None if self._steps is None else int(np.asarray(self._steps))
        if check_interval and not self._is_time(step):
            return None

        def path_of(count: int) -> str:
            given = checkpoint_number
            number = count if given is None else int(np.asarray(given))
            return os.path.join(self._directory, f"{self._name}-{number}")

        # Private, because programs name the public attributes of a checkpoint.
        path = self._checkpoint._save_numbered(  # noqa: SLF001
            path_of, options or checkpoints.DEFAULT, then=self._tidy
        )
        self._last_step = step
        return path

    def _is_time(self, step: int | None) -> bool:
        if self._interval is None or self._last_step is None or step is None:
            return True
        return step >= self._last_step + self._interval

    def sync(self) -> None:
        """Waits until a background save has ended.

        Raises:
            SaveError: the background save failed.
            TimeoutError: it has not ended within ten minutes.

        >>> import tempfile, unisono
        >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable(1.0))
        >>> directory = tempfile.mkdtemp()
        >>> manager = unisono.train.CheckpointManager(checkpoint, directory, 3)
        >>> options = unisono.train.CheckpointOptions(enable_async=True)
        >>> path = manager.save(options=options)
        >>> manager.sync()
        >>> manager.checkpoints == [path]
        True
        """
        self._checkpoint.sync()

    def restore_or_initialize(self) -> str | None:
        """Restores the newest undamaged checkpoint, or calls `init_fn`.

        With several workers, every worker must call it.

        Returns:
            The path of the checkpoint, or None if no checkpoint exists.

        Raises:
            DataLossError: all checkpoints are damaged.
            ValueError: as for `Checkpoint.restore`.
            InvalidArgumentError: as for `Checkpoint.restore`.
            WorkerError: not all workers restore, or they see different checkpoints.

        >>> import tempfile, unisono
        >>> v = unisono.Variable(1.0)
        >>> checkpoint, directory = unisono.train.Checkpoint(v=v), tempfile.mkdtemp()
        >>> manager = unisono.train.CheckpointManager(checkpoint, directory, 3)
        >>> manager.restore_or_initialize() is None
        True
        >>> path, _ = manager.save(), v.assign(7.0)
        >>> (manager.restore_or_initialize() == path, float(v.numpy()))
        (True, 1.0)
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
        """Returns the latest checkpoint that the chief sees.

        Files may become visible to workers at different moments, so that each could
        find another one.
        """
        # The name alone: workers may see the directory under different paths.
        name = worker_meeting.ask_chief(
            "a look for the latest checkpoint",
            lambda: os.path.basename(self.latest_checkpoint or ""),
        )
        return os.path.join(self._directory, name) if name else None

    def _check_nothing_there(self) -> None:
        there = self._absolute_path.iterdir() if self._absolute_path.is_dir() else ()
        bad = [p.name for p in there if self._is_seen(p) and _was_saved(p)]
        if bad:
            raise errors.DataLossError(
                f"None of the checkpoints {sorted(bad)} in {self._directory} is "
                "undamaged. Move them away to begin anew."
            )

    # Retention.

    def _tidy(self) -> None:
        """Removes checkpoints that are too old; the chief calls it after a save."""
        try:
            if self._most is not None:
                self._remove_old(self._most)
        except OSError as error:
            # The new checkpoint is safe, so the save has not failed.
            warnings.warn(
                f"Old checkpoints in {self._directory} could not be removed: {error}.",
                stacklevel=2,
            )

    def _remove_old(self, most: int) -> None:
        """Removes all but the newest checkpoints, or keeps one forever if it is due."""
        kept = self._read_kept()
        # Written before anything is removed, since the time counts from the oldest
        # checkpoint, which may be removed now.
        if self._hours and not (self._absolute_path / _KEPT_FILE).exists():
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
        """Returns the names of those kept forever, and when the last was saved."""
        try:
            kept = json.loads((self._absolute_path / _KEPT_FILE).read_text("utf-8"))
            return {"time": int(kept["time"]), "paths": [str(p) for p in kept["paths"]]}
        except (OSError, ValueError, KeyError, TypeError):
            # None is kept so far. Hours count from the oldest checkpoint.
            oldest = [h.saved_at for _, h in self._list_own()[:1]]
            return {"time": oldest[0] if oldest else 0, "paths": []}

    def _write_kept(self, kept: dict[str, Any]) -> None:
        path = self._absolute_path / _KEPT_FILE
        # Written aside and renamed, so that a killed process leaves no half file. The
        # name is random, and the file is new: nothing is written through a link.
        fresh = path.with_name(f".{_KEPT_FILE}.{secrets.token_hex(8)}")
        try:
            with open(fresh, "x", encoding="utf-8") as file:
                file.write(json.dumps(kept))
            checksummed_files.flush_one(fresh)
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
        checksummed_files.flush_one(self._absolute_path)


def _was_saved(path: pathlib.Path) -> bool:
    """Whether a path has what `save` makes, damaged or not; `write` makes others."""
    if not re.search(r"-\d+$", path.name) or not (path / manifest.NAME).exists():
        return False
    try:
        return manifest.read_header(path).is_step
    except (errors.DataLossError, OSError):
        return True


def leave_others(manager: CheckpointManager) -> CheckpointManager:
    """Lets a manager see checkpoints of its own name only; returns it."""
    # Private, because programs see the class.
    manager._found = frozenset()  # noqa: SLF001
    return manager
