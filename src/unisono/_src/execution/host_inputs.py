"""Lets compiled functions take elements from iterators of the host.

A step may call ``next(iterator)``, and an epoch may loop ``for batch in dataset``. An
XLA program can do neither. In the first case the element becomes one more argument of
the program, which is pulled from the iterator before each call. In the second case the
function runs on the host, and the functions that it passes to `Strategy.run` are
compiled. So it does if `next` is called in a branch or loop body, such as that of
`while_loop`: only the host knows how many elements these take.
"""

from __future__ import annotations

import abc
import collections
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias, TypeVar, final

import jax
import jax.numpy as jnp

from unisono._src.execution import conversion, signature
from unisono._src.foundation import ambient, errors, nest
from unisono._src.foundation.jax_internals import ClosedProgram
from unisono._src.foundation.tensor_shape import TensorShape
from unisono._src.machines.topology import Topology
from unisono._src.state import branch_frame, frames, function_frame
from unisono._src.state.variable_identity import Reference
from unisono._src.values import jax_traces

_R = TypeVar("_R")


class SequenceEnd(errors.Signal):
    """An iterator has ended while a function was traced, or called."""


class NeedsHost(errors.Signal):
    """A traced function must run on the host, for example to loop over a dataset."""


class EndOfSequenceError(errors.OutOfRangeError, StopIteration):
    """An iterator of a compiled function has ended.

    It is TensorFlow's error and Python's, so that programs may catch either.
    """

    def __init__(self) -> None:
        super().__init__("End of sequence.")


def call(fn: Callable[..., _R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _R:
    """Return the result of a Python function that runs on the host.

    Raises:
        EndOfSequenceError: it asked for an element behind the last one.
    """
    try:
        return fn(*args, **kwargs)
    except StopIteration:
        raise EndOfSequenceError from None


def no_program_error(fn: object) -> ValueError:
    """Return the error for a function on the host of which a program is wanted."""
    return ValueError(
        f"The function {fn!r} has no program, because it runs on the host: it loops "
        "over a dataset, asks get_next_as_optional(), calls next(iterator) inside "
        "cond, while_loop or the like, calls it or strategy.run in a loop over "
        "tf.range, or has a loop in which a TensorArray grows. Take one element with "
        "next(iterator) in each call, outside branches and loops, and make as many "
        "calls as there are steps; give a TensorArray its largest size=."
    )


class HostIterator(abc.ABC):
    """An iterator over elements of the host, also in compiled functions; abstract.

    Attributes:
        _serves_replicas: whether each replica may take an element of its own.
        _returned: elements that were pulled and given back.
        _made_in: the trace of JAX that it was made in, if not in eager code.
    """

    _serves_replicas: ClassVar[bool] = False

    def __init__(self) -> None:
        self._returned: collections.deque[Any] = collections.deque()
        trace = jax_traces.base_trace()
        self._made_in = () if jax_traces.is_eager(trace) else (trace,)

    def __iter__(self) -> HostIterator:
        if (ambient.current().state or frames.EAGER).is_compiled:
            # Only the host knows how many turns a loop takes.
            raise NeedsHost
        return self

    def __next__(self) -> Any:
        frame = ambient.current()
        is_compiled = (frame.state or frames.EAGER).is_compiled
        is_refused = is_compiled or not self._serves_replicas
        if is_refused and frame.mode == ambient.REPLICA and frame.replica is not None:
            raise ValueError(_IN_REPLICAS)
        if is_compiled:
            return _take_next(frame.state, self)
        if not jax_traces.is_clean():
            _check_level(self._made_in)
        return self.pull()

    @abc.abstractmethod
    def pull(self) -> Any:
        """Return the next element from the host, even while a program is traced."""

    @abc.abstractmethod
    def put_back(self, element: object) -> None:
        """Take back an unused element, so that the next `pull` gives it again."""


# An iterator, or the number of one among the arguments.
Source: TypeAlias = HostIterator | int


@final
class IteratorHandle:
    """Stands for an iterator among the arguments of a function being traced.

    Args:
        index: which of the iterators among the arguments it is.
    """

    def __init__(self, index: int) -> None:
        self.index = index

    def __iter__(self) -> IteratorHandle:
        raise NeedsHost

    def __next__(self) -> Any:
        frame = ambient.current()
        if frame.replica is not None and frame.replica.num_replicas_in_sync > 1:
            raise ValueError(_IN_REPLICAS)
        return _take_next(frame.state, self.index)

    def next(self) -> Any:
        """Return the next element, as ``next`` does."""
        return next(self)

    get_next = next

    def get_next_as_optional(self) -> Any:
        """Raise `NeedsHost`: only the host knows whether there is a next element."""
        raise NeedsHost


@final
class ElementFeeds:
    """The elements that a call takes from iterators, in the order in which it does.

    A trace takes the elements that were pulled for the call. If it asks for more, they
    are pulled then, and become arguments of the program when the trace is done.

    Args:
        iterators: the iterators among the arguments.
        mesh: the devices of the program; None if they are not known.

    Attributes:
        plan: the sources of the elements pulled so far: an iterator, or the number of
            one among the arguments.
        parts: the rest (see `signature`) of each element.
        arrays: the arrays of all of them.
    """

    def __init__(
        self, iterators: Sequence[HostIterator], mesh: Topology | None
    ) -> None:
        self.plan: list[Source] = []
        self.parts: list[Any] = []
        self.arrays: list[Any] = []
        self._elements: list[Any] = []
        self._iterators = iterators
        self._mesh = mesh
        self._outside = ambient.current()
        # Of the present trace: its elements, how many it has taken, and the constants
        # that stand for the arrays of elements that were pulled during it.
        self._ready: list[Any] = []
        self._taken = 0
        self._constants: list[Any] = []

    def pull(self, source: Source) -> None:
        """Pull the next element of a source.

        Raises:
            SequenceEnd: the iterator has ended.
        """
        iterator = self._iterators[source] if isinstance(source, int) else source
        try:
            element = iterator.pull()
        except StopIteration:
            raise SequenceEnd from None
        self.plan.append(source)
        self._elements.append(element)
        self.parts.append(signature.flatten(element, self.arrays, self._mesh))

    def put_back(self) -> None:
        """Put all elements back: the call has failed and has used none."""
        # In reverse, because one iterator may have given several elements.
        while self.plan:
            source = self.plan.pop()
            iterator = self._iterators[source] if isinstance(source, int) else source
            iterator.put_back(self._elements.pop())

    def sources(self) -> list[HostIterator]:
        """Return the iterators that the elements came from, in order."""
        every = self._iterators
        return [every[s] if isinstance(s, int) else s for s in self.plan]

    def arrays_by_element(self) -> list[list[Any]]:
        """Return the arrays of each element."""
        given = iter(self.arrays)
        return [[next(given) for _ in signature.leaf_kinds(p)] for p in self.parts]

    def begin(self, rest: Sequence[Any], arrays: Sequence[Any]) -> Any:
        """Begin a trace, and return the function's arguments and keyword arguments.

        Args:
            rest: the rest (see `signature`) of both.
            arrays: the traced arrays of both, then of the elements pulled so far.
        """
        given = iter(arrays)
        parts = (*rest, *self.parts)
        args, kwargs, *elements = (signature.rebuild(r, given) for r in parts)
        self._ready, self._taken, self._constants = elements, 0, []
        return _replace_iterators((args, kwargs))

    def take(self, source: Source) -> Any:
        """Return the traced form of the next element, which comes from `source`.

        Raises:
            RuntimeError: the next element was pulled from another source.
        """
        if self._taken == len(self._ready):
            self._ready.append(self._pull_while_tracing(source))
        planned = self.plan[self._taken]
        if planned is not source and planned != source:
            raise RuntimeError(_OTHER_ORDER)
        self._taken += 1
        return self._ready[self._taken - 1]

    def _pull_while_tracing(self, source: Source) -> object:
        """Pull one more element, and return it in traced form."""
        start = len(self.arrays)
        # As if the call had pulled it before the trace: the iterator may itself run
        # compiled functions, which must not become part of this program.
        with ambient.enter(self._outside), jax.ensure_compile_time_eval():
            self.pull(source)
            # Arrays that nobody else has, by which the constants are found again. With
            # one more axis, because JAX makes no constant of a single number.
            rows = [jnp.asarray(x)[None] for x in self.arrays[start:]]
        self._constants.extend(rows)
        return signature.rebuild(self.parts[-1], iter([row[0] for row in rows]))

    def finish(self) -> None:
        """End a trace.

        Raises:
            RuntimeError: the trace has not taken all elements that were pulled.
        """
        if self._taken < len(self.plan):
            raise RuntimeError(_OTHER_ORDER)

    def check_length(self, plan: Sequence[Source]) -> None:
        """Raise `RuntimeError` if other traces take another number of elements."""
        if len(self.plan) != len(plan):
            raise RuntimeError(_OTHER_ORDER)

    def as_arguments(self, closed: ClosedProgram, args: object) -> ClosedProgram:
        """Return a program that takes the elements pulled during its trace last.

        Args:
            closed: the traced program, whose constants stand for them.
            args: its arguments, without those elements.
        """
        if not self._constants:
            return closed
        # JAX keeps the very objects as constants of the program.
        number = {id(row): i for i, row in enumerate(self._constants)}
        places = [number.get(id(x)) for x in closed.consts]

        def evaluate(args: object, arrays: list[jax.Array]) -> list[jax.Array]:
            pairs = zip(closed.consts, places, strict=True)
            consts = [x if i is None else arrays[i][None] for x, i in pairs]
            return jax.core.eval_jaxpr(closed.jaxpr, consts, *jax.tree.leaves(args))

        pulled = self.arrays[len(self.arrays) - len(self._constants) :]
        return jax.make_jaxpr(evaluate)(args, pulled)


def _replace_iterators(tree: object) -> Any:
    """Return arguments with each iterator replaced by an `IteratorHandle`."""
    count = itertools.count()

    def leaf(x: object) -> Any:
        # By number: the program serves every call, whichever iterators it is given.
        return IteratorHandle(next(count)) if isinstance(x, signature.Source) else x

    return nest.map_structure(leaf, tree)


_IN_REPLICAS = (
    "next(iterator) should be called from outside of replica_fn. Take the element in "
    "cross-replica context, outside strategy.run, and pass it in args."
)
_IN_BODY = (
    "next(iterator) was called inside a function given to jax.jit, jax.vmap, "
    "jax.checkpoint, a loop or branch of jax.lax, unisono.vectorized_map or "
    "recompute_grad. JAX calls it once and would use that element every time. Take the "
    "element before and pass it in; or write unisono.cond, while_loop or map_fn, whose "
    "functions may take elements."
)
_OTHER_ORDER = (
    "The function takes other elements from its iterators, or in another order, than "
    "when it was traced first. Make that independent of Python state and of shapes."
)


def _check_level(traces: Sequence[Any]) -> None:
    """Raise `RuntimeError` if the running code is a body that JAX traces by itself.

    Args:
        traces: JAX's traces in which an element may be taken.
    """
    where = jax_traces.base_trace()
    if not (jax_traces.is_eager(where) or any(where is t for t in traces)):
        raise RuntimeError(_IN_BODY)


def _take_next(frame: frames.StateFrame | None, source: Source) -> object:
    """Return the next element, as `take` does, where a program can take one.

    Raises:
        NeedsHost: the running code is a branch or loop body, which may take no element
            or several.
        RuntimeError: it is a body that JAX traces by itself.
    """
    conversion.note_step()
    around = frames.enclosing(frame)
    if any(isinstance(f, branch_frame.BranchFrame) for f in around):
        raise NeedsHost
    # A program is being traced, so there is a frame.
    _check_level((frame or frames.EAGER).traces)
    return take(frame, source)


def take(frame: frames.StateFrame | None, source: Source) -> Any:
    """Return the next element from `source` for the program being traced.

    Args:
        frame: the current frame of variable values.
        source: an iterator, or the number of one among the arguments.
    """
    *_, program = frames.enclosing(frame)
    assert isinstance(program, function_frame.FunctionFrame)
    return program.feeds.take(source)


# Values of these types are compared by value, all others by identity.
_SCALARS = (bool, int, float, complex, str, bytes, type(None), TensorShape)


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
        return (closure_key(inner), Reference(fn.__self__))  # type: ignore[attr-defined]
    code = getattr(fn, "__code__", None)
    if code is None:
        return Reference(fn)
    try:
        captured = tuple(_capture_key(c.cell_contents) for c in fn.__closure__ or ())
    except ValueError:
        # A captured name has no value yet.
        return Reference(fn)
    return (code, captured, defaults_key(fn))


def defaults_key(fn: Callable[..., Any]) -> Any:
    """Return a key that is equal for functions of equal defaults."""
    defaults = [*(fn.__defaults__ or ()), *sorted((fn.__kwdefaults__ or {}).items())]
    return tuple(_capture_key(x) for x in defaults)


def _capture_key(x: object) -> Any:
    """Return a hashable stand-in for a captured object."""
    if isinstance(x, float):
        # In a key, 0.0 would be equal to -0.0.
        return (type(x), x, math.copysign(1.0, x))
    # With the type, because 1, 1.0 and True are equal.
    if isinstance(x, _SCALARS):
        return (type(x), x)
    if isinstance(x, tuple):
        return tuple(_capture_key(part) for part in x)
    return Reference(x)
