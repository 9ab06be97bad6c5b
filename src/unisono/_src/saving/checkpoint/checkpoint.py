"""`Checkpoint`: state that is saved and restored as one unit."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import errors
from unisono._src.foundation.options import VariableAggregation
from unisono._src.saving.checkpoint import (
    background,
    deferred_restore,
    restoring,
    snapshot,
    state_slots,
    status,
    worker_meeting,
)
from unisono._src.state import assignment
from unisono._src.state.variables import Variable

PathLike = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class CheckpointOptions:
    """How to save.

    Args:
        experimental_io_device: accepted; files are written by the host.
        experimental_enable_async_checkpoint: the same as `enable_async`.
        experimental_write_callbacks: functions called with the path, or without
            arguments, when the checkpoint is safe.
        enable_async: return as soon as the values have been looked at, and write in
            the background. An error is raised by the next `save`, `sync` or `restore`.
        wait_seconds: how long to wait for a background save before.
    """

    experimental_io_device: str | None = None
    experimental_enable_async_checkpoint: bool = False
    experimental_write_callbacks: Sequence[Callable[..., Any]] | None = None
    enable_async: bool = False
    wait_seconds: float = 600.0

    @property
    def _is_async(self) -> bool:
        return self.enable_async or self.experimental_enable_async_checkpoint

    def _call_back(self, path: str) -> None:
        for call in self.experimental_write_callbacks or ():
            try:
                takes_path = bool(inspect.signature(call).parameters)
            except ValueError:  # Some built-in functions do not say.
                takes_path = True
            call(path) if takes_path else call()


DEFAULT = CheckpointOptions()
_INTERNAL = frozenset(
    {
        "_root",
        "_save_counter",
        "_background",
        "_restoration",
        state_slots.PENDING_ATTRIBUTE,
    }
)


class Checkpoint(deferred_restore.Noticing):
    """State below some objects, saved and restored as one unit.

    Objects are variables, optimizers, metrics, dataset iterators, random generators,
    other checkpoints, objects of your own with such things in their attributes, and
    lists, tuples and dicts of them; arrays, numbers and strings count as well. Values
    are restored by name, into whatever strategy the objects live under now; what does
    not exist yet is restored when it is set as an attribute.

    Args:
        root: an object whose attributes are saved as if they were the checkpoint's.
        **kwargs: objects by name; they become attributes.

    >>> import tempfile, unisono
    >>> v = unisono.Variable([1.0, 2.0])
    >>> checkpoint = Checkpoint(v=v, epoch=3)
    >>> path = checkpoint.save(tempfile.mkdtemp() + "/ckpt")
    >>> path.endswith("/ckpt-1")
    True
    >>> _ = v.assign([0.0, 0.0])
    >>> _ = checkpoint.restore(path).assert_consumed()
    >>> v.numpy()
    array([1., 2.], dtype=float32)
    """

    _checkpoint_takes_attributes = True

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        self._root = root
        self._save_counter: Variable | None = None
        self._background = background.Background()
        self._restoration: restoring.Restoration | None = None
        for name, value in kwargs.items():
            if value is not None and not state_slots.is_state(value):
                raise ValueError(
                    f"`Checkpoint` was expecting {name} to be a trackable object: a "
                    "variable, an object that has variables or get_state and "
                    "set_state, an array, number or string, or a list or dict of "
                    f"these; got {value!r} of type {type(value).__name__}."
                )
            setattr(self, name, value)

    def _checkpoint_children(self) -> dict[str, state_slots.StateSlot]:
        found: dict[str, state_slots.StateSlot] = {}
        if self._root is not None:
            found |= state_slots.child_slots(
                self._root, state_slots.fixed_slot(self._root)
            )
        for name, value in vars(self).items():
            is_there = name not in _INTERNAL and value is not None
            if is_there and state_slots.is_state(value):
                found[name] = state_slots.attribute_slot(self, name)
        if self._save_counter is not None:
            found["save_counter"] = state_slots.fixed_slot(self._save_counter)
        return found

    @property
    def save_counter(self) -> Variable:
        """How many times `save` was called; made when it is first needed."""
        if self._save_counter is None:
            with snapshot.leave_scopes():
                self._save_counter = Variable(
                    jnp.zeros((), jnp.int32),
                    trainable=False,
                    name="save_counter",
                    aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
                )
        return self._save_counter

    # Saving.

    def save(
        self, file_prefix: PathLike, options: CheckpointOptions | None = None
    ) -> str:
        """Save under a number that grows with every save; all workers must call it.

        Several workers save together. The chief writes; give all the same path, in a
        directory that all can see, or each its own, of which the chief's is kept.

        Args:
            file_prefix: a path; the checkpoint is the directory ``prefix-number``.
            options: how to save.

        Returns:
            The path of the checkpoint, which `restore` takes.

        Raises:
            SaveError: it could not be written; older checkpoints are untouched.
            WorkerError: not all workers save, or they save different objects.
        """
        prefix = os.fspath(file_prefix)
        return self._save_numbered(
            lambda count: f"{prefix}-{count}", options or DEFAULT
        )

    def _save_numbered(
        self,
        path_of: Callable[[int], str],
        options: CheckpointOptions,
        then: Callable[[], None] | None = None,
    ) -> str:
        """Count and save; `then` runs when the checkpoint is safe."""
        path = path_of(self._count(1))
        try:
            rest = self._write(path, options, is_step=True, then=then)
        except BaseException:
            self._count(-1)
            raise
        rest()
        return path

    def _count(self, change: int) -> int:
        counter = self.save_counter
        with snapshot.leave_scopes():
            counter.assign_add(change)
            return int(np.asarray(assignment.read(counter)))

    def write(
        self, file_prefix: PathLike, options: CheckpointOptions | None = None
    ) -> str:
        """Save under exactly this path, uncounted; `latest_checkpoint` ignores it.

        Args:
            file_prefix: the path of the checkpoint, a directory.
            options: how to save.

        Returns:
            The path.

        Raises:
            SaveError: it could not be written; what was there before is untouched.
        """
        path = os.fspath(file_prefix)
        self._write(path, options or DEFAULT, is_step=False)()
        return path

    def _write(
        self,
        path: str,
        options: CheckpointOptions,
        is_step: bool,
        then: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        """Save now, or begin to in the background.

        Returns:
            What is left to do now that the checkpoint is safe; in the background it
            is done there.
        """
        self._wait(options.wait_seconds)
        target = snapshot.absolute_path(path)
        meeting = worker_meeting.Meeting("a save of a checkpoint", str(target))
        with meeting.telling():
            if self._restoration is not None:
                self._restoration.settle()
            taken = snapshot.take(self, options._is_async, meeting)
        late: list[Exception] = []

        def tidy() -> None:
            try:
                (then or (lambda: None))()
            except Exception as error:  # The checkpoint is there all the same.
                late.append(error)

        def finish() -> None:
            if late:
                raise late[0]
            options._call_back(path)

        def store() -> None:
            snapshot.store(taken, target, is_step, meeting, tidy)

        def both() -> None:
            store()
            finish()

        if not options._is_async:
            store()
            return finish
        self._background.start(both, path, options.wait_seconds)
        return lambda: None

    def _wait(self, seconds: float) -> None:
        self._background.wait(seconds)

    def sync(self) -> None:
        """Wait for a background save to end; restore what has appeared since.

        Raises:
            SaveError: the background save failed.
            TimeoutError: it has not ended in time.
        """
        self._wait(DEFAULT.wait_seconds)
        if self._restoration is not None:
            self._restoration.settle()

    # Restoring.

    def restore(
        self, save_path: PathLike | None, options: CheckpointOptions | None = None
    ) -> status.LoadStatus:
        """Restore what `save` saved; all workers must call it, with one checkpoint.

        Args:
            save_path: what `save` returned, or `latest_checkpoint`; None restores
                nothing.
            options: how to wait for a background save before.

        Returns:
            A status that can be asked whether everything found its place.

        Raises:
            NotFoundError: there is no such checkpoint.
            DataLossError: it is damaged; nothing has been restored.
            ValueError: a variable has another shape than its value; nothing has been
                restored; or each of the workers that saved had a value of its own,
                and there were more or fewer of them.
            WorkerError: not all workers restore, or they see different checkpoints.
        """
        _ = self.save_counter
        return self.read(save_path, options)

    def read(
        self, save_path: PathLike | None, options: CheckpointOptions | None = None
    ) -> status.LoadStatus:
        """Restore what `write` wrote; as `restore`, without a save counter."""
        self._wait((options or DEFAULT).wait_seconds)
        if save_path is not None and not os.fspath(save_path):
            raise errors.NotFoundError(
                "The path of the checkpoint is empty. Pass what `save` returned, or "
                "None to restore nothing."
            )
        with snapshot.leave_scopes():
            made = self._make_restoration(save_path)
        if made is None:
            return status.InitializationOnlyStatus()
        if self._restoration is not None:
            self._restoration.is_over = True
        self._restoration = made
        return status.CheckpointLoadStatus(made)

    def _make_restoration(
        self, save_path: PathLike | None
    ) -> restoring.Restoration | None:
        meeting = worker_meeting.Meeting("a restore of a checkpoint")
        with meeting.telling():
            made = None
            if save_path is None:
                restoring.check_same(meeting, None, None)
            else:
                path = snapshot.absolute_path(save_path)
                made = restoring.Restoration(path, self, meeting)
        meeting.finish()
        return made
