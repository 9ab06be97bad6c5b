"""The decorator `unisono.function`, with TensorFlow's options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from unisono._src.execution.function import Function

_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def function(
    func: Callable[_P, _R],
    input_signature: Sequence[Any] | None = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: str | None = None,
    experimental_autograph_options: object = None,
    experimental_attributes: object = None,
    experimental_relax_shapes: bool | None = None,
    experimental_compile: bool | None = None,
    experimental_follow_type_hints: bool | None = None,
    *,
    max_programs: int | None = None,
) -> Function[_P, _R]: ...


@overload
def function(
    func: None = None,
    input_signature: Sequence[Any] | None = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: str | None = None,
    experimental_autograph_options: object = None,
    experimental_attributes: object = None,
    experimental_relax_shapes: bool | None = None,
    experimental_compile: bool | None = None,
    experimental_follow_type_hints: bool | None = None,
    *,
    max_programs: int | None = None,
) -> Callable[[Callable[_P, _R]], Function[_P, _R]]: ...


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Sequence[Any] | None = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: str | None = None,
    experimental_autograph_options: object = None,
    experimental_attributes: object = None,
    experimental_relax_shapes: bool | None = None,
    experimental_compile: bool | None = None,
    experimental_follow_type_hints: bool | None = None,
    *,
    max_programs: int | None = None,
) -> Function[..., Any] | Callable[[Callable[..., Any]], Function[..., Any]]:
    """Compile a Python function with the variables it uses; use as a decorator.

    The function is traced once for each combination of shapes and types of its array
    arguments and of values of its other arguments; later calls run the compiled
    program. Variables may be created on the first call only.

    Args:
        func: the function; None to get a decorator.
        input_signature: `TensorSpec`s that arguments must match; numbers become arrays.
        autograph: whether `if`, `while`, `for` and the like on arrays whose values are
            only known when the step runs become a part of the program. A function that
            has none of them is not changed. False: they are errors.
        jit_compile: accepted; functions are always compiled by XLA.
        reduce_retracing: accepted; XLA programs have fixed shapes.
        experimental_implements: accepted, no effect.
        experimental_autograph_options: accepted, no effect.
        experimental_attributes: accepted, no effect.
        experimental_relax_shapes: accepted, no effect.
        experimental_compile: accepted, no effect.
        experimental_follow_type_hints: accepted, no effect.
        max_programs: how many compiled programs the function keeps at most, for each
            object if it is a method; None for all of them. The program that was not
            used for longest goes first. A call that needs it again traces and compiles
            it again; variables keep their values. With a limit every call looks its
            program up, which takes some microseconds more.

    Returns:
        A `Function`, or a decorator that makes one.

    Raises:
        TypeError: `max_programs` is no whole number.
        ValueError: `max_programs` is less than one.
        TypeError: when called: an argument does not match the `input_signature`.
        ValueError: when called: the function creates a variable on a later call, or
            changes a list or dictionary that it was given.

    >>> import unisono
    >>> v = unisono.Variable(1.0)
    >>> @unisono.function
    ... def double():
    ...     return v.assign(v * 2.0)
    >>> float(double()), float(double())
    (2.0, 4.0)

    With an `input_signature` one program serves all numbers:

    >>> square = unisono.function(lambda x: x * x, [unisono.TensorSpec(())])
    >>> float(square(2)), float(square(3)), square.experimental_get_tracing_count()
    (4.0, 9.0, 1)

    With `max_programs` an endless variety of shapes does not fill the memory:

    >>> import numpy as np
    >>> total = unisono.function(lambda x: x.sum(), max_programs=1)
    >>> [float(total(np.ones(size))) for size in (2, 3, 2)]
    [2.0, 3.0, 2.0]
    >>> total.experimental_get_tracing_count()
    3
    """
    if func is None:
        return lambda f: Function(f, input_signature, None, max_programs, autograph)
    return Function(func, input_signature, None, max_programs, autograph)
