"""Iterators over datasets, in Python and in compiled functions."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from unisono._src.execution import host_inputs
from unisono._src.foundation import ambient, errors, host_numbers
from unisono._src.foundation.public_names import publish
from unisono._src.input.plan import cursors, elements, nodes
from unisono._src.state import frames

_T = TypeVar("_T")
# The version of the positions that this release saves and reads.
VERSION = 1
# The kind of position in a saved state.
_KIND = "dataset"


class Optional:
    """Holds an element or is empty; `get_next_as_optional` returns it.

    >>> Optional.from_value(3).get_value().numpy()
    np.int32(3)
    >>> bool(Optional.empty().has_value())
    False
    """

    def __init__(
        self, value: object, has_value: bool, spec: Callable[[], Any] | None = None
    ) -> None:
        self._value, self._has, self._spec = value, has_value, spec

    @classmethod
    def from_value(cls, value: object) -> Optional:
        """Returns an optional that holds `value`.

        >>> Optional.from_value(3).get_value().numpy()
        np.int32(3)
        """
        held = elements.convert(value)
        return cls(elements.present(held), True, lambda: elements.spec_of(held))

    @classmethod
    def empty(cls, element_spec: object = None) -> Optional:
        """Returns an empty optional.

        Args:
            element_spec: the shape and dtype that the element would have.
        """
        return cls(None, False, lambda: element_spec)

    @property
    def element_spec(self) -> Any:
        """Returns the shape and dtype of the element, even if the optional is empty."""
        return None if self._spec is None else self._spec()

    def has_value(self, name: str | None = None) -> host_numbers.HostBool:
        """Whether the optional holds an element, as a bool with the method `numpy`."""
        return np.asarray(self._has).view(host_numbers.HostBool)

    def get_value(self, name: str | None = None) -> Any:
        """Returns the element.

        Raises:
            InvalidArgumentError: the optional is empty.
        """
        if not self._has:
            raise errors.InvalidArgumentError(
                "The given optional does not have a value; ask has_value() first."
            )
        return self._value

    def __repr__(self) -> str:
        return f"Optional({self._value!r})" if self._has else "Optional()"


class PositionedIterator(host_inputs.HostIterator, abc.ABC):
    """An iterator whose position can be saved; abstract."""

    @property
    @abc.abstractmethod
    def element_spec(self) -> Any:
        """Returns the shapes and dtypes of an element."""

    @abc.abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Returns the position as plain data: dicts, lists, numbers and text."""

    @abc.abstractmethod
    def set_state(self, state: dict[str, Any]) -> None:
        """Resumes from a position that an iterator of the same dataset returned."""

    @abc.abstractmethod
    def close(self) -> None:
        """Releases threads, processes and files, and ends the iteration."""

    def next(self: Iterator[_T]) -> _T:
        """Returns the next element, as ``next(iterator)`` does."""
        return next(self)

    def get_next(self) -> Any:
        """Returns the next element.

        Raises:
            OutOfRangeError: there are no more elements.

        >>> from unisono.data import Dataset
        >>> int(iter(Dataset.range(7, 9)).get_next())
        7
        """
        try:
            return next(self)
        except StopIteration:
            raise errors.OutOfRangeError("End of sequence.") from None

    def get_next_as_optional(self) -> Optional:
        """Returns the next element as an `Optional`, which is empty after the last.

        >>> from unisono.data import Dataset
        >>> iterator = iter(Dataset.range(1))
        >>> [bool(iterator.get_next_as_optional().has_value()) for _ in range(2)]
        [True, False]
        """
        if (ambient.current().state or frames.EAGER).is_compiled:
            raise host_inputs.NeedsHost
        try:
            return Optional(next(self), True, lambda: self.element_spec)
        except StopIteration:
            return Optional(None, False, lambda: self.element_spec)


def check_state(state: object, kind: str) -> None:
    """Raises `ValueError` unless `state` is a position of that kind."""
    if not isinstance(state, dict) or "position" not in state:
        raise ValueError(
            "Expected a position that get_state() returned, received "
            f"{type(state).__name__}."
        )
    if state.get("version") != VERSION:
        raise ValueError(
            f"The position has version {state.get('version')!r}; this release reads "
            f"version {VERSION}."
        )
    if state.get("kind") != kind:
        raise ValueError(
            f"The position is that of a {state.get('kind')!r}, and this iterator needs "
            f"that of a {kind!r}. Make the iterator as the program that saved it did."
        )
    position = state["position"]
    if not isinstance(position, dict) or not {"source", "pass", "index"} <= set(
        position
    ):
        raise ValueError(
            f"The position is damaged: get_state() never returns {position!r}."
        )


def other_dataset_error(error: Exception) -> ValueError:
    """Returns the error for a position that a dataset cannot read."""
    return ValueError(
        "The position was saved from a dataset that was made in another way: "
        f"{type(error).__name__}: {error}. Make the dataset in the same way as the "
        "program that saved it."
    )


class DatasetIterator(PositionedIterator):
    """Iterates over a `Dataset`; elements are NumPy arrays on the host.

    You can save and set the position, so that a program resumes where another one
    stopped.

    >>> from unisono.data import Dataset
    >>> dataset = Dataset.range(9).map(lambda x: x * x)
    >>> iterator = iter(dataset)
    >>> int(next(iterator)), int(iterator.get_next())
    (0, 1)
    >>> other = iter(dataset)
    >>> other.set_state(iterator.get_state())
    >>> int(next(other))
    4
    """

    # As in TensorFlow, each replica that calls `next` gets an element of its own.
    _serves_replicas = True

    def __init__(self, node: nodes.Node) -> None:
        super().__init__()
        self._node = node
        self._cursor = node.cursor()
        # A compiled function puts elements back that it did not use, so that the
        # position may be a little behind the cursor's.
        self._history = cursors.PositionHistory(self._cursor, 64)
        self._is_closed = False
        # The position when it was closed; the cursor cannot tell it any more.
        self._last: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} element_spec={self.element_spec}>"

    @property
    def element_spec(self) -> Any:
        """Returns the shapes and dtypes of an element."""
        return self._node.spec

    def pull(self) -> Any:
        """Takes the next element and returns it."""
        if self._is_closed:
            raise StopIteration
        found = self._returned.popleft() if self._returned else self._read()
        return elements.present(found)

    def _read(self) -> object:
        found = self._history.read(1)
        if not len(found):
            raise StopIteration
        # Now and then, since it costs more than reading a small element.
        if self._history.read_so_far % 256 == 0:
            self._history.forget_before(self._history.read_so_far - 256)
        return found[0]

    def put_back(self, element: object) -> None:
        """Puts back an element that `pull` returned and that was not used."""
        self._returned.appendleft(element)

    def get_state(self) -> dict[str, Any]:
        """Returns the position as plain data: dicts, lists, numbers and text.

        It counts the elements that were taken from this iterator, but not those that
        were read ahead.
        """
        if self._last is not None:
            return self._last
        index = self._history.read_so_far - len(self._returned)
        return {
            "kind": _KIND,
            "version": VERSION,
            "position": self._history.position_before(index),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Resumes from a position that an iterator of the same dataset returned.

        Raises:
            ValueError: the state is not a position, or belongs to another kind of
                dataset.
        """
        check_state(state, _KIND)
        # If the position is refused, the iterator stays where it was.
        before = self._history.position_before(self._history.read_so_far)
        try:
            self._history.return_to(state["position"])
            self._returned.clear()
        except Exception as e:
            self._history.return_to(before)
            if not isinstance(e, (KeyError, TypeError, IndexError)):
                raise
            raise other_dataset_error(e) from e

    def close(self) -> None:
        """Releases threads, processes and files, and ends the iteration."""
        if not self._is_closed:
            with contextlib.suppress(Exception):
                # A source that failed may not tell its position; closing goes on.
                self._last = self.get_state()
        self._is_closed = True
        self._cursor.close()


def iterate(node: nodes.Node) -> DatasetIterator:
    """Returns an iterator over a plan.

    Raises:
        NeedsHost: inside a compiled function, so that the host iterates instead.
    """
    if (ambient.current().state or frames.EAGER).is_compiled:
        raise host_inputs.NeedsHost
    return DatasetIterator(node)


class NumpyIterator:
    """Iterates over a dataset; elements are NumPy arrays, scalars and `bytes`.

    >>> from unisono.data import Dataset
    >>> next(NumpyIterator(Dataset.range(3, 5))).item()
    3
    """

    def __init__(self, dataset: Iterable[Any]) -> None:
        self._iterator: Any = iter(dataset)

    def __iter__(self) -> NumpyIterator:
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._iterator!r}>"

    def __next__(self) -> Any:
        return elements.map_leaves(elements.to_plain, next(self._iterator))

    def next(self: Iterator[_T]) -> _T:
        """Returns the next element, as ``next(iterator)`` does.

        >>> from unisono.data import Dataset
        >>> Dataset.range(3, 5).as_numpy_iterator().next().item()
        3
        """
        return next(self)

    def get_state(self) -> dict[str, Any]:
        """Returns the position as plain data, which a checkpoint can save."""
        state: dict[str, Any] = self._iterator.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Resumes from a position that an iterator of the same dataset returned."""
        self._iterator.set_state(state)


def make_one_shot_iterator(dataset: Iterable[Any]) -> DatasetIterator:
    """Returns an iterator over a dataset, as ``iter(dataset)`` does.

    Args:
        dataset: the dataset.

    >>> import unisono
    >>> dataset = unisono.data.Dataset.range(3)
    >>> iterator = unisono.compat.v1.data.make_one_shot_iterator(dataset)
    >>> [int(iterator.get_next()) for _ in range(3)]
    [0, 1, 2]
    """
    made: DatasetIterator = iter(dataset)  # type: ignore[assignment]
    return made


publish("unisono.experimental", Optional)
