"""Traces the calls of functions that another process will run."""

# A function keeps its programs to itself; this is the one other place that adds some.
# ruff: noqa: SLF001

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from unisono._src.execution import function as function_lib
from unisono._src.execution import host_inputs, programs, signature, traced_function
from unisono._src.execution.concrete_function import ConcreteFunction
from unisono._src.foundation import ambient


def trace_call(
    fn: Any, args: Any, kwargs: Any
) -> tuple[traced_function.TracedFunction, list[Any], list[Any], Any]:
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
        NeedsHost: the function loops over a dataset, so it has no program.
    """
    if isinstance(fn, ConcreteFunction):
        call = fn._complete(args, kwargs)
        args, kwargs = call.args, call.kwargs
        # A concrete function calls a method of the `Function` that made it.
        fn = fn._call.__self__  # type: ignore[attr-defined]
    function: Any = function_lib.find_compiled(fn, None) or fn
    if function.input_signature is not None:
        args, kwargs = function._apply_signature(args, kwargs)
    frame, leaves = ambient.current(), list[Any]()
    mesh = function._topology or function_lib.current_mesh(frame)
    rest = (
        signature.flatten(args, leaves, mesh),
        signature.flatten(kwargs, leaves, mesh),
    )
    owner = None if frame.strategy is None else weakref.ref(frame.strategy)
    key = (rest, owner, frame.mode)
    among = signature.find_iterators(rest)
    feeds = host_inputs.Feeds(among, mesh)
    try:
        # As `Function._run_with_elements` does, but nothing runs, so that all elements
        # go back to their iterators.
        for source in function._kept.plans.get(key, ()):
            feeds.pull(source)
        fed_key = ((*rest, *feeds.parts), *key[1:])
        given = [*leaves, *feeds.arrays]
        program = function._kept.find(fed_key, given)
        if program is None:
            program = function._trace(key, leaves, mesh, feeds)
            feeds.check_length(function._kept.plans.setdefault(key, feeds.plan[:]))
            given = [*leaves, *feeds.arrays]
        plan = [among[s] if isinstance(s, int) else s for s in feeds.plan]
        counts = [len(signature.leaf_kinds(p)) for p in feeds.parts]
        found = program.trace_for(programs.aval_key(given))
        return found, leaves, plan, _split_in_groups(feeds.arrays, counts)
    finally:
        feeds.put_back()


def _split_in_groups(arrays: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """Return consecutive groups of arrays, of the given lengths."""
    given = iter(arrays)
    return [[next(given) for _ in range(n)] for n in counts]
