"""Traces the calls of functions that another process will run."""

from __future__ import annotations

from typing import Any

from unisono._src.execution import function, traced_function
from unisono._src.execution.concrete_function import ConcreteFunction


def trace_call(
    fn: Any, args: Any, kwargs: Any
) -> tuple[traced_function.TracedFunction, list[Any], list[Any], list[list[Any]]]:
    """Return the trace of a call, without running it.

    A `ClusterCoordinator` calls it, and sends the trace to a worker. The elements
    that the trace takes from iterators are put back.

    Args:
        fn: a `Function`, or a concrete one.
        args: the arguments of the call.
        kwargs: its keyword arguments.

    Returns:
        The trace; the arrays of the arguments; the iterators that the function
        takes elements from, in order; and the arrays of each of these elements, by
        shape and type.

    Raises:
        EndOfSequenceError: an iterator has no element to trace the call with.
        ValueError: the function runs on the host, so it has no program.
    """
    # Private, because programs see both classes.
    if isinstance(fn, ConcreteFunction):
        fn, args, kwargs = fn._split_call(args, kwargs)  # noqa: SLF001
    found: Any = function.find_compiled(fn, None) or fn
    return found._trace_call(args, kwargs)  # type: ignore[no-any-return]  # noqa: SLF001
