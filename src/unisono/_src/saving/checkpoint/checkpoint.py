"""`Checkpoint`: saves and restores the state of objects as one unit.

A restore returns a status, as TensorFlow's.
"""

from __future__ import annotations

import abc
import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import errors
from unisono._src.foundation.options import VariableAggregation
from unisono._src.machines import forks
from unisono._src.saving.checkpoint import (
    background,
    common_version,
    deferred_restore,
    joint_writing,
    object_graph,
    restoring,
    snapshot,
    worker_meeting,
)
from unisono._src.state import description, storage
from unisono._src.state.variables import Variable

PathLike = str | os.PathLike[str]
_NOTHING = "No checkpoint specified (save_path=None); nothing is being restored."


class LoadStatus(abc.ABC):
    """The result of `Checkpoint.restore` and `Checkpoint.read`."""

    @abc.abstractmethod
    def assert_consumed(self) -> LoadStatus:
        """Raises an error unless every value was used and every object got one.

        Raises:
            AssertionError: a value or an object is left; the message names it.
        """

    @abc.abstractmethod
    def assert_existing_objects_matched(self) -> LoadStatus:
        """Raises an error unless every object that exists now was restored.

        Raises:
            AssertionError: an object was not restored; the message names it.
        """

    @abc.abstractmethod
    def assert_nontrivial_match(self) -> LoadStatus:
        """Raises an error unless something was restored.

        Raises:
            AssertionError: nothing was restored.
        """

    @abc.abstractmethod
    def expect_partial(self) -> LoadStatus:
        """Suppresses the warning about values that were not used."""

    def initialize_or_restore(self, session: object = None) -> None:
        """Does nothing, because values are restored at once."""
        return None

    def run_restore_ops(self, session: object = None) -> None:
        """Does nothing, because values are restored at once."""
        return None


@final
class CheckpointLoadStatus(LoadStatus):
    """The status of the restore of a checkpoint.

    >>> import tempfile, unisono
    >>> v, w = unisono.Variable(1.0), unisono.Variable(2.0)
    >>> path = unisono.train.Checkpoint(v=v, w=w).write(tempfile.mkdtemp() + "/both")
    >>> status = unisono.train.Checkpoint(v=v).read(path).expect_partial()
    >>> status.assert_existing_objects_matched() is status
    True
    >>> status.assert_consumed()
    Traceback (most recent call last):
    ...
    AssertionError: Unresolved object in checkpoint (root).w: ...
    """

    def __init__(self, restoration: restoring.Restoration) -> None:
        self._restoration = restoration

    def assert_consumed(self) -> CheckpointLoadStatus:
        """Raises an error unless every value was used and every object got one."""
        self._restoration.restore_new_objects()
        left = self._restoration.find_unresolved()
        if left:
            shown = ", ".join(left[:10])
            raise AssertionError(
                f"Unresolved object in checkpoint {shown}: {len(left)} value(s) of "
                f"{self._restoration.path} found no object to go to."
            )
        return self.assert_existing_objects_matched()

    def assert_existing_objects_matched(self) -> CheckpointLoadStatus:
        """Raises an error unless every object that exists now was restored."""
        self._restoration.restore_new_objects()
        left = self._restoration.find_unmatched()
        if left:
            raise AssertionError(
                f"Found {len(left)} Python objects that were not bound to checkpointed "
                "values, likely due to changes in the Python program. Showing "
                f"{min(len(left), 10)} of {len(left)} unmatched objects: {left[:10]}"
            )
        return self

    def assert_nontrivial_match(self) -> CheckpointLoadStatus:
        """Raises an error unless something below the checkpoint was restored."""
        self._restoration.restore_new_objects()
        if not any(number != 0 for number in self._restoration.bound):
            raise AssertionError(
                "Nothing except the root object matched a checkpointed value; "
                "typically the objects have other names than those in "
                f"{self._restoration.path}."
            )
        return self

    def expect_partial(self) -> CheckpointLoadStatus:
        """Suppresses the warning about values that were not used."""
        self._restoration.is_partial_fine = True
        return self


@final
class InitializationOnlyStatus(LoadStatus):
    """The status of `restore(None)`, which restores nothing."""

    def assert_consumed(self) -> InitializationOnlyStatus:
        """Raises `AssertionError`, because nothing was restored."""
        raise AssertionError(_NOTHING)

    assert_existing_objects_matched = assert_nontrivial_match = assert_consumed

    def expect_partial(self) -> InitializationOnlyStatus:
        """Does nothing, because there are no values."""
        return self


@dataclasses.dataclass(frozen=True)
class CheckpointOptions:
    """Options of `Checkpoint.save`, `write`, `restore` and `read`.

    Args:
        experimental_io_device: accepted and ignored; the host writes the files.
        experimental_enable_async_checkpoint: the same as `enable_async`.
        experimental_write_callbacks: functions that are called, with the path or
            without arguments, when the checkpoint is safe on the disk.
        enable_async: whether `save` and `write` return as soon as they have captured
            the values, and a thread writes the files. If writing fails, the next
            `save`, `sync` or `restore` raises the error.
        wait_seconds: how many seconds to wait for an earlier save, in the background
            or in another thread.

    >>> import tempfile, unisono
    >>> written = []
    >>> options = unisono.train.CheckpointOptions(
    ...     experimental_write_callbacks=[written.append], enable_async=True
    ... )
    >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable(1.0))
    >>> path = checkpoint.save(tempfile.mkdtemp() + "/ckpt", options)
    >>> checkpoint.sync()
    >>> written == [path]
    True
    """

    experimental_io_device: str | None = None
    experimental_enable_async_checkpoint: bool = False
    experimental_write_callbacks: Sequence[Callable[..., Any]] | None = None
    enable_async: bool = False
    wait_seconds: float = 600.0


DEFAULT = CheckpointOptions()


def _is_async(options: CheckpointOptions) -> bool:
    return options.enable_async or options.experimental_enable_async_checkpoint


def _call_back(options: CheckpointOptions, path: str) -> None:
    for call in options.experimental_write_callbacks or ():
        try:
            takes_path = bool(inspect.signature(call).parameters)
        except ValueError:  # Some built-in functions have no signature.
            takes_path = True
        call(path) if takes_path else call()


def _is_same(child: object, value: object) -> bool:
    """Whether a child is an object, or what a checkpoint sees of it."""
    return child is value or getattr(child, "owner", None) is value


class Checkpoint(deferred_restore.DeferredRestoreMixin):
    """Saves and restores the state of some objects as one unit.

    The objects can be variables, optimizers, metrics, dataset iterators, random
    generators, other checkpoints, objects of your own classes with any of these in
    their attributes, and lists, tuples and dicts of them. Arrays, numbers and strings
    are saved as well. Values are restored by name, under any strategy. The value of an
    object that does not exist yet is restored when you set it as an attribute.

    Args:
        root: an object whose attributes are saved like those of the checkpoint, or a
            weak reference to it.
        **kwargs: objects by name; they become attributes of the checkpoint.

    Raises:
        ValueError: an object cannot be saved, or `root` has an attribute of the same
            name.

    >>> import tempfile, unisono
    >>> v = unisono.Variable([1.0, 2.0])
    >>> checkpoint = unisono.train.Checkpoint(v=v, epoch=3)
    >>> path = checkpoint.save(tempfile.mkdtemp() + "/ckpt")
    >>> path.endswith("/ckpt-1")
    True
    >>> _ = v.assign([0.0, 0.0])
    >>> _ = checkpoint.restore(path).assert_consumed()
    >>> v.numpy()
    array([1., 2.], dtype=float32)
    """

    _checkpoint_takes_attributes = True
    # Attributes of a checkpoint that are no state of the program; `object_graph` reads
    # the others, and the root and the counter by their names.
    _checkpoint_hidden = frozenset(
        {
            "_root",
            "_save_counter",
            "_background",
            "_restorations",
            object_graph.PENDING_ATTRIBUTE,
        }
    )

    # Methods that only this library calls begin with an underscore, because programs
    # may give their objects any other name.

    if TYPE_CHECKING:
        # The objects that were given by name, for type checkers.
        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, root: object = None, **kwargs: object) -> None:
        self._root = root
        self._save_counter: Variable | None = None
        self._background = background.BackgroundThread()
        # What was restored last, and before that what still waits for objects.
        self._restorations: list[restoring.Restoration] = []
        taken = {} if root is None else object_graph.root_slots(self)
        for name, value in kwargs.items():
            if name in taken and not _is_same(taken[name].get(), value):
                raise ValueError(
                    f"Cannot create a Checkpoint with keyword argument {name} if "
                    f"root.{name} already exists. Give it another name."
                )
            if value is not None and not object_graph.is_state(value):
                raise ValueError(
                    f"`Checkpoint` was expecting {name} to be a trackable object: a "
                    "variable, an object that has variables or get_state and "
                    "set_state, an array, number or string, or a list or dict of "
                    f"these; got {value!r} of type {type(value).__name__}."
                )
            setattr(self, name, value)

    def __repr__(self) -> str:
        shown = ", ".join(n for n in vars(self) if not n.startswith("_"))
        return f"<Checkpoint of {shown or repr(self._root)}>"

    def _repr_html_(self) -> str:
        parts = {n: x for n, x in vars(self).items() if not n.startswith("_")}
        return description.describe(parts or [self._root])._repr_html_()

    @property
    def save_counter(self) -> Variable:
        """The variable that counts the calls of `save`.

        It is created when it is first needed, and saved and restored like the others.

        >>> import tempfile, unisono
        >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable(1.0))
        >>> path = checkpoint.save(tempfile.mkdtemp() + "/ckpt")
        >>> int(checkpoint.save_counter.numpy())
        1
        """
        if self._save_counter is None:
            with snapshot.leave_scopes():
                made = Variable(
                    jnp.zeros((), jnp.int32),
                    trainable=False,
                    name="save_counter",
                    aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
                )
            with storage.LOCK:
                # Another thread may have made one meanwhile.
                if self._save_counter is None:
                    self._save_counter = made
        return self._save_counter

    # Saving.

    def save(
        self, file_prefix: PathLike, options: CheckpointOptions | None = None
    ) -> str:
        """Saves a checkpoint whose number increases with every save.

        With several workers, every worker must call it, and the chief writes. Pass the
        same path on all workers, in a directory that all of them can see. If a worker
        passes another path, nothing is written there. If variables are split over the
        workers, each worker writes its part, and a different directory raises an error.

        Args:
            file_prefix: a path; the checkpoint is the directory ``prefix-number``.
            options: how to save.

        Returns:
            The path of the checkpoint, for `restore`.

        Raises:
            SaveError: the checkpoint could not be written, or another job saves under
                the same name in this directory; older checkpoints are unchanged.
            TimeoutError: an earlier save has not ended in time.
            WorkerError: not all workers save, or they save different objects.

        >>> import tempfile, unisono
        >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable(1.0))
        >>> prefix = tempfile.mkdtemp() + "/ckpt"
        >>> [checkpoint.save(prefix).rpartition("/")[2] for _ in range(2)]
        ['ckpt-1', 'ckpt-2']
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
        """Adds one to the counter and saves; takes the count back if that fails.

        Args:
            path_of: returns the path of the checkpoint for a count.
            options: how to save.
            then: called by the chief when the checkpoint is safe on the disk.

        Returns:
            The path of the checkpoint.
        """
        # One thread at a time, so that each save has a number of its own.
        with self._background.alone(options.wait_seconds):
            # Counted before, because the counter is part of what is saved.
            path = path_of(self._count(1))
            try:
                rest = self._write(path, options, is_step=True, then=then)
            except BaseException:
                self._count(-1)
                raise
        # Here, because an error of a callback does not make the checkpoint undone.
        rest()
        return path

    def _count(self, change: int) -> int:
        counter = self.save_counter
        with snapshot.leave_scopes():
            return int(np.asarray(counter.assign_add(change)))

    def write(
        self, file_prefix: PathLike, options: CheckpointOptions | None = None
    ) -> str:
        """Saves a checkpoint under exactly this path.

        The save is not counted, and `latest_checkpoint` ignores the checkpoint. With
        several workers, every worker must call it.

        Args:
            file_prefix: the path of the checkpoint, a directory.
            options: how to save.

        Returns:
            The path.

        Raises:
            SaveError: the checkpoint could not be written; an older one under this path
                is unchanged.
            TimeoutError: an earlier save has not ended in time.
            WorkerError: not all workers save, or they save different objects.

        >>> import tempfile, unisono
        >>> v = unisono.Variable(1.0)
        >>> directory = tempfile.mkdtemp()
        >>> path = unisono.train.Checkpoint(v=v).write(directory + "/best")
        >>> unisono.train.load_variable(path, "v/.ATTRIBUTES/VARIABLE_VALUE")
        array(1., dtype=float32)
        >>> unisono.train.latest_checkpoint(directory) is None
        True
        """
        path, chosen = os.fspath(file_prefix), options or DEFAULT
        with self._background.alone(chosen.wait_seconds):
            rest = self._write(path, chosen, is_step=False)
        rest()
        return path

    def _write(
        self,
        path: str,
        options: CheckpointOptions,
        is_step: bool,
        then: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        """Saves now, or starts to save in the background.

        The caller has made sure that nobody else saves the checkpoint now.

        Returns:
            A function that calls the callbacks. In the background the thread calls
            them, and the function does nothing.
        """
        # First the meeting, in which the values are taken, and then the writing,
        # which needs only what was taken; so that the second can go on in a thread,
        # and the program with its steps.
        target = snapshot.absolute_path(path)
        meeting = worker_meeting.Meeting("a save of a checkpoint", str(target))
        with meeting.share_failure():
            # Objects that are new since the restore must be saved as restored.
            self._restore_new_objects()
            taken = snapshot.take(self, _is_async(options), meeting, in_parts=True)
        late: list[Exception] = []

        def tidy() -> None:
            try:
                (then or (lambda: None))()
            except Exception as error:
                # Raised by `finish`: the checkpoint is safe, so the save must not be
                # reported to the other workers as failed.
                late.append(error)

        def finish() -> None:
            if late:
                raise late[0]
            _call_back(options, path)

        def store() -> None:
            if taken.is_joint:
                joint_writing.write(taken, target, is_step, meeting, tidy)
                return
            with snapshot.share_outcome(taken, target, meeting) as is_writer:
                if is_writer:
                    snapshot.write(taken, target, is_step)
                    tidy()

        def store_and_finish() -> None:
            store()
            finish()

        if not _is_async(options):
            store()
            return finish
        # The meeting stays open meanwhile: it ends with the outcome.
        self._background.start(store_and_finish, path, options.wait_seconds)
        return lambda: None

    def sync(self) -> None:
        """Waits until a background save has ended.

        Objects that were created since the last `restore` get their values.

        Raises:
            SaveError: the background save failed.
            TimeoutError: it has not ended within ten minutes.

        >>> import tempfile, unisono
        >>> options = unisono.train.CheckpointOptions(enable_async=True)
        >>> directory = tempfile.mkdtemp()
        >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable(1.0))
        >>> path = checkpoint.save(directory + "/ckpt", options)
        >>> checkpoint.sync()
        >>> unisono.train.latest_checkpoint(directory) == path
        True
        """
        with self._background.alone(DEFAULT.wait_seconds):
            self._restore_new_objects()

    def _restore_new_objects(self) -> None:
        for restoration in reversed(self._restorations):
            restoration.restore_new_objects()

    # Restoring.

    def restore(
        self, save_path: PathLike | None, options: CheckpointOptions | None = None
    ) -> LoadStatus:
        """Restores a checkpoint that `save` has written.

        With several workers, every worker must call it, with the same checkpoint.

        Args:
            save_path: the path that `save` or `latest_checkpoint` returned; None
                restores nothing.
            options: its `wait_seconds` is how long to wait for a save.

        Returns:
            A status. Its `assert_consumed` raises an error unless every value was used
            and every object was given a value.

        Raises:
            NotFoundError: the checkpoint does not exist.
            DataLossError: the checkpoint is damaged; nothing has been restored.
            ValueError: a variable and its value have different shapes; or each worker
                had its own value when it was saved, and the number of workers is
                different now. Nothing has been restored.
            InvalidArgumentError: a variable and its value have different dtypes;
                nothing has been restored.
            WorkerError: not all workers restore, or they see different checkpoints.

        >>> import tempfile, unisono
        >>> v = unisono.Variable(1.0)
        >>> path = unisono.train.Checkpoint(v=v).save(tempfile.mkdtemp() + "/ckpt")
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> with strategy.scope():
        ...     w = unisono.Variable(0.0)
        >>> status = unisono.train.Checkpoint(v=w).restore(path).assert_consumed()
        >>> float(w.numpy())
        1.0
        """
        # The counter must exist before, so that it is restored as well.
        _ = self.save_counter
        return self.read(save_path, options)

    def read(
        self, save_path: PathLike | None, options: CheckpointOptions | None = None
    ) -> LoadStatus:
        """Restores a checkpoint that `write` has written.

        It works like `restore`, but without a save counter.

        Args:
            save_path: the path that `write` returned; None restores nothing.
            options: its `wait_seconds` is how long to wait for a save.

        Returns:
            A status, like that of `restore`.

        Raises:
            NotFoundError: the checkpoint does not exist.
            DataLossError: the checkpoint is damaged; nothing has been restored.
            ValueError: as for `restore`.
            InvalidArgumentError: as for `restore`.
            WorkerError: not all workers restore, or they see different checkpoints.

        >>> import tempfile, unisono
        >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable(1.0))
        >>> path = checkpoint.write(tempfile.mkdtemp() + "/best")
        >>> _ = checkpoint.v.assign(5.0)
        >>> _ = checkpoint.read(path).assert_consumed()
        >>> float(checkpoint.v.numpy())
        1.0
        """
        with self._background.alone((options or DEFAULT).wait_seconds):
            return self._read(save_path)

    def _read(self, save_path: PathLike | None) -> LoadStatus:
        """Restores a checkpoint, which no other thread saves or restores now."""
        if save_path is not None and not os.fspath(save_path):
            raise errors.NotFoundError(
                "The path of the checkpoint is empty. Pass what `save` returned, or "
                "None to restore nothing."
            )
        with snapshot.leave_scopes():
            made = self._make_restoration(save_path)
        if made is None:
            return InitializationOnlyStatus()
        # Only now: if the new restore has raised, the older ones go on as they were.
        older, self._restorations = self._restorations, [made]
        for restoration in reversed(older):
            if made.replaces(restoration):
                restoration.end()
            elif restoration.gaps:
                # What appears later and only the older checkpoint has comes from there.
                self._restorations.insert(0, restoration)
        return CheckpointLoadStatus(made)

    def _make_restoration(
        self, save_path: PathLike | None
    ) -> restoring.Restoration | None:
        meeting = worker_meeting.Meeting("a restore of a checkpoint")
        with meeting.share_failure():
            made = None
            if save_path is None:
                common_version.open_same(meeting, None)
            else:
                path = snapshot.absolute_path(save_path)
                made = restoring.Restoration(path, self, meeting)
        meeting.finish()
        return made


def last_status(checkpoint: Checkpoint) -> CheckpointLoadStatus | None:
    """Returns the status of what a checkpoint has restored last; None if nothing."""
    # Private, because programs see the class.
    found = checkpoint._restorations  # noqa: SLF001
    return CheckpointLoadStatus(found[-1]) if found else None


forks.refuse(Checkpoint, "save", "write", "restore", "read")
