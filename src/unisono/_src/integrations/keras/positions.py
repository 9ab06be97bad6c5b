"""Where `fit` is in its input: told when a backup is made, gone back to afterwards.

Datasets of ours know their position. What Keras reads itself, such as arrays that it
shuffles with NumPy's random numbers, is read again from the beginning of the pass, with
the random numbers of then, up to where it was. Workers read the same batches: each pass
begins with the random numbers of the chief.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np
from keras.src.trainers.data_adapters import data_adapter

from unisono._src.integrations.keras import inputs
from unisono._src.saving.checkpoint import worker_meeting

# How many batches the devices may be given ahead of the step that uses them, and more.
_BACK = 4


@final
class Randomness:
    """The random numbers that Keras and Python shuffle with, as plain data."""

    def get_state(self) -> dict[str, Any]:
        """Both generators."""
        kind, keys, *rest = np.random.get_state()
        version, internal, gauss = random.getstate()
        return {
            "numpy": [kind, np.asarray(keys).tolist(), *rest],
            "python": [version, list(internal), gauss],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from a state of both."""
        kind, keys, *rest = state["numpy"]
        version, internal, gauss = state["python"]
        np.random.set_state((kind, np.array(keys, np.uint32), *rest))
        random.setstate((version, tuple(internal), gauss))


_randomness = Randomness()


@final
class PositionedAdapter(data_adapter.DataAdapter):
    """The batches of another adapter, from any position.

    Args:
        inner: gives the batches.
        is_together: whether other workers read the same batches.

    Attributes:
        done: how many steps of the epoch that begins were made before.
    """

    def __init__(self, inner: Any, is_together: bool = False) -> None:
        self._inner = inner
        self._is_together = is_together
        self._is_ours = isinstance(inner, inputs.DatasetAdapter)
        self._epochs: Any = None
        self._pulled = 0
        self._begin: Any = None
        self._iterator: Any = None
        self._before: dict[int, Any] = {}
        self._resumed: dict[str, Any] | None = None
        self._opened: Iterator[Any] | None = None
        self._is_in_epoch = False
        self.done = 0

    # The position.

    @property
    def batches_in_epoch(self) -> int | None:
        """How many steps an epoch has, if that is known."""
        return None if self._epochs is None else self._epochs.num_batches

    def get_state(self) -> dict[str, Any]:
        """How many batches were taken in this pass, and what gives the others."""
        taken = self._epochs._steps_seen if self._is_in_pass else 0
        state: dict[str, Any] = {"taken": taken, "begin": None, "position": None}
        if self._is_ours:
            state["orders"] = self._inner.orders.get_state()
            if taken:
                state["position"] = self._position(taken)
        elif taken:
            state["begin"] = self._begin
        return state

    @property
    def _is_in_pass(self) -> bool:
        """Whether batches of the pass are left for this epoch or the next."""
        if self._is_in_epoch or self._epochs is None:
            return self._is_in_epoch
        goes_on = self._epochs._current_iterator is not None
        return bool(self._epochs.steps_per_epoch) and goes_on

    def _position(self, taken: int) -> Any:
        if taken in self._before:
            return self._before[taken]
        return self._iterator.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Let the next pass begin at a position."""
        self._resumed = state

    def has_next(self) -> bool:
        """Whether the pass that is about to begin has a batch."""
        rest = self._batches()
        first = next(rest, None)
        self._opened = None if first is None else itertools.chain([first], rest)
        return first is not None

    @property
    def _checkpoint_mark(self) -> Callable[[Any], Any] | None:
        """What of the position workers must agree on; None if each has its own."""
        if self._is_ours and not self._inner.is_common:
            return None
        return lambda state: state["taken"]

    # Batches.

    def enter_epoch(self, epochs: Any) -> int:
        """Begin an epoch.

        Args:
            epochs: Keras' iterator over the epochs.

        Returns:
            How many of its steps were made before.
        """
        self._epochs, self._is_in_epoch = epochs, True
        done, self.done = self.done, 0
        if self._resumed is not None and epochs.steps_per_epoch:
            # One pass may take several epochs; Keras counts how far it is.
            epochs._current_iterator = iter(epochs._get_iterator())
            epochs._steps_seen = self._resumed["taken"] - done
        return done

    def get_jax_iterator(self) -> Iterator[Any]:
        """The batches of one pass."""
        opened, self._opened = self._opened, None
        return self._batches() if opened is None else opened

    def _batches(self) -> Iterator[Any]:
        resumed, self._resumed = self._resumed, None
        self._before.clear()
        if self._is_together and resumed is None:
            _agree()
        if self._is_ours:
            yield from self._positioned(resumed)
        else:
            yield from self._replayed(resumed)

    def _positioned(self, resumed: dict[str, Any] | None) -> Iterator[Any]:
        if resumed is not None:
            self._inner.orders.set_state(resumed["orders"])
        self._iterator = self._inner.open()
        self._pulled = 0
        if resumed is not None and resumed["position"] is not None:
            self._iterator.set_state(resumed["position"])
            self._pulled = resumed["taken"]
        while True:
            self._before[self._pulled] = self._iterator.get_state()
            self._before.pop(self._pulled - _BACK, None)
            try:
                element = next(self._iterator)
            except StopIteration:
                return
            self._pulled += 1
            yield self._inner.batch_of(element)

    def _replayed(self, resumed: dict[str, Any] | None) -> Iterator[Any]:
        now = None
        if resumed is not None and resumed["begin"] is not None:
            now = _randomness.get_state()
            _randomness.set_state(resumed["begin"])
        self._begin = _randomness.get_state()
        source = iter(self._inner.get_jax_iterator())
        for _ in range(resumed["taken"] if resumed is not None else 0):
            next(source, None)
        if now is not None:
            # The first batch draws the order of the pass, if none was taken before.
            _randomness.set_state(now)
        yield from source

    def get_numpy_iterator(self) -> Iterator[Any]:
        """The batches of a pass that does not count."""
        return self._inner.get_numpy_iterator()

    @property
    def num_batches(self) -> int | None:
        """How many batches there are, or None if that is not known."""
        return self._inner.num_batches

    @property
    def batch_size(self) -> int | None:
        """The size of a batch."""
        return self._inner.batch_size

    @property
    def has_partial_batch(self) -> bool | None:
        """Whether the last batch is smaller."""
        return self._inner.has_partial_batch

    @property
    def partial_batch_size(self) -> int | None:
        """The size of the last batch, if it is smaller."""
        return self._inner.partial_batch_size

    def on_epoch_begin(self) -> None:
        """Tell the adapter."""
        self._inner.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Tell the adapter."""
        self._is_in_epoch = False
        self._inner.on_epoch_end()


def _agree() -> None:
    """Let all workers draw the random numbers that the chief draws."""
    meeting = worker_meeting.Meeting("the order of the examples of an epoch")
    told = meeting.from_chief(json.dumps(_randomness.get_state()))
    meeting.end()
    _randomness.set_state(json.loads(told))


def enumerating(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_enumerate_iterator`, which leaves out steps that were made before a stop."""

    @functools.wraps(original)
    def enumerate_steps(self: Any) -> Iterator[Any]:
        adapter, done = self.data_adapter, 0
        if isinstance(adapter, PositionedAdapter):
            done = adapter.enter_epoch(self)
        for step in original(self):
            if step[0] >= done:
                yield step

    return enumerate_steps
