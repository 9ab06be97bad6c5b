"""Inputs that a compiled function takes from the host while it runs.

A step may call ``next(iterator)``, and an epoch may loop ``for batch in dataset``.
Neither can happen inside an XLA program. In the first case the element becomes one
more argument of the program, pulled from the iterator before each call; in the second
the function runs on the host and what it passes to `Strategy.run` is compiled.
"""

from __future__ import annotations

import abc
import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

from unisono._src.execution.signature import Identity
from unisono._src.foundation import ambient, errors
from unisono._src.state import frames


class NeedsFeed(errors.Signal):
    """A traced function took the next element of an iterator it was not fed from."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self.source = source


class NeedsHost(errors.Signal):
    """A traced function loops over a dataset, so it must run on the host."""


class EndOfSequenceError(errors.OutOfRangeError, StopIteration):
    """A function has no more data: TensorFlow's error, and Python's."""

    def __init__(self) -> None:
        super().__init__("End of sequence.")


class HostIterator(abc.ABC):
    """Iterator over elements made on the host, also for compiled steps; abstract.

    Attributes:
        _serves_replicas: whether each replica may take an element of its own.
        _returned: elements that were pulled and given back.
    """

    _serves_replicas: ClassVar[bool] = False

    def __init__(self) -> None:
        self._returned: collections.deque[Any] = collections.deque()

    def __iter__(self) -> HostIterator:
        if (ambient.current().state or frames.EAGER).is_compiled:
            # How often a loop goes round is known on the host only.
            raise NeedsHost
        return self

    def __next__(self) -> Any:
        frame = ambient.current()
        is_compiled = (frame.state or frames.EAGER).is_compiled
        if frame.mode == ambient.REPLICA and frame.replica is not None:
            if self._serves_replicas and not is_compiled:
                return self.pull()
            raise ValueError(
                "next(iterator) must be called in cross-replica context: take the "
                "element outside strategy.run and pass it in args."
            )
        return take(frame.state, self) if is_compiled else self.pull()

    @abc.abstractmethod
    def pull(self) -> Any:
        """The next element, taken now."""

    @abc.abstractmethod
    def put_back(self, element: Any) -> None:
        """Undo a `pull` whose element was not used."""


@final
class Handle:
    """Stands for the k-th iterator among the arguments while tracing."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __iter__(self) -> Handle:
        raise NeedsHost

    def __next__(self) -> Any:
        return take(ambient.current().state, self.index)

    def get_next(self) -> Any:
        """The same as ``next``."""
        return next(self)

    def get_next_as_optional(self) -> Any:
        """Whether there is a next one is known on the host only."""
        raise NeedsHost


@final
class Feeds:
    """The elements prepared for one trace, in the order in which they are taken."""

    def __init__(self, prepared: Sequence[tuple[Any, Any]]) -> None:
        self._prepared = list(prepared)
        self._next = 0

    def take(self, source: Any) -> Any:
        """The next prepared element, which must come from `source`."""
        if self._next >= len(self._prepared):
            raise NeedsFeed(source)
        planned, element = self._prepared[self._next]
        if planned is not source and planned != source:
            raise RuntimeError(
                "The function takes elements from its iterators in another order than "
                "when it was traced first; make the order independent of Python state."
            )
        self._next += 1
        return element


def take(frame: Any, source: Any) -> Any:
    """An element for a program being traced."""
    while not isinstance(frame, frames.FunctionFrame):
        frame = frame.parent
    return frame.feeds.take(source)


def resolve(source: Any, iterators: Sequence[HostIterator]) -> HostIterator:
    """The iterator that a source names: itself, or one of the arguments."""
    return iterators[source] if isinstance(source, int) else source


def pull_all(
    plan: Sequence[Any], iterators: Sequence[HostIterator]
) -> list[tuple[Any, Any]]:
    """One element for each entry of a plan, or none at all if one is missing."""
    pulled: list[tuple[Any, Any]] = []
    try:
        for source in plan:
            pulled.append((source, resolve(source, iterators).pull()))
    except BaseException as e:
        put_back_all(pulled, iterators)
        if isinstance(e, StopIteration):
            raise EndOfSequenceError from None
        raise
    return pulled


def put_back_all(
    pulled: Sequence[tuple[Any, Any]], iterators: Sequence[HostIterator]
) -> None:
    """Return elements that were not used to their iterators."""
    for source, element in reversed(pulled):
        resolve(source, iterators).put_back(element)


_SCALARS = (bool, int, float, complex, str, bytes, type(None))


def closure_key(fn: Callable[..., Any]) -> Any:
    """Equal for functions that do the same: same code, same captured objects.

    A function defined inside another is a new object on every call of the outer one;
    this tells that it need not be compiled again.
    """
    if isinstance(fn, functools.partial):
        given = [*fn.args, *sorted(fn.keywords.items())]
        return (closure_key(fn.func), tuple(_token(x) for x in given))
    inner = getattr(fn, "__func__", None)
    if inner is not None:
        return (closure_key(inner), Identity(fn.__self__))  # type: ignore[attr-defined]
    code = getattr(fn, "__code__", None)
    if code is None:
        return Identity(fn)
    try:
        captured = tuple(_token(c.cell_contents) for c in fn.__closure__ or ())
    except ValueError:
        return Identity(fn)
    defaults = [*(fn.__defaults__ or ()), *sorted((fn.__kwdefaults__ or {}).items())]
    return (code, captured, tuple(_token(x) for x in defaults))


def _token(x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(_token(part) for part in x)
    return (type(x), x) if isinstance(x, _SCALARS) else Identity(x)
