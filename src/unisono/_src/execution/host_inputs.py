"""Lets compiled functions take elements from iterators of the host.

A step may call ``next(iterator)``, and an epoch may loop ``for batch in dataset``. An
XLA program can do neither. In the first case the element becomes one more argument of
the program, which is pulled from the iterator before each call. In the second case the
function runs on the host, and the functions that it passes to `Strategy.run` are
compiled.
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
    """A traced function asked an iterator for an element that was not prepared."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self.source = source


class NeedsHost(errors.Signal):
    """A traced function must run on the host, for example to loop over a dataset."""


class EndOfSequenceError(errors.OutOfRangeError, StopIteration):
    """An iterator of a compiled function has ended.

    It is TensorFlow's error and Python's, so that programs may catch either.
    """

    def __init__(self) -> None:
        super().__init__("End of sequence.")


class HostIterator(abc.ABC):
    """An iterator over elements of the host, also in compiled functions; abstract.

    Attributes:
        _serves_replicas: whether each replica may take an element of its own.
        _returned: elements that were pulled and given back.
    """

    _serves_replicas: ClassVar[bool] = False

    def __init__(self) -> None:
        self._returned: collections.deque[Any] = collections.deque()

    def __iter__(self) -> HostIterator:
        if (ambient.current().state or frames.EAGER).is_compiled:
            # Only the host knows how many turns a loop takes.
            raise NeedsHost
        return self

    def __next__(self) -> Any:
        frame = ambient.current()
        is_compiled = (frame.state or frames.EAGER).is_compiled
        if frame.mode == ambient.REPLICA and frame.replica is not None:
            if self._serves_replicas and not is_compiled:
                return self.pull()
            raise ValueError(
                "next(iterator) was called inside a replica function. Call it in "
                "cross-replica context: take the element outside strategy.run and pass "
                "it in args."
            )
        return take(frame.state, self) if is_compiled else self.pull()

    @abc.abstractmethod
    def pull(self) -> Any:
        """Return the next element from the host, even while a program is traced."""

    @abc.abstractmethod
    def put_back(self, element: Any) -> None:
        """Take back an unused element, so that the next `pull` gives it again."""


@final
class Handle:
    """Stands for an iterator among the arguments of a function being traced.

    Args:
        index: which of the iterators among the arguments it is.
    """

    def __init__(self, index: int) -> None:
        self.index = index

    def __iter__(self) -> Handle:
        raise NeedsHost

    def __next__(self) -> Any:
        return take(ambient.current().state, self.index)

    def get_next(self) -> Any:
        """Return the next element, as ``next`` does."""
        return next(self)

    def get_next_as_optional(self) -> Any:
        """Raise `NeedsHost`: only the host knows whether there is a next element."""
        raise NeedsHost


@final
class Feeds:
    """The elements prepared for one trace, in the order in which it takes them.

    Args:
        prepared: pairs of an element's source (see `resolve`) and the element.
    """

    def __init__(self, prepared: Sequence[tuple[Any, Any]]) -> None:
        self._prepared = list(prepared)
        self._next = 0

    def take(self, source: Any) -> Any:
        """Return the next prepared element, which must come from `source`.

        Raises:
            NeedsFeed: all prepared elements are taken.
            RuntimeError: the next prepared element comes from another source.
        """
        if self._next >= len(self._prepared):
            raise NeedsFeed(source)
        planned, element = self._prepared[self._next]
        if planned is not source and planned != source:
            raise RuntimeError(
                "The function takes elements from its iterators in another order than "
                "when it was traced first. Make the order independent of Python state."
            )
        self._next += 1
        return element


def take(frame: Any, source: Any) -> Any:
    """Return the next element from `source` for the program being traced.

    Args:
        frame: the current frame of variable values.
        source: an iterator, or the number of one among the arguments.
    """
    while not isinstance(frame, frames.FunctionFrame):
        frame = frame.parent
    return frame.feeds.take(source)


def resolve(source: Any, iterators: Sequence[HostIterator]) -> HostIterator:
    """Return the iterator of a source, which may be a number among the arguments."""
    return iterators[source] if isinstance(source, int) else source


def pull_all(
    plan: Sequence[Any], iterators: Sequence[HostIterator]
) -> list[tuple[Any, Any]]:
    """Return a pair of source and element for each source of a plan.

    If this fails, the elements pulled so far go back to their iterators.

    Raises:
        EndOfSequenceError: an iterator has ended.
    """
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
    """Put elements that were not used back into their iterators."""
    # In reverse, because one iterator may have given several elements.
    for source, element in reversed(pulled):
        resolve(source, iterators).put_back(element)


# Values of these types are compared by value, all others by identity.
_SCALARS = (bool, int, float, complex, str, bytes, type(None))


def closure_key(fn: Callable[..., Any]) -> Any:
    """Return a key that is equal for functions of equal code and captured objects.

    A function defined inside another one is a new object on every call of the outer
    function. By its key it is recognised, so that it is not compiled again.
    """
    if isinstance(fn, functools.partial):
        given = [*fn.args, *sorted(fn.keywords.items())]
        return (closure_key(fn.func), tuple(_capture_key(x) for x in given))
    inner = getattr(fn, "__func__", None)
    if inner is not None:
        # A bound method; mypy does not know that it has `__self__`.
        return (closure_key(inner), Identity(fn.__self__))  # type: ignore[attr-defined]
    code = getattr(fn, "__code__", None)
    if code is None:
        return Identity(fn)
    try:
        captured = tuple(_capture_key(c.cell_contents) for c in fn.__closure__ or ())
    except ValueError:
        # A captured name has no value yet.
        return Identity(fn)
    defaults = [*(fn.__defaults__ or ()), *sorted((fn.__kwdefaults__ or {}).items())]
    return (code, captured, tuple(_capture_key(x) for x in defaults))


def _capture_key(x: Any) -> Any:
    """Return a hashable stand-in for a captured object."""
    if isinstance(x, tuple):
        return tuple(_capture_key(part) for part in x)
    # With the type, because 1, 1.0 and True are equal.
    return (type(x), x) if isinstance(x, _SCALARS) else Identity(x)
