"""How code runs: questions about it, and names that have nothing to do here.

Statements take effect in the order in which Python runs them, also in a compiled
`function`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

import jax
import numpy as np

from unisono._src.execution import conversion
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.machines import runtime_settings
from unisono._src.ops import bodies, tensors

__all__ = [
    "control_dependencies",
    "executing_eagerly",
    "get_logger",
    "get_static_value",
    "group",
    "inside_function",
    "is_symbolic_tensor",
    "no_op",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_NONE = "AutoGraph tells in errors what it does."


@everyday_name("executing_eagerly")
def executing_eagerly() -> bool:
    """Returns whether the code runs eagerly, and not in a compiled function.

    >>> import unisono
    >>> unisono.executing_eagerly()
    True
    >>> bool(unisono.function(unisono.executing_eagerly)())
    False
    """
    return not bodies.is_traced()


@everyday_name("inside_function")
def inside_function() -> bool:
    """Returns whether the code is being traced for compilation.

    >>> inside_function()
    False
    """
    return bodies.is_traced()


@everyday_name("get_static_value")
def get_static_value(tensor: object, partial: bool = False) -> np.ndarray | None:
    """Returns an array as a NumPy array, or None if its value is not known yet.

    Args:
        tensor: the array.
        partial: accepted for compatibility with TensorFlow and ignored.

    >>> import unisono
    >>> get_static_value(unisono.constant([1, 2]))
    array([1, 2], dtype=int32)
    """
    found = bodies.find_known_value(tensors.tensor(tensor))
    return None if found is None else np.asarray(found)


@everyday_name("is_symbolic_tensor")
def is_symbolic_tensor(tensor: object) -> bool:
    """Returns whether a value is an array whose value is not known yet.

    >>> import unisono
    >>> is_symbolic_tensor(unisono.constant([1, 2]))
    False
    """
    found = tensors.tensor(tensor) if tensors.is_array(tensor) else tensor
    return isinstance(found, jax.core.Tracer) and bodies.find_known_value(found) is None


@everyday_name("get_logger")
def get_logger() -> logging.Logger:
    """Returns the logger of this package.

    >>> get_logger().name
    'unisono'
    """
    return logging.getLogger("unisono")


@everyday_name("control_dependencies")
def control_dependencies(
    control_inputs: Iterable[object] | None,
) -> contextlib.AbstractContextManager[None]:
    """Returns a context manager without effect: statements run in order anyway.

    Args:
        control_inputs: the operations to wait for, which have run already.

    >>> import unisono
    >>> count = unisono.Variable(1)
    >>> with control_dependencies([count.assign_add(1)]):
    ...     print(int(count.read_value()))
    2
    """
    return contextlib.nullcontext()


@everyday_name("group")
def group(*inputs: object, name: str | None = None) -> None:
    """Returns None: the given operations have run already.

    Args:
        *inputs: results of operations.
        name: accepted for compatibility with TensorFlow and ignored.

    >>> import unisono
    >>> v, w = unisono.Variable(1), unisono.Variable(1)
    >>> group(v.assign(3), w.assign(4))
    >>> int(v.read_value()), int(w.read_value())
    (3, 4)
    """


@everyday_name("no_op")
def no_op(name: str | None = None) -> None:
    """Does nothing, and returns None.

    Args:
        name: accepted for compatibility with TensorFlow and ignored.

    >>> no_op()
    """


@overload
def do_not_convert(func: _F) -> _F: ...


@overload
def do_not_convert(func: None = None) -> Callable[[_F], _F]: ...


@everyday_name("autograph.experimental.do_not_convert")
def do_not_convert(func: Any = None) -> Any:
    """Returns a function that AutoGraph does not convert.

    Args:
        func: the function; if it is None, you get a decorator.

    >>> @do_not_convert
    ... def double(x):
    ...     return 2 * x
    >>> double(3)
    6
    """
    return conversion.mark if func is None else conversion.mark(func)


@everyday_name(
    "autograph.experimental.set_loop_options",
    difference="Only `maximum_iterations` has an effect; gradients need it.",
)
def set_loop_options(
    parallel_iterations: object = None,
    swap_memory: object = None,
    maximum_iterations: object = None,
    shape_invariants: object = None,
) -> None:
    """Sets options of the enclosing loop; it must be the first statement in the loop.

    Args:
        parallel_iterations: accepted for compatibility with TensorFlow and ignored.
        swap_memory: accepted for compatibility with TensorFlow and ignored.
        maximum_iterations: the largest number of iterations. It is needed for a
            gradient through `while`, or through `for` over a range whose length is not
            known.
        shape_invariants: accepted for compatibility with TensorFlow and ignored;
            shapes do not change.

    >>> import unisono
    >>> @unisono.function
    ... def power(x):
    ...     with unisono.GradientTape() as tape:
    ...         tape.watch(x)
    ...         y = x
    ...         while y < 20.0:
    ...             set_loop_options(maximum_iterations=9)
    ...             y = y * x
    ...     return y, tape.gradient(y, x)
    >>> [float(v) for v in power(unisono.constant(3.0))]
    [27.0, 27.0]
    """


@everyday_name("autograph.set_verbosity", difference="The setting has no effect.")
def set_verbosity(level: int, alsologtostdout: bool = False) -> None:
    """Has no effect, because AutoGraph describes in errors what it does.

    >>> set_verbosity(3)
    """
    runtime_settings.tell_once("autograph.set_verbosity", _NONE)
