"""The checkpoints of an estimator: what is in them, and when they are saved."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any, final

from unisono._src.estimator import compiled_steps, hooks
from unisono._src.estimator.config import RunConfig
from unisono._src.estimator.variable_store import GLOBAL_STEP, Store
from unisono._src.foundation import errors
from unisono._src.saving.checkpoint import reading, worker_meeting
from unisono._src.saving.checkpoint.checkpoint import Checkpoint
from unisono._src.saving.checkpoint.manager import CheckpointManager

_LOG = logging.getLogger("unisono")
_NAME = "model.ckpt"
_PREFIX, _SUFFIX = "variables/", "/.ATTRIBUTES/VARIABLE_VALUE"
_INPUT = "input/.ATTRIBUTES/PYTHON_STATE"
# Workers cannot each look at their own clock; they ask the chief for its, so often.
_ASK_EVERY = 20


def key_of(name: str) -> str:
    """Where a checkpoint has the variable of a name."""
    return f"{_PREFIX}{name.replace('.', '..').replace('/', '.S')}{_SUFFIX}"


def name_of(key: str) -> str | None:
    """The name of a variable in a checkpoint; None if the key is another one's."""
    if not key.startswith(_PREFIX) or not key.endswith(_SUFFIX):
        return None
    name = key.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    parts = [part.replace(".S", "/") for part in name.split("..")]
    return ".".join(parts)


def restore(built: compiled_steps.Built, path: str, model_dir: str) -> None:
    """Give the variables their values of a checkpoint.

    Raises:
        NotFoundError: the checkpoint lacks a variable.
        ValueError: it has one of another shape or type.
    """
    wanted = compiled_steps.kept(built)
    with _explained(path, model_dir):
        found = Checkpoint(variables=wanted).read(path).expect_partial()
    _check_matched(found, path, model_dir)


def warm_start(store: Store, path: str) -> None:
    """Give the trainable variables their values of a checkpoint of another model."""
    wanted = {k: v for k, v in store.variables.items() if v.trainable}
    found = Checkpoint(variables=wanted).read(path).expect_partial()
    _check_matched(found, path, path)


def _check_matched(found: Any, path: str, model_dir: str) -> None:
    try:
        found.assert_existing_objects_matched()
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
    """The input function's data has no such position; tells it from other errors."""


@contextlib.contextmanager
def _explained(path: str, model_dir: str) -> Iterator[None]:
    """A block whose errors about variables say what may have led to them."""
    try:
        yield
    except errors.DataLossError:
        raise
    except _PositionError as error:
        raise ValueError(str(error)) from error.__cause__
    except ValueError as error:
        if _INPUT in str(error):
            raise ValueError(_of_position(error)) from error
        is_ours = isinstance(error, errors.InvalidArgumentError)
        kind = errors.InvalidArgumentError if is_ours else ValueError
        raise kind(
            f"The checkpoint {path} does not fit the variables that the model_fn makes "
            f"now. {_advice(model_dir)} {error}"
        ) from error


def _of_position(error: ValueError) -> str:
    return (
        "The training that is to go on was cut short, and the input_fn has no place in "
        "its data where that training stood. Give the input_fn it had; or pass "
        "RunConfig(keep_input_position=False), to go on with this one from its "
        f"beginning. {error}"
    )


@final
class _Position:
    """The position of an iterator, as a checkpoint keeps it.

    Args:
        iterator: the iterator.
    """

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        self.get_state = iterator.get_state

    @property
    def _checkpoint_mark(self) -> Any:
        return self._iterator._checkpoint_mark

    def set_state(self, state: Any) -> None:
        try:
            self._iterator.set_state(state)
        except ValueError as error:
            raise _PositionError(_of_position(error)) from error


@final
class Saver:
    """Saves a training: at its beginning, now and then, and at its end.

    Args:
        store: the variables.
        config: where, and how often.
        listeners: whom to tell.
    """

    def __init__(self, store: Store, config: RunConfig, listeners: Any) -> None:
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
        self._listeners = hooks.checked(listeners, hooks.CheckpointSaverListener)
        self._position: _Position | None = None
        self._saved_step: int | None = None
        self._saved_at = time.monotonic()
        self._is_between = False

    def restore(self, path: str | None, iterator: Any) -> None:
        """Restore the newest checkpoint, if there is one.

        Args:
            path: where it is.
            iterator: gives the batches; goes on where a training was cut short.
        """
        if self._config.keep_input_position:
            self._position = _Position(iterator)
        if path is None:
            return
        keys = {key for key, _ in reading.list_variables(path)}
        # Then the last save takes the position away, even if no step was left to make.
        self._is_between = _INPUT in keys
        if self._is_between:
            self._checkpoint.input = self._position
        with _explained(path, self._directory):
            found = self._checkpoint.restore(path).expect_partial()
        _check_matched(found, path, self._directory)

    def begin(self, step: int, path: str | None) -> None:
        """Before the first step; saves if there is no checkpoint yet."""
        for listener in self._listeners:
            listener.begin()
        if path is None:
            self.save(step, is_between=True)
        self._saved_step, self._saved_at = step, time.monotonic()

    def is_due(self, step: int) -> bool:
        """Whether it is time to save; the same on every worker."""
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
        return step % _ASK_EVERY == 0 and chief_says(is_late, "save a checkpoint")

    def save(self, step: int, is_between: bool) -> bool:
        """Save; returns whether a listener wants training to end.

        Args:
            step: the number of the checkpoint.
            is_between: whether training goes on, with the next batch of this data.
        """
        if step == self._saved_step and self._is_between == is_between:
            return False
        for listener in self._listeners:
            listener.before_save(None, step)
        self._checkpoint.input = self._position if is_between else None
        path = self._manager.save(checkpoint_number=step)
        _LOG.info("Saved checkpoint for step %d: %s.", step, path)
        self._saved_step, self._saved_at = step, time.monotonic()
        self._is_between = is_between
        # All of them are told, whatever one of them wants.
        return any([bool(x.after_save(None, step)) for x in self._listeners])

    def end(self, step: int) -> None:
        """Save for the last time."""
        self.save(step, is_between=False)
        for listener in self._listeners:
            listener.end(None, step)


def step_of(path: str | None) -> int:
    """The global step of a checkpoint; 0 without one."""
    if path is None:
        return 0
    return int(reading.load_variable(path, key_of(GLOBAL_STEP)))


def agreed_latest(directory: str) -> str | None:
    """The newest checkpoint of a directory, as the chief sees it."""
    meeting = worker_meeting.Meeting("a look for the latest checkpoint of a model_dir")
    with meeting.telling():
        own = (
            reading.latest_checkpoint(directory) if worker_meeting.is_writer() else None
        )
    path = meeting.from_chief(own or "")
    meeting.end()
    return path or None


def chief_says(answer: bool, what: str) -> bool:
    """What the chief answers; every worker must ask."""
    meeting = worker_meeting.Meeting(f"a question: {what}?")
    said = meeting.from_chief("yes" if answer else "no")
    meeting.end()
    return said == "yes"
