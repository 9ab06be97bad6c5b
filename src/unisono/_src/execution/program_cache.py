"""The cache of a function's compiled programs, which warns when there are many."""

from __future__ import annotations

import contextlib
import inspect
import logging
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

from unisono._src.execution import host_inputs, programs, traced_function
from unisono._src.foundation import whole_numbers
from unisono._src.values import jax_traces

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr

_log = logging.getLogger("unisono")

# After so many programs a function is named in the log.
_MANY = 32

# After so many programs that have gone, the traces of JAX's own functions go too. They
# take about 1/30 of a program's memory.
_GROUP = 256

# How many seconds a thread waits for another one that traces the same function. Then it
# traces by itself: the code that is traced may be waiting for this thread.
_TRACE_SECONDS = 60.0


@final
class _DroppedPrograms:
    """Counts the programs that have gone since JAX last forgot its traces."""

    count = 0


@final
class ProgramLimit:
    """Limits how many programs a function keeps, and knows which it used last.

    The functions that are made of one function, for strategies or for what it runs on
    the host, share its limit.

    Args:
        python_function: the function, which the log names.
        count: how many programs are kept; None for all of them.

    Attributes:
        count: how many programs are kept; None for all of them.

    Raises:
        TypeError: the count is no whole number.
        ValueError: the count is less than one.
    """

    def __init__(self, python_function: Callable[..., Any], count: int | None) -> None:
        self.count = count
        if count is not None:
            self.count = whole_numbers.integer(count, "max_programs")
            if isinstance(count, bool) or self.count < 1:
                raise ValueError(
                    "max_programs must be 1 or more, or None to keep every program, "
                    f"received {count!r}."
                )
        self._function = python_function
        self._traces = 0
        # From the least to the most recently used, each with its place. It stays empty
        # without a limit. A place is weak, so that a function can go with its strategy.
        self._by_age: dict[programs.Program, tuple[weakref.ref[ProgramCache], Any]] = {}
        # Threads may call at once.
        self._lock = threading.Lock()

    def note_trace(self, shapes: Any) -> None:
        """Count a trace; warn, once, when there are many.

        Args:
            shapes: the key of the trace's arguments (see `aval_key`).
        """
        self._traces += 1
        if self.count is None and self._traces == _MANY:
            _log.warning(
                "The function %s was traced %d times, because the shapes of its arrays "
                "or the values of its other arguments keep changing (the latest "
                "shapes: %s). Every compiled program stays in memory. Give all batches "
                "one shape (drop_remainder=True, or padding), and pass numbers that "
                "change as arrays. An input_signature turns numbers into arrays, but a "
                "size that it leaves open (None) is still compiled for each size. If "
                "shapes must change, unisono.function(..., max_programs=16) keeps only "
                "the 16 programs used last.",
                _describe(self._function),
                _MANY,
                ", ".join(str(shape) for shape, *_ in shapes[0]) or "none",
            )

    def use(self, program: programs.Program) -> None:
        """Note that a program is the one used last."""
        with self._lock:
            place = self._by_age.pop(program, None)
            if place is not None:
                self._by_age[program] = place

    def add(self, program: programs.Program, kept: ProgramCache, key: object) -> None:
        """Note a new program, and let those go that were not used for longest.

        Args:
            program: the program.
            kept: the programs of its function.
            key: its signature there.
        """
        assert self.count is not None
        gone = []
        with self._lock:
            self._by_age[program] = (weakref.ref(kept), key)
            while len(self._by_age) > self.count:
                oldest = next(iter(self._by_age))
                gone.append((oldest, *self._by_age.pop(oldest)))
        # Outside the lock: `release` goes into JAX.
        for oldest, alive, its_key in gone:
            holder = alive()
            if holder is not None:
                holder.forget(its_key, oldest)
            oldest.release()
        _DroppedPrograms.count += len(gone)
        if _DroppedPrograms.count >= _GROUP:
            _DroppedPrograms.count = 0
            jax_traces.forget_traced_functions()


@final
class ProgramCache:
    """The programs of a function, by signature.

    Args:
        limit: how many there may be.

    Attributes:
        limit: how many there may be.
        plans: by signature, which iterators a call takes elements from, in order.
    """

    def __init__(self, limit: ProgramLimit) -> None:
        self.limit = limit
        self.plans: dict[Any, list[Any]] = {}
        # Several if the function does other things for other shapes.
        self._programs: dict[Any, list[programs.Program]] = {}
        self._tracing = threading.RLock()

    @contextlib.contextmanager
    def wait_for_traces(self) -> Iterator[None]:
        """Run a block while no other thread traces the function, if that ends soon.

        So threads that call a new function at once trace it once, and create its
        variables once.
        """
        is_alone = self._tracing.acquire(timeout=_TRACE_SECONDS)
        try:
            yield
        finally:
            if is_alone:
                self._tracing.release()

    def find_fed(
        self, key: Any, leaves: list[Any], feeds: host_inputs.ElementFeeds
    ) -> programs.Program | None:
        """Return the program of a call, if there is one, and pull its elements.

        Args:
            key: the signature, without the elements.
            leaves: the arrays of the arguments.
            feeds: the elements that the call takes from iterators.
        """
        if not feeds.plan:
            for source in self.plans.get(key, ()):
                feeds.pull(source)
        fed_key = ((*key[0], *feeds.parts), *key[1:])
        return self.find(fed_key, [*leaves, *feeds.arrays])

    def find(self, key: object, leaves: Sequence[Any]) -> programs.Program | None:
        """Return the program of a signature for these arrays, if there is one."""
        known = self._programs.get(key, ())
        shapes = traced_function.aval_key(leaves) if known else None
        program = next((p for p in known if shapes in p.traces), None)
        if program is not None and self.limit.count is not None:
            self.limit.use(program)
        return program

    def find_only(self, key: object) -> programs.Program | None:
        """Return the program that serves every call with a signature, if one does.

        With a limit there is none: each call must tell which program it uses.
        """
        known = self._programs.get(key)
        if not known or len(known) > 1 or self.limit.count is not None:
            return None
        return known[0]

    def add(
        self, key: object, shapes: object, found: traced_function.TracedFunction
    ) -> programs.Program:
        """Return the program that serves a new trace."""
        self.limit.note_trace(shapes)
        if World.current is not None:
            _visited.add(self)
        known = self._programs.setdefault(key, [])
        # JAX drops all that it has compiled for a program, or nothing. So with a limit
        # each trace has a program of its own.
        is_limited = self.limit.count is not None
        program = (
            None if is_limited else next((p for p in known if p.fits(found)), None)
        )
        if program is None:
            program = programs.Program(found)
            known.append(program)
        program.traces[shapes] = found
        if is_limited:
            self.limit.add(program, self, key)
        return program

    def forget(self, key: object, program: programs.Program) -> None:
        """Drop a program of a signature."""
        # A new list: another thread may be looking through the old one.
        others = [p for p in self._programs.get(key, ()) if p is not program]
        if others:
            self._programs[key] = others
        else:
            self._programs.pop(key, None)
            self.plans.pop(key, None)

    def jaxprs(self, is_wanted: Callable[[Any], bool]) -> Iterator[Jaxpr]:
        """Yield what was traced for the signatures that a function picks."""
        for key, known in list(self._programs.items()):
            for program in known if is_wanted(key) else ():
                yield from (found.jaxpr for found in program.traces.values())

    def forget_all(self, is_old: Callable[[Any], bool]) -> None:
        """Drop the programs of the signatures that a function picks."""
        for key in [k for k in [*self._programs, *self.plans] if is_old(k)]:
            for program in self._programs.pop(key, ()):
                program.release()
            self.plans.pop(key, None)


def _describe(function: Any) -> str:
    """Return the name of a function, and the place of its code if that is known."""
    plain = inspect.unwrap(getattr(function, "func", function))
    name = getattr(plain, "__qualname__", repr(plain))
    code = getattr(plain, "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"'{name}'{place}"


@final
class LastCall:
    """The call that the next one of a function is most often like.

    Attributes:
        found: the rest of its arguments, and its program. The next call then needs no
            more than a comparison. None if it must look for its program.
    """

    __slots__ = ("__weakref__", "found")

    def __init__(self) -> None:
        self.found: tuple[Any, programs.Program] | None = None
        _last_calls.add(self)


_last_calls: weakref.WeakSet[LastCall] = weakref.WeakSet()


def forget_last_calls() -> None:
    """Make the next call of every function look for its program."""
    for last in list(_last_calls):
        last.found = None


# Programs that stand beside the usual ones.


@final
class World:
    """What calls find programs by, besides their arguments.

    Attributes:
        current: the block of `separate_programs` that runs; None outside all.
    """

    current: Hashable = None


_visited: weakref.WeakSet[ProgramCache] = weakref.WeakSet()
# Which functions run which others on all replicas, by block; outside, a function knows.
_by_world: dict[Hashable, dict[int, tuple[Any, Any]]] = {}


@contextlib.contextmanager
def separate_programs(world: Hashable) -> Iterator[None]:
    """Let functions find and make other programs in a block than outside it.

    For code that changes what programs were traced for, such as the number of replicas.

    Args:
        world: blocks of the same one share their programs.
    """
    outer, World.current = World.current, world
    forget_last_calls()
    try:
        yield
    finally:
        World.current = outer
        forget_last_calls()


def find_replica_functions(owner: object) -> Any:
    """Return where a function keeps those that run it on replicas, in this block."""
    known = _by_world.setdefault(World.current, {})
    # With the owner itself, so that its id is not given to another one.
    return known.setdefault(id(owner), (owner, weakref.WeakKeyDictionary()))[1]


def forget_programs(world: Hashable) -> None:
    """Drop the programs that blocks of `separate_programs` have made.

    Args:
        world: what the blocks were given.
    """
    _by_world.pop(world, None)
    for cache in list(_visited):
        cache.forget_all(lambda key: key[-1] == world)


def find_programs(world: Hashable) -> Iterator[Jaxpr]:
    """Yield the programs that were traced in blocks of `separate_programs`.

    Args:
        world: what the blocks were given.
    """
    for cache in list(_visited):
        yield from cache.jaxprs(lambda key: key[-1] == world)
