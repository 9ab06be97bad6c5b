"""The position of `fit` in its input, which a backup saves and a new `fit` restores.

Datasets of unisono know their position. Other input, such as arrays that Keras shuffles
with NumPy's random numbers, is read again from the beginning of the pass up to the
position, with the random numbers that the pass began with. Workers read the same
batches: each pass begins with the random numbers of the chief. See docs/decisions/0020.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, final

import numpy as np

from unisono._src.integrations.keras import inputs, internals, stops
from unisono._src.integrations.keras.internals import Adapter, EpochIterator
from unisono._src.saving.checkpoint import worker_meeting

# How many of the latest positions are kept. `StrategyDistribution.batches` reads a
# batch before the step that uses it, so the position of a backup is not the latest one.
# For one batch ahead two would do; the number leaves some room.
_KEPT_POSITIONS = 4


@final
class Randomness:
    """The state of NumPy's and Python's global random generators, as plain data.

    Keras shuffles with them.
    """

    def get_state(self) -> dict[str, Any]:
        """Return the state of both generators."""
        kind, keys, *rest = np.random.get_state()
        version, internal, gauss = random.getstate()
        return {
            "numpy": [kind, np.asarray(keys).tolist(), *rest],
            "python": [version, list(internal), gauss],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Set the state of both generators."""
        kind, keys, *rest = state["numpy"]
        version, internal, gauss = state["python"]
        np.random.set_state((kind, np.array(keys, np.uint32), *rest))
        random.setstate((version, tuple(internal), gauss))


_randomness = Randomness()


class InputPosition(Protocol):
    """The position of `fit` in its input, as a backup sees it.

    Attributes:
        done: how many steps of the next epoch were done before the program stopped.
    """

    done: int

    @property
    def batches_in_epoch(self) -> int | None:
        """The number of steps in an epoch, or None if it is not known."""

    def get_state(self) -> dict[str, Any]:
        """Return the position."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Let the next pass begin at a position."""

    def has_next(self) -> bool:
        """Return whether the pass that is about to begin has a batch."""


class InputTaker(Protocol):
    """A callback that makes backups."""

    def _take_input(self, adapter: InputPosition) -> None: ...


@final
class PositionedAdapter(internals.DataAdapter):
    """Gives Keras the batches of another adapter, from any position.

    A pass is one reading of the input. An epoch of Keras is one pass, or with
    `steps_per_epoch` a part of one.

    Args:
        inner: the adapter that reads the batches.
        agreement: with other workers, which read the same batches, how they stop.

    Attributes:
        done: how many steps of the next epoch were done before the program stopped.
    """

    def __init__(
        self, inner: Adapter, agreement: stops.Agreement | None = None
    ) -> None:
        self._inner = inner
        self._agreement = agreement
        self._dataset = inner if isinstance(inner, inputs.DatasetAdapter) else None
        self._epochs: EpochIterator | None = None
        # The number of batches that were read in this pass, and the random state in
        # which the pass began.
        self._pulled = 0
        self._begin: Any = None
        self._iterator: Any = None
        # The latest positions of the iterator, by the number of batches before them.
        self._before: dict[int, Any] = {}
        self._resumed: dict[str, Any] | None = None
        self._opened: Iterator[Any] | None = None
        self._is_in_epoch = False
        self.done = 0

    # The position.

    @property
    def batches_in_epoch(self) -> int | None:
        """The number of steps in an epoch, or None if it is not known."""
        return None if self._epochs is None else self._epochs.num_batches

    def get_state(self) -> dict[str, Any]:
        """Return the number of batches used in this pass, and how to read the rest."""
        taken = 0
        if self._epochs is not None and self._is_in_pass:
            taken = internals.steps_taken(self._epochs)
        state: dict[str, Any] = {"taken": taken, "begin": None, "position": None}
        if self._dataset is not None:
            state["orders"] = self._dataset.orders.get_state()
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
        goes_on = internals.is_in_pass(self._epochs)
        return bool(self._epochs.steps_per_epoch) and goes_on

    def _position(self, taken: int) -> object:
        """Return the position of a dataset after a number of batches."""
        if taken in self._before:
            return self._before[taken]
        return self._iterator.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Let the next pass begin at a position that `get_state` returned."""
        self._resumed = state

    def has_next(self) -> bool:
        """Return whether the pass that is about to begin has a batch."""
        # The batch that is read to find out is put back in front of the others.
        rest = self._batches()
        first = next(rest, None)
        self._opened = None if first is None else itertools.chain([first], rest)
        return first is not None

    @property
    def _checkpoint_mark(self) -> Callable[[dict[str, Any]], object] | None:
        """The part of the state that must be equal on all workers, or None.

        It is None if each worker reads batches of its own.
        """
        if self._dataset is not None and not self._dataset.is_common:
            return None
        return lambda state: state["taken"]

    # Batches.

    def enter_epoch(self, epochs: EpochIterator) -> int:
        """Begin an epoch.

        Args:
            epochs: Keras' iterator over the epochs.

        Returns:
            The number of steps of the epoch that were done before the program stopped.
        """
        self._epochs, self._is_in_epoch = epochs, True
        done, self.done = self.done, 0
        if self._resumed is not None and epochs.steps_per_epoch:
            # One pass may take several epochs. Keras then keeps its iterator and the
            # number of steps, which are set here as the stopped program had them.
            internals.resume_pass(epochs, self._resumed["taken"] - done)
        return done

    def begin_step(self) -> bool:
        """Return whether `fit` takes another step, on which all workers agree."""
        return self._agreement is None or self._agreement.begin_step()

    def get_jax_iterator(self) -> Iterator[Any]:
        """Return an iterator over the batches of one pass."""
        opened, self._opened = self._opened, None
        return self._batches() if opened is None else opened

    def _batches(self) -> Iterator[Any]:
        """Yield the batches of a pass, from the position that was set, if any."""
        resumed, self._resumed = self._resumed, None
        self._before.clear()
        if self._agreement is not None and resumed is None:
            _share_randomness()
        if self._dataset is not None:
            yield from self._read_dataset(self._dataset, resumed)
        else:
            yield from self._replay(resumed)

    def _read_dataset(
        self, source: inputs.DatasetAdapter, resumed: dict[str, Any] | None
    ) -> Iterator[Any]:
        """Yield batches of a dataset of unisono, which can go to a position."""
        if resumed is not None:
            source.orders.set_state(resumed["orders"])
        self._iterator = source.open()
        self._pulled = 0
        if resumed is not None and resumed["position"] is not None:
            self._iterator.set_state(resumed["position"])
            self._pulled = resumed["taken"]
        while True:
            self._before[self._pulled] = self._iterator.get_state()
            self._before.pop(self._pulled - _KEPT_POSITIONS, None)
            try:
                element = next(self._iterator)
            except StopIteration:
                return
            self._pulled += 1
            yield source.global_batch(element)

    def _replay(self, resumed: dict[str, Any] | None) -> Iterator[Any]:
        """Yield batches of any other input, and skip those that were used before."""
        now = None
        if resumed is not None and resumed["begin"] is not None:
            now = _randomness.get_state()
            _randomness.set_state(resumed["begin"])
        self._begin = _randomness.get_state()
        source = iter(self._inner.get_jax_iterator())
        for _ in range(resumed["taken"] if resumed is not None else 0):
            next(source, None)
        if now is not None:
            # The order of the pass was drawn with the first batch that was skipped.
            # From here on the random numbers are those that the backup restored.
            _randomness.set_state(now)
        yield from source

    def get_numpy_iterator(self) -> Iterator[Any]:
        """Return an iterator over the batches as NumPy arrays; no position is kept."""
        return self._inner.get_numpy_iterator()

    @property
    def num_batches(self) -> int | None:
        """The number of batches, or None if it is not known."""
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
        """Tell the inner adapter that an epoch begins."""
        self._inner.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Tell the inner adapter that an epoch has ended."""
        self._is_in_epoch = False
        self._inner.on_epoch_end()


def give_input(callbacks: Sequence[InputTaker], adapter: InputPosition) -> None:
    """Tell callbacks that make backups from which adapter `fit` will read."""
    for callback in callbacks:
        # Private, because users see the callback's class, and it is not for them.
        callback._take_input(adapter)  # noqa: SLF001


def _share_randomness() -> None:
    """Set the random generators of all workers to the state of the chief's."""
    told = worker_meeting.ask_chief(
        "the order of the examples of an epoch",
        lambda: json.dumps(_randomness.get_state()),
    )
    _randomness.set_state(json.loads(told))


def wrap_enumerate(
    original: Callable[..., Iterator[Any]],
) -> Callable[..., Iterator[Any]]:
    """Return an `_enumerate_iterator` that skips steps done before the program stopped.

    The numbers of the other steps stay, so callbacks see the numbers of one `fit`.
    """

    @functools.wraps(original)
    def enumerate_steps(self: EpochIterator) -> Iterator[Any]:
        adapter, steps = self.data_adapter, original(self)
        if not isinstance(adapter, PositionedAdapter):
            yield from steps
            return
        done = adapter.enter_epoch(self)
        # Keras counts a step when it is asked for one, so it is asked only for those
        # that are taken.
        while adapter.begin_step():
            step = next(steps, None)
            if step is None:
                return
            if step[0] >= done:
                yield step

    return enumerate_steps
