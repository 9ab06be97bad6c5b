"""`map` and `scan`: apply a function of the program to every element."""

from __future__ import annotations

import collections
import functools
import os
import time
from collections.abc import Callable
from typing import Any, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import ambient
from unisono._src.foundation.process_bound import ProcessBound
from unisono._src.input.plan import (
    carried_states,
    cursors,
    elements,
    host_buffers,
    nodes,
)
from unisono._src.input.stages import thread_calls

AUTOTUNE = -1
# With AUTOTUNE the first calls are timed; threads pay for a function whose median call
# takes longer than this many seconds. Fewer calls are enough if they take much longer.
_WORTH_A_THREAD = 200e-6
_SAMPLES, _FEW_SAMPLES = 8, 3
_MUCH_LONGER = 5
# A reader of many elements waits for a quarter of them at once, and for no more than so
# many of each thread.
_MOST_AT_ONCE = 4

_Rows = host_buffers.BatchRows | None


def call(fn: Callable[..., Any], element: object) -> object:
    """Calls a user's function; a tuple is passed as several arguments.

    Raises:
        RuntimeError: the function raised `StopIteration`, which would silently end the
            data.
    """
    # The everyday names compute on the host meanwhile.
    before = ambient.enter_dataset(True)
    try:
        return _call(fn, element)
    finally:
        ambient.enter_dataset(before)


def _call(fn: Callable[..., Any], element: object) -> object:
    """Calls a user's function, while the thread is said to be in a dataset's."""
    given = elements.lend(element)
    try:
        # As in TensorFlow, a named tuple is passed as one argument.
        if type(given) is tuple or (
            isinstance(given, tuple) and not hasattr(given, "_fields")
        ):
            return fn(*given)
        return fn(given)
    except StopIteration as e:
        raise cursors.stop_iteration_error(
            f"The function {getattr(fn, '__name__', fn)}"
        ) from e


def apply(fn: Callable[..., Any], element: object) -> object:
    """Returns the element that `map` makes of an element."""
    return elements.convert(_to_structure(call(fn, element)))


def apply_and_copy(fn: Callable[..., Any], element: object) -> object:
    """Returns what `apply` returns, in memory of its own.

    The function may fill one array again and again, and the reader may keep elements.
    """
    return elements.convert_and_copy(_to_structure(call(fn, element)))


def _compute(
    fn: Callable[..., Any], element: object, copy: thread_calls.Copy | None
) -> object:
    """Returns what a thread makes of an element, in memory of its own."""
    return elements.convert_and_copy(_to_structure(_call(fn, element)), copy)


def _to_structure(result: object) -> object:
    """Returns the result of a map's function; a list of it is a tuple."""
    # The result of a map is the only place where TensorFlow, too, takes a list for a
    # structure; elsewhere a list is an array.
    return tuple(result) if isinstance(result, list) else result


@final
class _Mapped(cursors.FunctionCursor):
    """Calls the function for one element after the other.

    Args:
        source: gives the elements.
        fn: the user's function.
        is_lent: whether the reader copies each single element before it reads the
            next; then the result need not be copied here.
    """

    def __init__(
        self, source: cursors.Cursor, fn: Callable[..., Any], is_lent: bool = False
    ) -> None:
        super().__init__(source)
        self._fn, self._is_lent = fn, is_lent

    def read(self, count: int) -> list[Any]:
        fn, block = self._fn, self._block(count)
        is_lent = self._is_lent and count == 1
        finish = elements.convert if is_lent else elements.convert_and_copy
        # Said once for the block, not for every element.
        before = ambient.enter_dataset(True)
        try:
            return [finish(_to_structure(_call(fn, element))) for element in block]
        except BaseException:
            self._keep(block)
            raise
        finally:
            ambient.enter_dataset(before)


@final
class _Threaded(ProcessBound, cursors.Cursor):
    """Calls the function in threads; the order of the source is kept.

    Args:
        source: gives the elements.
        fn: the user's function.
        most: how many calls run at the same time.
        rows: the batches that a reader makes of all elements, if it is one that does.
    """

    _bound_title = "An iterator with threads"
    _instead = "Save its get_state(), and give that to set_state of another iterator."
    # Of an object whose `__init__` did not end, too.
    _calls: thread_calls.ThreadCalls | None = None

    def __init__(
        self,
        source: cursors.Cursor,
        fn: Callable[..., Any],
        most: int,
        rows: _Rows,
    ) -> None:
        self._source, self._rows, self._most = source, rows, most
        self._history = cursors.PositionHistory(source, max(64, 2 * most))
        self._calls = thread_calls.ThreadCalls(functools.partial(_compute, fn), most)
        # What threads work at, what the source has raised after it, and what is done.
        self._waiting: collections.deque[thread_calls.Call] = collections.deque()
        self._unread: thread_calls.Outcome | None = None
        self._ready: collections.deque[thread_calls.Outcome] = collections.deque()
        self._given = 0

    def read(self, count: int) -> list[Any]:
        # Of many elements some are waited for at once: to wake this thread costs some
        # tens of microseconds.
        size = max(1, min(_MOST_AT_ONCE * self._most, count // _MOST_AT_ONCE))
        found: list[Any] = []
        while len(found) < count:
            if not self._ready and not self._wait(min(size, count - len(found))):
                break
            # An exception of the source is no element; the history did not count it.
            if self._ready[0].mark is None:
                self._given += 1
            else:
                self._history.remember(self._ready[0].mark)
            # Not in a variable: if it raises, the traceback would hold it, and through
            # it the threads.
            found.append(self._ready.popleft().result())
        self._history.forget_before(self._given)
        return found

    def _wait(self, wanted: int) -> bool:
        """Waits until the next elements are done; False if there are none.

        Args:
            wanted: how many to wait for, if there are as many.
        """
        # As many are under way beyond those, and at least one for each thread: while
        # the reader uses its elements, no thread is idle.
        self._begin(wanted + max(wanted, self._most))
        if self._waiting:
            assert self._calls is not None
            self._calls.begin()
            wanted = min(wanted, len(self._waiting))
            # The last one first: then hardly any other has to be waited for.
            self._waiting[wanted - 1].outcome()
            for _ in range(wanted):
                # Taken out when it is there: the wait may be interrupted.
                self._ready.append(self._waiting[0].outcome())
                self._waiting.popleft()
        elif self._unread is not None:
            self._ready.append(self._unread)
            self._unread = None
        return bool(self._ready)

    def _begin(self, wanted: int) -> None:
        """Gives the threads elements until `wanted` calls are under way."""
        assert self._calls is not None
        while len(self._waiting) < wanted and self._unread is None:
            try:
                one = self._history.read(1)
            except Exception as e:
                # Raised in its turn, so that no earlier element is lost.
                mark = self._history.forget_failure()
                self._unread = thread_calls.Outcome(None, e, mark)
                return
            if not len(one):
                return
            copy = self._rows.copiers(1)[0] if self._rows else None
            self._waiting.append(thread_calls.Call(one[0], copy))
            self._calls.add(self._waiting[-1])

    def _waits_for_exception(self) -> bool:
        """Whether the source has raised what no one has been told yet."""
        is_next = bool(self._ready) and self._ready[-1].mark is not None
        return is_next or self._unread is not None

    def get_state(self) -> dict[str, Any]:
        # Results that no one has read are made again after a restore.
        if self._waits_for_exception():
            return {"trail": self._history.remembered_position(self._given)}
        return {"trail": self._history.position_before(self._given)}

    def set_state(self, state: dict[str, Any]) -> None:
        self._stop()
        self._history.return_to(state["trail"])
        self._given = self._history.read_so_far

    def _stop(self) -> None:
        """Waits for the calls that have begun, and forgets all."""
        assert self._calls is not None
        self._calls.cancel()
        for call in self._waiting:
            call.outcome()
        self._waiting.clear()
        self._ready.clear()
        self._unread = None
        if self._rows:
            self._rows.begin()

    def close(self) -> None:
        self._stop()
        self._source.close()

    def __del__(self) -> None:
        if self._calls is not None:
            self._calls.cancel()


@final
class _Tuned(cursors.Cursor):
    """Times the first calls, and continues in threads if the function is slow.

    Args:
        source: gives the elements.
        fn: the user's function.
        took: the seconds of the first calls; those of an earlier epoch count, too.
        rows: the batches that a reader makes of all elements, if it is one that does.
    """

    def __init__(
        self,
        source: cursors.Cursor,
        fn: Callable[..., Any],
        took: list[float],
        rows: _Rows,
    ) -> None:
        self._source, self._fn = source, fn
        self._took, self._rows = took, rows
        self._inner: cursors.Cursor | None = None

    def read(self, count: int) -> list[Any]:
        if self._inner is not None:
            # Both inner cursors return lists, which their base class does not promise.
            return self._inner.read(count)  # type: ignore[return-value]
        found: list[Any] = []
        is_slow = _are_slow(self._took)
        while len(found) < count and is_slow is None:
            one = self._source.read(1)
            if not one:
                return found
            start = time.perf_counter()
            found.append(apply_and_copy(self._fn, one[0]))
            self._took.append(time.perf_counter() - start)
            is_slow = _are_slow(self._took)
        if is_slow is not None:
            if self._rows:
                self._rows.begin(len(found))
            self._inner = (
                _Threaded(self._source, self._fn, _cores(), self._rows)
                if is_slow
                else _Mapped(self._source, self._fn)
            )
            if len(found) < count:
                found.extend(self._inner.read(count - len(found)))
        return found

    def skip(self, count: int) -> int:
        return super().skip(count) if self._inner is None else self._inner.skip(count)

    def get_state(self) -> dict[str, Any]:
        if self._inner is None:
            return {"trail": cursors.history_state_at(self._source.get_state())}
        # Always that of a history: after a restore the times may choose the other kind
        # of cursor.
        found = self._inner.get_state()
        return (
            found
            if "trail" in found
            else {"trail": cursors.history_state_at(found["source"])}
        )

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


def _are_slow(took: list[float]) -> bool | None:
    """Returns whether threads pay for calls; None if more of them must be timed.

    Args:
        took: the seconds of the first calls.
    """
    if len(took) < _FEW_SAMPLES:
        return None
    # The median: the first call may load a library, or fill a cache.
    median = sorted(took)[len(took) // 2]
    if len(took) < _SAMPLES and median <= _MUCH_LONGER * _WORTH_A_THREAD:
        return None
    return median > _WORTH_A_THREAD


def _cores() -> int:
    return max(2, os.cpu_count() or 2)


@final
class Map(nodes.SameCount, nodes.ChangedByReading):
    """The results of a function of every element.

    Attributes:
        fn: the user's function.
        parallel: None, a number of threads, or `AUTOTUNE`.
        run: makes the cursor if the map runs in processes.
    """

    fn: Callable[..., Any]
    parallel: int | None = None
    run: Callable[[Map], cursors.Cursor] | None = None
    samples_spec = True

    def cursor(self, rows: _Rows = None) -> cursors.Cursor:
        """Returns a cursor that calls the function for each element.

        Args:
            rows: the batches that the reader makes of all elements, if it is one that
                does.
        """
        if self.run is not None:
            return self.run(self)
        source = self.parent.cursor()
        host_buffers.keep_freed_memory()
        if self.parallel is None or self.parallel == 1:
            return _Mapped(source, self.fn)
        if self.parallel == AUTOTUNE:
            return _Tuned(source, self.fn, self._took, rows)
        return _Threaded(source, self.fn, self.parallel, rows)

    @functools.cached_property
    def _took(self) -> list[float]:
        """Returns the seconds of the first calls, which the cursors share."""
        return []

    def make_sample(self) -> nodes.Node:
        """Returns the same map in this process: one element needs no other process."""
        return self if self.run is None else Map(self.parent, self.fn)

    def _spec(self) -> elements.Spec:
        return mapped_spec(lambda e: elements.spec_of(apply(self.fn, e)), self.parent)

    def __str__(self) -> str:
        return f"Map({getattr(self.fn, '__name__', type(self.fn).__name__)})"


def lending_cursor(node: nodes.Node) -> cursors.Cursor:
    """Returns a cursor for a reader that copies each element before the next read."""
    if type(node) is Map and node.run is None and node.parallel in (None, 1):
        return _Mapped(node.parent.cursor(), node.fn, is_lent=True)
    return node.cursor()


def mapped_spec(
    spec_of: Callable[[Any], elements.Spec], parent: nodes.Node
) -> elements.Spec:
    """Returns the spec of a function's results, found with the first element.

    Where a size of the elements is not fixed, the function is called a second time with
    another size; sizes of the result that change then are not fixed either.

    Args:
        spec_of: returns the spec of the function's result for one element.
        parent: the elements.
    """
    wanted = parent.spec
    pair = nodes.first_result(parent, lambda element: (element, spec_of(element)))
    if pair is None:
        example = parent.example()
        pair = example, spec_of(example)
    sample: Any = pair[0]
    found: elements.Spec = pair[1]
    if any(s.shape.rank is None for s in elements.leaves(wanted)):
        return elements.map_specs(lambda s: specs.TensorSpec(None, s.dtype), found)
    if not any(None in (s.shape or ()) for s in elements.leaves(wanted)):
        return found
    try:
        other = spec_of(_shrink(sample, wanted))
    except Exception:
        # The function may not work with a size that never occurs.
        return found
    if [p for p, _ in elements.paths(found)] != [p for p, _ in elements.paths(other)]:
        return found
    others = iter(elements.leaves(other))
    return elements.map_specs(lambda s: merge_specs(s, next(others)), found)


def _shrink(sample: object, wanted: object) -> object:
    """Returns the sample with another size along every axis that is not fixed."""
    specs_ = iter(elements.leaves(wanted))

    def one(x: object) -> object:
        array, spec = elements.as_array(x), next(specs_)
        for axis, size in enumerate(spec.shape or ()):
            if size is None:
                now = array.shape[axis]
                # One row less, or the only row twice: no
                # rows at all would break many functions.
                keep = range(now - 1) if now > 1 else [0, 0]
                array = array.take(list(keep), axis)
        return array

    return elements.map_leaves(one, sample)


def merge_specs(a: Any, b: Any) -> specs.TypeSpec:
    """Returns the spec that arrays of both specs fit; None where sizes differ."""
    if isinstance(a, specs.DatasetSpec):
        return a
    if a.shape.rank is None or a.shape.rank != b.shape.rank:
        return specs.TensorSpec(None, a.dtype)
    shape = [x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)]
    return specs.TensorSpec(shape, a.dtype)


def _to_plain(x: object) -> dict[str, Any]:
    """Returns an array as plain data, for a position."""
    array = elements.as_array(x)
    flat = array.ravel().tolist()
    if array.dtype.kind == "O":
        # Latin-1 maps every byte to one character and back.
        flat = [text.decode("latin-1") for text in flat]
    return {"type": str(array.dtype), "shape": list(array.shape), "values": flat}


def _from_plain(saved: dict[str, Any]) -> object:
    """Returns the array of which `_to_plain` made plain data."""
    flat = np.empty(len(saved["values"]), saved["type"])
    for index, value in enumerate(saved["values"]):
        flat[index] = value.encode("latin-1") if isinstance(value, str) else value
    array = flat.reshape(saved["shape"])
    return array[()] if array.ndim == 0 else array


@final
class _Scanned(cursors.FunctionCursor):
    """Calls the function with the carried state and each element."""

    # Skipping must call it, too: each call changes the state.
    sees_all = True

    def __init__(self, source: cursors.Cursor, node: Scan) -> None:
        super().__init__(source)
        self._node, self._state = node, node.initial

    def read(self, count: int) -> list[Any]:
        found, block = [], self._block(count)
        try:
            for element in block:
                self._state, out = self._node.call(self._state, element)
                found.append(elements.map_leaves(elements.copy_array, out))
        except BaseException:
            # The elements after the one that raised are not lost.
            self._keep(block)
            raise
        return found

    def get_state(self) -> dict[str, Any]:
        carried = [_to_plain(x) for x in elements.leaves(self._state)]
        return {"carried": carried, **super().get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        arrays = iter([_from_plain(c) for c in state["carried"]])
        self._state = elements.map_leaves(lambda _: next(arrays), self._node.initial)


@final
class Scan(nodes.SameCount):
    """The results of a function of every element and a carried state.

    Attributes:
        initial: the state before the first element.
        fn: takes a state and an element, and returns the next state and a new element.
        narrowed: which arrays of the state may become 64 bits wide.
    """

    initial: Any
    fn: Callable[[Any, Any], Any]
    narrowed: tuple[bool, ...] = ()
    samples_spec = True

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that carries the state."""
        return _Scanned(self.parent.cursor(), self)

    def call(self, state: object, element: object) -> tuple[Any, Any]:
        """Returns the next state and the new element.

        Raises:
            TypeError: the function returned no pair, or a state of other types.
        """
        return carried_states.advance(
            self._step, state, element, self.narrowed, "The state of scan"
        )

    def _step(self, state: object, element: object) -> tuple[Any, Any]:
        made = call(self.fn, (state, element))
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise TypeError(
                "`scan_func` must return a pair of the new state and the output, "
                f"received {made!r}."
            )
        return elements.convert(made[0]), elements.convert(made[1])

    def _spec(self) -> elements.Spec:
        def output_spec(element: object) -> elements.Spec:
            return elements.spec_of(self.call(self.initial, element)[1])

        return mapped_spec(output_spec, self.parent)
