"""Saves and restores the checkpoints of an estimator."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

from unisono._src.estimator import compiled_steps, hooks
from unisono._src.estimator.config import RunConfig
from unisono._src.estimator.variable_store import GLOBAL_STEP, VariableStore
from unisono._src.foundation import errors
from unisono._src.saving.checkpoint import reading, snapshot, worker_meeting
from unisono._src.saving.checkpoint.checkpoint import Checkpoint
from unisono._src.saving.checkpoint.manager import CheckpointManager

if TYPE_CHECKING:
    # Named in signatures only: the input modules are loaded when a program reads data.
    from unisono._src.input.api.distributed_dataset import DistributedIterator

_log = logging.getLogger("unisono")
_NAME = "model.ckpt"
# `Checkpoint(variables={name: variable}, input=position)` stores its values under
# these keys; a "/" or "." in a name is escaped as TensorFlow escapes it.
_PREFIX, _SUFFIX = "variables/", "/.ATTRIBUTES/VARIABLE_VALUE"
_INPUT = "input/.ATTRIBUTES/PYTHON_STATE"
# Saving is collective, so workers may not decide by their own clocks: every so many
# steps they ask the chief. Asking costs a round trip between workers, so not each step.
_ASK_EVERY = 20


def key_of(name: str) -> str:
    """Returns the key under which a checkpoint stores the variable of this name."""
    return f"{_PREFIX}{name.replace('.', '..').replace('/', '.S')}{_SUFFIX}"


def name_of(key: str) -> str | None:
    """Returns the name of the variable stored under a key of a checkpoint.

    Returns:
        The name, or None if the key does not belong to a variable.
    """
    if not key.startswith(_PREFIX) or not key.endswith(_SUFFIX):
        return None
    name = key.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    # Split first: a doubled dot is a dot, and no beginning of ".S".
    parts = [part.replace(".S", "/") for part in name.split("..")]
    return ".".join(parts)


def restore(built: compiled_steps.ModelSteps, path: str, model_dir: str) -> None:
    """Restores the variables of a model from a checkpoint.

    Args:
        built: the steps of the model.
        path: the checkpoint.
        model_dir: the directory that an error names.

    Raises:
        NotFoundError: the checkpoint lacks a variable.
        ValueError: the checkpoint has a variable with another shape or type.
    """
    wanted = compiled_steps.checkpointed_variables(built)
    with _explain_errors(path, model_dir):
        found = Checkpoint(variables=wanted).read(path).expect_partial()
    _check_matched(found.assert_existing_objects_matched, path, model_dir)


def warm_start(store: VariableStore, path: str) -> None:
    """Restores the trainable variables from a checkpoint of another model."""
    wanted = {k: v for k, v in store.variables.items() if v.trainable}
    found = Checkpoint(variables=wanted).read(path).expect_partial()
    _check_matched(found.assert_existing_objects_matched, path, path)


def _check_matched(check: Callable[[], object], path: str, model_dir: str) -> None:
    try:
        check()
    except AssertionError as error:
        raise errors.NotFoundError(
            f"The checkpoint {path} lacks variables that the model_fn makes now. "
            f"{_advice(model_dir)} {error}"
        ) from error


def _advice(model_dir: str) -> str:
    return (
        "Has the model changed since? Then take another model_dir than "
        f"{model_dir}, or give variables their old names."
    )


class _PositionError(ValueError):
    """Raised if the data of the input function does not have the saved position.

    It tells this failure from the errors that restoring variables raises.
    """


@contextlib.contextmanager
def _explain_errors(path: str, model_dir: str) -> Iterator[None]:
    """Adds the likely cause to errors that restoring raises in this block."""
    try:
        yield
    except errors.DataLossError:
        # It is a `ValueError` too, but about a damaged file, not about the model.
        raise
    except _PositionError as error:
        raise ValueError(str(error)) from error.__cause__
    except ValueError as error:
        # Errors about one value name its key; this one is about the position.
        if _INPUT in str(error):
            raise ValueError(_position_message(error)) from error
        is_ours = isinstance(error, errors.InvalidArgumentError)
        kind = errors.InvalidArgumentError if is_ours else ValueError
        raise kind(
            f"The checkpoint {path} does not fit the variables that the model_fn makes "
            f"now. {_advice(model_dir)} {error}"
        ) from error


def _position_message(error: ValueError) -> str:
    return (
        "This training continues one that was interrupted, but the dataset of the "
        "input_fn cannot continue from the position that was saved. Pass the input_fn "
        "of the interrupted training, or pass RunConfig(keep_input_position=False) to "
        f"read this one from its beginning. {error}"
    )


@final
class _Position:
    """Saves and restores the position of an iterator as part of a checkpoint.

    Args:
        iterator: the iterator over the batches of training.
    """

    def __init__(self, iterator: DistributedIterator) -> None:
        self._iterator = iterator
        # A checkpoint recognizes an object with `get_state` and `set_state`.
        self.get_state = iterator.get_state

    @property
    def _checkpoint_mark(self) -> object:
        return snapshot.find_mark(self._iterator)

    def set_state(self, state: dict[str, Any]) -> None:
        try:
            self._iterator.set_state(state)
        except ValueError as error:
            raise _PositionError(_position_message(error)) from error


@final
class Saver:
    """Saves checkpoints at the beginning of a training, in between and at its end.

    Args:
        store: the variables to save.
        config: says where to save and how often.
        listeners: `CheckpointSaverListener`s to call around each save.
    """

    def __init__(
        self,
        store: VariableStore,
        config: RunConfig,
        listeners: Sequence[hooks.CheckpointSaverListener] | None,
    ) -> None:
        assert config.model_dir is not None
        self._config = config
        self._directory = config.model_dir
        self._checkpoint = Checkpoint(variables=store.variables)
        self._manager = CheckpointManager(
            self._checkpoint,
            self._directory,
            max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            checkpoint_name=_NAME,
        )
        self._listeners = hooks.check_kind(listeners, hooks.CheckpointSaverListener)
        self._position: _Position | None = None
        self._saved_step: int | None = None
        self._saved_at = time.monotonic()
        self._is_mid_training = False

    def restore(self, path: str | None, iterator: DistributedIterator) -> None:
        """Restores the variables and, if training was interrupted, the input position.

        Args:
            path: the newest checkpoint; None if there is none.
            iterator: the iterator over the batches of this training.
        """
        if self._config.keep_input_position:
            self._position = _Position(iterator)
        if path is None:
            return
        keys = {key for key, _ in reading.list_variables(path)}
        # A checkpoint with a position was saved in mid-training. `end` then saves again
        # without the position, even if no step was left to make.
        self._is_mid_training = _INPUT in keys
        if self._is_mid_training:
            self._checkpoint.input = self._position
        with _explain_errors(path, self._directory):
            found = self._checkpoint.restore(path).expect_partial()
        _check_matched(found.assert_existing_objects_matched, path, self._directory)

    def begin(self, step: int, path: str | None) -> None:
        """Calls the listeners before the first step and saves the first checkpoint.

        Args:
            step: the global step at which training begins.
            path: the checkpoint that was restored; if None, one is saved.
        """
        for listener in self._listeners:
            listener.begin()
        if path is None:
            self.save(step, is_mid_training=True)
        self._saved_step, self._saved_at = step, time.monotonic()

    def is_due(self, step: int) -> bool:
        """Whether to save after this step; every worker gets the same answer."""
        every, seconds = (
            self._config.save_checkpoints_steps,
            self._config.save_checkpoints_secs,
        )
        assert self._saved_step is not None
        if every is not None:
            return step >= self._saved_step + every
        if seconds is None:
            return False
        is_late = time.monotonic() >= self._saved_at + seconds
        if self._config.num_worker_replicas == 1:
            return is_late
        return step % _ASK_EVERY == 0 and ask_chief(is_late, "save a checkpoint")

    def save(self, step: int, is_mid_training: bool) -> bool:
        """Saves a checkpoint unless the last one has the same content.

        Args:
            step: the number of the checkpoint.
            is_mid_training: whether training continues with the next batch of this
                data; the checkpoint then has the position in the data.

        Returns:
            Whether a listener asks to end training.
        """
        if step == self._saved_step and self._is_mid_training == is_mid_training:
            return False
        for listener in self._listeners:
            listener.before_save(None, step)
        # A checkpoint without a position is that of a training which has ended: the
        # next one begins with its data anew.
        self._checkpoint.input = self._position if is_mid_training else None
        path = self._manager.save(checkpoint_number=step)
        _log.info("Saved checkpoint for step %d: %s.", step, path)
        self._saved_step, self._saved_at = step, time.monotonic()
        self._is_mid_training = is_mid_training
        # A list, not a generator: `any` would not call the listeners after a True.
        return any([bool(x.after_save(None, step)) for x in self._listeners])

    def end(self, step: int) -> None:
        """Saves the last checkpoint, without a position, and calls the listeners."""
        self.save(step, is_mid_training=False)
        for listener in self._listeners:
            listener.end(None, step)


def step_of(path: str | None) -> int:
    """Returns the global step of a checkpoint, or 0 if `path` is None."""
    if path is None:
        return 0
    return int(reading.load_variable(path, key_of(GLOBAL_STEP)))


def find_latest_of_chief(directory: str) -> str | None:
    """Returns the newest checkpoint that the chief finds in a directory, or None.

    Every worker must call this and gets the same path, even if a file system shows new
    files to some workers later than to others.
    """
    path = worker_meeting.ask_chief(
        "a look for the latest checkpoint of a model_dir",
        lambda: reading.latest_checkpoint(directory) or "",
    )
    return path or None


def ask_chief(answer: bool, what: str) -> bool:
    """Returns the answer of the chief to a question; every worker must ask it.

    Args:
        answer: the answer of this worker; only that of the chief counts.
        what: the action that is decided, for error messages.
    """
    said = worker_meeting.ask_chief(f"a question: {what}?", lambda: str(answer))
    return said == str(True)
