"""`map`: a user's function applied to every element."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.input.plan import cursors, elements, nodes

AUTOTUNE = -1
# A function that takes less than this gains nothing from threads.
_WORTH_A_THREAD = 200e-6
_SAMPLES = 8


def call(fn: Callable[..., Any], element: Any) -> Any:
    """Call a user's function: the parts of a tuple are its arguments.

    Raises:
        RuntimeError: it raised `StopIteration`, which would end the data.
    """
    try:
        if isinstance(element, tuple) and not hasattr(element, "_fields"):
            return fn(*element)
        return fn(element)
    except StopIteration as e:
        raise cursors.no_end(f"The function {getattr(fn, '__name__', fn)}") from e


def apply(fn: Callable[..., Any], element: Any) -> Any:
    """What `map` makes of an element."""
    result = call(fn, element)
    if isinstance(result, list):
        # Here, and only here, a list is structure to TensorFlow as well.
        result = tuple(result)
    return elements.convert(result)


def apply_and_copy(fn: Callable[..., Any], element: Any) -> Any:
    """The same in memory of its own: a function may fill one array again and again."""
    made = apply(fn, element)
    if type(made) is np.ndarray:
        return made.copy()
    return elements.map_leaves(elements.owned, made)


@final
class _Mapped(cursors.Called):
    """One after the other.

    Args:
        source: gives the elements.
        fn: the user's function.
        is_lent: whether who reads a single element has copied it before the next read.
    """

    def __init__(
        self, source: cursors.Cursor, fn: Callable[..., Any], is_lent: bool = False
    ) -> None:
        super().__init__(source)
        self._fn, self._is_lent = fn, is_lent

    def read(self, count: int) -> list[Any]:
        fn, block = self._fn, self._block(count)
        make = apply if self._is_lent and count == 1 else apply_and_copy
        try:
            return [make(fn, element) for element in block]
        except BaseException:
            self._keep(block)
            raise


@final
class _Unread:
    """What the source raised instead of an element, until its turn comes."""

    def __init__(self, exception: Exception) -> None:
        self._exception = exception

    def result(self) -> Any:
        """Raise it."""
        try:
            raise self._exception
        finally:
            # Else the exception would keep itself alive, and the threads.
            del self


@final
class _Threaded(cursors.Cursor):
    """Several at a time in threads, in the order of the source."""

    def __init__(
        self, source: cursors.Cursor, fn: Callable[..., Any], threads: int
    ) -> None:
        self._source = source
        self._fn = fn
        self._threads = threads
        self._trail = cursors.Trail(source, max(64, 2 * threads))
        self._waiting: collections.deque[Any] = collections.deque()
        self._given = 0
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None

    def read(self, count: int) -> list[Any]:
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(
                self._threads, thread_name_prefix="unisono-map"
            )
        found: list[Any] = []
        while len(found) < count:
            self._submit(min(count - len(found), self._threads) + self._threads)
            if not self._waiting:
                break
            # What the source raised instead of an element is not counted there.
            self._given += not isinstance(self._waiting[0], _Unread)
            # In no variable: what it raises would keep this frame and the threads.
            found.append(self._waiting.popleft().result())
        self._trail.forget_before(self._given)
        return found

    def _submit(self, wanted: int) -> None:
        assert self._pool is not None
        if len(self._waiting) > self._threads:
            return
        for _ in range(wanted - len(self._waiting)):
            try:
                block = self._trail.read(1)
            except Exception as e:
                # In its turn: what was read before it is not lost.
                self._waiting.append(_Unread(e))
                return
            if not len(block):
                return
            self._waiting.append(self._pool.submit(apply_and_copy, self._fn, block[0]))

    def get_state(self) -> dict[str, Any]:
        return {"trail": self._trail.before(self._given)}

    def set_state(self, state: dict[str, Any]) -> None:
        self._stop()
        self._trail.return_to(state["trail"])
        self._given = self._trail.read_so_far

    def _stop(self) -> None:
        self._waiting.clear()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        self._stop()
        self._source.close()

    def __del__(self) -> None:
        pool = self._pool
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


@final
class _Tuned(cursors.Cursor):
    """Begins one after the other, and goes on in threads if the function is slow."""

    def __init__(self, source: cursors.Cursor, fn: Callable[..., Any]) -> None:
        self._source = source
        self._fn = fn
        self._took: list[float] = []
        self._inner: cursors.Cursor | None = None

    def read(self, count: int) -> list[Any]:
        if self._inner is not None:
            return self._inner.read(count)  # type: ignore[return-value]
        found: list[Any] = []
        while len(found) < count and len(self._took) < _SAMPLES:
            one = self._source.read(1)
            if not one:
                return found
            start = time.perf_counter()
            found.append(apply_and_copy(self._fn, one[0]))
            self._took.append(time.perf_counter() - start)
        if len(self._took) == _SAMPLES:
            slow = sorted(self._took)[_SAMPLES // 2] > _WORTH_A_THREAD
            self._inner = (
                _Threaded(self._source, self._fn, _cores())
                if slow
                else _Mapped(self._source, self._fn)
            )
            if len(found) < count:
                found.extend(self._inner.read(count - len(found)))
        return found

    def skip(self, count: int) -> int:
        return super().skip(count) if self._inner is None else self._inner.skip(count)

    def get_state(self) -> dict[str, Any]:
        if self._inner is None:
            return {"trail": cursors.at(self._source.get_state())}
        found = self._inner.get_state()
        return found if "trail" in found else {"trail": cursors.at(found["source"])}

    def set_state(self, state: dict[str, Any]) -> None:
        if self._inner is not None:
            self._inner.set_state(state)
            return
        self._source.set_state(state["trail"]["source"])
        self._source.skip(state["trail"]["pass"])

    def cancel(self) -> None:
        self._source.cancel()

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()
        self._source.close()


def _cores() -> int:
    return max(2, os.cpu_count() or 2)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Map(nodes.Unary, nodes.Disturbed):
    """A function of every element.

    Attributes:
        fn: the user's function.
        parallel: None, a number of threads, or `AUTOTUNE`.
        run: makes the cursor, where threads do not.
    """

    fn: Callable[..., Any]
    parallel: int | None = None
    run: Callable[[Map], cursors.Cursor] | None = None
    samples_spec = True

    def cursor(self) -> cursors.Cursor:
        """What the function makes of each element."""
        if self.run is not None:
            return self.run(self)
        source = self.parent.cursor()
        if self.parallel is None or self.parallel == 1:
            return _Mapped(source, self.fn)
        if self.parallel == AUTOTUNE:
            return _Tuned(source, self.fn)
        return _Threaded(source, self.fn, self.parallel)

    @property
    def cardinality(self) -> int:
        """That of the parent."""
        return self.parent.cardinality

    def sampled(self) -> nodes.Node:
        """For one element no process is started."""
        return self if self.run is None else Map(self.parent, self.fn)

    def _spec(self) -> Any:
        return mapped_spec(lambda e: elements.spec_of(apply(self.fn, e)), self.parent)

    def __str__(self) -> str:
        return f"Map({getattr(self.fn, '__name__', type(self.fn).__name__)})"


def lending_cursor(node: nodes.Node) -> cursors.Cursor:
    """The cursor of a plan, for who copies each element before reading the next."""
    if type(node) is Map and node.parallel in (None, 1):
        return _Mapped(node.parent.cursor(), node.fn, is_lent=True)
    return node.cursor()


def mapped_spec(spec_of: Callable[[Any], Any], parent: nodes.Node) -> Any:
    """The spec of what a function makes of elements, found with the first of them.

    It is asked a second time with one row less where the size of a batch is not fixed;
    what changes then is not fixed either.

    Args:
        spec_of: the spec of what the function makes of one element.
        parent: the elements.
    """
    sample = nodes.first(parent)
    wanted = parent.spec
    if sample is None:
        sample = parent.example()
    found = spec_of(sample)
    if any(s.shape is None for s in elements.leaves(wanted)):
        return elements.map_leaves(lambda s: specs.TensorSpec(None, s.dtype), found)
    if not any(None in (s.shape or ()) for s in elements.leaves(wanted)):
        return found
    try:
        other = spec_of(_shrink(sample, wanted))
    except Exception:
        return found
    if [p for p, _ in elements.paths(found)] != [p for p, _ in elements.paths(other)]:
        return found
    others = iter(elements.leaves(other))
    return elements.map_leaves(lambda s: merge_specs(s, next(others)), found)


def _shrink(sample: Any, wanted: Any) -> Any:
    """The sample with another size along every axis that is not fixed."""
    specs_ = iter(elements.leaves(wanted))

    def one(x: Any) -> Any:
        array, spec = elements.as_array(x), next(specs_)
        for axis, size in enumerate(spec.shape or ()):
            if size is None:
                now = array.shape[axis]
                keep = range(now - 1) if now > 1 else [0, 0]
                array = array.take(list(keep), axis)
        return array

    return elements.map_leaves(one, sample)


def merge_specs(a: Any, b: Any) -> Any:
    if isinstance(a, specs.DatasetSpec):
        return a
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return specs.TensorSpec(None, a.dtype)
    shape = [x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)]
    return specs.TensorSpec(shape, a.dtype)
