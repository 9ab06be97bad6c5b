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
    """Compiles a Python function and the variables that it uses; also a decorator.

    The function is traced once for each combination of the shapes and types of its
    array arguments and the values of its other arguments. Later calls run the compiled
    program. The function may create variables only on its first call.

    Args:
        func: the function; None to get a decorator.
        input_signature: `TensorSpec`s that arguments must match; numbers become arrays.
        autograph: whether `if`, `while`, `for` and similar statements become part of
            the program if they depend on arrays whose values are only known when the
            step runs. If False, such statements raise an error. A function without such
            statements is not changed.
        jit_compile: accepted, no effect; XLA always compiles functions.
        reduce_retracing: accepted, no effect; XLA programs have fixed shapes.
        experimental_implements: accepted, no effect.
        experimental_autograph_options: accepted, no effect.
        experimental_attributes: accepted, no effect.
        experimental_relax_shapes: accepted, no effect.
        experimental_compile: accepted, no effect.
        experimental_follow_type_hints: accepted, no effect.
        max_programs: the number of compiled programs that the function keeps at most;
            None for all of them. For a method, the limit applies to each object. The
            least recently used program is removed first. A call that needs it again
            traces and compiles it again; variables keep their values. With a limit,
            each call takes some microseconds longer, because it looks up its program.

    Returns:
        A `Function`, or a decorator that returns one.

    Raises:
        TypeError: `max_programs` is not a whole number.
        ValueError: `max_programs` is less than one.
        TypeError: when called: an argument does not match the `input_signature`.
        ValueError: when called: the function creates a variable on a later call, or
            changes a list or dictionary that you pass to it.

    >>> import unisono
    >>> v = unisono.Variable(1.0)
    >>> @unisono.function
    ... def double():
    ...     return v.assign(v * 2.0)
    >>> float(double()), float(double())
    (2.0, 4.0)

    With an `input_signature`, the same program is used for all numbers:

    >>> square = unisono.function(lambda x: x * x, [unisono.TensorSpec(())])
    >>> float(square(2)), float(square(3)), square.experimental_get_tracing_count()
    (4.0, 9.0, 1)

    With `max_programs`, many different shapes do not fill the memory:

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
