"""Runs maps in worker processes, which Grain starts, feeds and stops."""

from __future__ import annotations

import dataclasses
import functools
import traceback
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any, final

from unisono._src.input.plan import cursors, elements, nodes
from unisono._src.input.sources import grain_sources
from unisono._src.input.stages import mapping, selecting


def _make_next(source: cursors.Cursor, fn: Callable[..., Any]) -> object:
    """Returns what the map makes of the next element, or a `Raised`; in a process.

    Grain would end a process that raises, and the elements left for it would be lost.
    """
    try:
        element = next(source)
    except StopIteration:
        raise
    except Exception as e:
        # Every process reads the source for itself, and a source that raised may be at
        # another place in each: their elements would not fit together any more.
        return Raised(e, is_last=True)
    try:
        return mapping.apply_and_copy(fn, element)
    except Exception as e:
        return Raised(e)


@functools.cache
def _plan_dataset() -> type:
    """Returns a Grain dataset class for plans; made when Grain is first needed."""
    import grain

    class PlanIterator(grain.DatasetIterator):
        """A cursor in a worker process."""

        def __init__(self, cursor: cursors.Cursor, fn: Callable[..., Any]) -> None:
            super().__init__()
            self._cursor, self._fn = cursor, fn

        def __next__(self) -> object:
            return _make_next(self._cursor, self._fn)

        def get_state(self) -> dict[str, Any]:
            return self._cursor.get_state()

        def set_state(self, state: dict[str, Any]) -> None:
            self._cursor.set_state(state)

    class PlanDataset(grain.IterDataset):
        """A plan whose share Grain chooses for each worker."""

        def __init__(self, node: mapping.Map, begin: dict[str, Any]) -> None:
            super().__init__()
            self._node, self._begin = node, begin
            self._share = (1, 0)

        # Grain's `mp_prefetch` calls this in every worker process, with the slice
        # [worker::workers], on each dataset that has such a method.
        def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
            self._share = (sl.step or 1, sl.start or 0)

        def __iter__(self) -> object:
            # Each process reads the source from the same position, and skips what the
            # others make: only the functions run in parallel.
            source = self._node.parent.cursor()
            source.set_state(self._begin)
            shard = selecting.ShardCursor(source, *self._share)
            return PlanIterator(shard, self._node.fn)

    return PlanDataset


@final
class Raised:
    """An exception that a worker process sends instead of an element.

    Attributes:
        exception: the exception, with the traceback of the process as a note.
        is_last: whether the process cannot continue.
    """

    def __init__(self, exception: Exception, is_last: bool = False) -> None:
        self.is_last = is_last
        trace = "".join(traceback.format_exception(exception))
        try:
            exception.add_note(f"In a worker process:\n{trace}")
            # Try it here: an exception that cannot be pickled would be lost on the way.
            reduction.ForkingPickler.loads(reduction.ForkingPickler.dumps(exception))
            self.exception = exception
        except Exception:
            told = f"{type(exception).__name__} in a worker process:\n{trace}"
            self.exception = RuntimeError(told)


@final
class _Sent(grain_sources.GrainCursor):
    """Reads the elements that worker processes send, and what they raised."""

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            try:
                one = next(self._iterator)
            except StopIteration:
                break
            except Exception as e:
                # A process has died, and with it the elements it would have made.
                one = Raised(e, is_last=True)
            found.append(one if isinstance(one, Raised) else elements.convert(one))
            if isinstance(one, Raised) and one.is_last:
                break
        return found


@final
class _Unpacked(cursors.FunctionCursor):
    """Reads elements of worker processes, and raises the exceptions of these."""

    _last: Exception | None = None

    def read(self, count: int) -> list[Any]:
        if self._last is not None:
            raise RuntimeError(
                "Worker processes cannot go on after their source raised an "
                "exception or one of them ended. Begin another iteration."
            ) from self._last
        found, block = [], self._block(count)
        for element in block:
            if isinstance(element, Raised):
                self._keep(block)
                self._last = element.exception if element.is_last else None
                raise element.exception
            found.append(element)
        return found

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues at a position, with new processes."""
        super().set_state(state)
        self._last = None


@final
class InProcesses(cursors.Cursor):
    """Runs a map in `count` worker processes; the order of the source is kept."""

    def __init__(self, node: mapping.Map, count: int) -> None:
        self._node, self._count = node, count
        self._begin: dict[str, Any] | None = None
        self._inner: _Sent | None = None

    def _open(self) -> _Sent:
        if self._inner is None:
            import grain

            # Grain reads absl's flags, which a program without absl never parses.
            grain_sources.allow_flags()
            if self._begin is None:
                source = self._node.parent.cursor()
                self._begin = source.get_state()
                source.close()
            options = grain.multiprocessing.MultiprocessingOptions(
                # Enough elements wait for a process to be never idle, few enough to
                # fit into memory.
                num_workers=self._count,
                per_worker_buffer_size=16,
            )
            dataset = _plan_dataset()(self._node, self._begin)
            self._inner = _Sent(iter(dataset.mp_prefetch(options)))
        return self._inner

    def read(self, count: int) -> list[Any]:
        """Returns the next elements, one from each process in turn."""
        return self._open().read(count)

    def get_state(self) -> dict[str, Any]:
        """Returns where the pass began, and where each process is."""
        inner = self._open().get_state()
        return {"begin": self._begin, "workers": self._count, "inner": inner}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues with as many processes as there were when the state was saved."""
        self.close()
        self._begin, self._count = state["begin"], state["workers"]
        self._open().set_state(state["inner"])

    def close(self) -> None:
        """Ends the processes that apply the function."""
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.close()


def _process_cursor(count: int, node: mapping.Map) -> cursors.Cursor:
    """Returns a cursor that runs a map in `count` worker processes."""
    return _Unpacked(InProcesses(dataclasses.replace(node, run=None), count))


def run_in_processes(node: nodes.Node, processes: int) -> nodes.Node:
    """Returns a plan whose parallel maps run in worker processes, if there are any."""
    if not processes:
        return node

    def change(node: nodes.Node) -> nodes.Node | None:
        if isinstance(node, mapping.Map) and node.parallel is not None:
            run = functools.partial(_process_cursor, processes)
            return dataclasses.replace(node, run=run)
        return None

    return nodes.rewrite(node, change)
