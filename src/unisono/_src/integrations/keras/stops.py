"""All workers of a `fit` stop after the same step when one of them wants to stop.

A callback stops `fit` by `model.stop_training = True`. Keras looks at it after each
step and each epoch. On several workers the others would go on and wait for the worker
that has stopped.

Nothing is exchanged in a step. A worker that wants to stop leaves a note, for which a
thread of every worker waits. The thread says how many steps its worker has begun, and
lets it begin no other until all have said that. Then all go on to the furthest of these
steps, which every worker can still take. At the end of an epoch the workers meet.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, final

from unisono._src.foundation import errors, jax_internals
from unisono._src.integrations.keras import internals
from unisono._src.integrations.keras.internals import CallbackList, KerasModel
from unisono._src.saving.checkpoint import worker_meeting
from unisono._src.workers import worker_notes

# After each wait of this length the thread looks whether `fit` is over.
_POLL_MILLISECONDS = 500
_PAUSE_SECONDS = 0.01
# Under this name a model has the agreement of its workers while `fit` runs.
_AGREEMENT = "_unisono_stops"
# Every worker makes the same calls of `fit`, so equal numbers mean the same one.
_numbers = itertools.count()


@final
class Agreement:
    """Finds the step after which all workers stop.

    Args:
        crew: the workers.
    """

    def __init__(self, crew: worker_notes.GroupMember) -> None:
        number = next(_numbers)
        self._place = f"unisono/keras/stop/{number}"
        self._crew = crew
        self._exchange = worker_notes.NoteExchange(crew, f"the stop of fit ({number})")
        self._model: KerasModel
        # The lock guards the number of steps that this worker has begun, which must not
        # grow any more once the thread has told it.
        self._lock = threading.Lock()
        self._begun = 0
        self._is_called = False
        self._is_settled = threading.Event()
        self._is_over = threading.Event()
        self._last = 0
        self._error: BaseException | None = None

    @contextlib.contextmanager
    def hold(self, model: KerasModel) -> Iterator[None]:
        """Let the workers agree in a block, which runs Keras' loop.

        Args:
            model: the model of the loop.
        """
        self._model = model
        model.__dict__[_AGREEMENT] = self
        # The program does not end before the thread does. If Python ended first, the
        # thread would come back from JAX's client into no Python at all.
        threading.Thread(target=self._listen, name="unisono stops").start()
        try:
            yield
        finally:
            self._is_over.set()
            self._exchange.cancel()
            model.__dict__.pop(_AGREEMENT, None)

    def begin_step(self) -> bool:
        """Return whether to take another step; waits if a worker wants to stop.

        Raises:
            WorkerError: a worker does not say which steps it has begun.
        """
        with self._lock:
            if not self._is_called:
                self._begun += 1
                return True
        self._is_settled.wait()
        if self._error is not None:
            raise self._error
        # Without the lock: the thread has ended its part, and only this one counts now.
        if self._begun < self._last:
            self._begun += 1
            return True
        self._model.stop_training = True
        return False

    def end_step(self) -> None:
        """Tell the other workers if a callback of this one wants to stop."""
        if not self._model.stop_training:
            return
        # Keras would leave its loop at once.
        self._model.stop_training = False
        with self._lock:
            is_known, self._is_called = self._is_called, True
        if not is_known:
            client: Any = jax_internals.distributed_state.client
            client.key_value_set(
                self._place, str(self._crew.worker), allow_overwrite=True
            )

    def end_epoch(self) -> None:
        """Stop after this epoch if any worker wants to.

        Raises:
            WorkerError: not all workers come to the end of the epoch.
        """
        wants = bool(self._model.stop_training or self._is_called)
        meeting = worker_meeting.Meeting("the end of an epoch", str(wants))
        meeting.end()
        self._model.stop_training = str(True) in meeting.details

    def _listen(self) -> None:
        """Wait until a worker wants to stop, and find the last step."""
        try:
            if self._wait_for_call():
                with self._lock:
                    self._is_called, begun = True, self._begun
                self._last = max(
                    _read_count(x) for x in self._exchange.post(str(begun))
                )
        except worker_notes.Cancelled:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._is_settled.set()

    def _wait_for_call(self) -> bool:
        """Return True when a worker wants to stop, or False when `fit` is over."""
        client: Any = jax_internals.distributed_state.client
        # The client raises when the time is over, and at once if it has no service.
        while not self._is_over.wait(_PAUSE_SECONDS):
            with contextlib.suppress(RuntimeError):
                client.blocking_key_value_get(self._place, _POLL_MILLISECONDS)
                return True
        return False


def _read_count(note: str) -> int:
    if not note.isdecimal() or len(note) > 20:
        raise errors.garbled_message_error("a note that is no number of steps")
    return int(note)


def wrap_batch_end(original: Callable[..., None]) -> Callable[..., None]:
    """Return an `on_train_batch_end` of all callbacks, after which workers agree."""

    @functools.wraps(original)
    def on_train_batch_end(self: CallbackList, batch: int, logs: object = None) -> None:
        original(self, batch, logs)
        found = _find_agreement(self)
        if found is not None:
            found.end_step()

    return on_train_batch_end


def wrap_epoch_end(original: Callable[..., None]) -> Callable[..., None]:
    """Return an `on_epoch_end` of all callbacks, after which workers agree."""

    @functools.wraps(original)
    def on_epoch_end(self: CallbackList, epoch: int, logs: object = None) -> None:
        original(self, epoch, logs)
        found = _find_agreement(self)
        # After the last epoch `fit` ends anyway.
        if found is not None and epoch + 1 != (self.params or {}).get("epochs"):
            found.end_epoch()

    return on_epoch_end


def _find_agreement(callbacks: CallbackList) -> Agreement | None:
    model = internals.model_of(callbacks)
    return getattr(model, "__dict__", {}).get(_AGREEMENT)
