"""Converts arguments of TensorFlow's functions to arrays of TensorFlow's types."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeGuard, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from unisono._src.foundation import (
    ambient,
    dtypes,
    errors,
    host_types,
    jax_types,
    wide_numbers,
)
from unisono._src.foundation.tensorflow_names import host_bodies
from unisono._src.input.plan import elements
from unisono._src.ops import kinds
from unisono._src.values import array_operators, jax_tapes, jax_traces
from unisono._src.values.array_operators import StandsForArray
from unisono._src.values.indexed_slices import IndexedSlices

# The values that TensorFlow converts to a tensor. Variables of Keras and Flax have no
# types.
TensorLike: TypeAlias = ArrayLike | StandsForArray | IndexedSlices | Sequence[Any]
# A size, a shape, or one or more axes.
Sizes: TypeAlias = int | Sequence[Any] | np.ndarray | jax.Array
# An element type; None for the one that a function chooses.
DType: TypeAlias = kinds.ElementType | None

_P = ParamSpec("_P")
_R = TypeVar("_R")

_NUMBERS = (bool, int, float, complex)
_DEFAULTS = {"b": dtypes.bool, "i": dtypes.int32, "f": dtypes.float32}


renew = jax_tapes.renew


def unwrap(x: object) -> Any:
    """Returns the array that an object stands for, and anything else as it is.

    Variables, values of the current replica, `IndexedSlices` and objects of other
    libraries stand for an array.
    """
    # The most frequent case first.
    if isinstance(x, jax.Array):
        # A value that has left the block of its tape stands for its plain array.
        return jax_tapes.lower(x)
    x = array_operators.find_own_variable(x)
    if isinstance(x, (np.ndarray, np.generic, *_NUMBERS, list, tuple)):
        return x
    if isinstance(x, IndexedSlices):
        return x.to_dense()
    if hasattr(x, "__jax_array__"):
        return jnp.asarray(x.__jax_array__())
    return np.asarray(x) if hasattr(x, "__array__") else x


def is_array(x: object) -> bool:
    """Returns whether a value is an array of JAX, or stands for one."""
    own = array_operators.find_own_variable(x)
    return isinstance(own, jax.Array) or hasattr(own, "__jax_array__")


def tensor(x: object, dtype: DType = None) -> jax.Array:
    """Returns the array of a value.

    Args:
        x: an array, a variable, a number, or nested lists of these.
        dtype: the type of the array. By default that of TensorFlow: int32 for Python's
            integers, float32 for its floats, and the array's own type.

    Raises:
        TypeError: a number does not fit `dtype`.
        ValueError: an array is of another type, or the value is none of these.

    >>> tensor([1, 2]).dtype.name, tensor(1.5).dtype.name
    ('int32', 'float32')
    """
    x = unwrap(x)
    if isinstance(x, jax.Array):
        if dtype is not None and x.dtype != dtype:
            raise ValueError(
                f"Tensor conversion requested dtype {np.dtype(dtype)} for Tensor with "
                f"dtype {x.dtype}; convert it with unisono.cast."
            )
        return x
    if has_arrays(x):
        return _stack(x, dtype)
    found = to_numpy(x, dtype)
    if jax_traces.is_clean():
        return jnp.asarray(found)
    # Numbers that are known stay known in a program, so that they can be sizes.
    with jax.ensure_compile_time_eval():
        made = jnp.asarray(found)
    # Tells a program for all replicas that the replica function made this array: one
    # from outside would be the same on all of them.
    port = ambient.current().port
    if port is not None and port.is_spmd:
        port.own(made)
    return made


# JAX's arrays have memory of their own.
own_tensor = tensor


def shape_of(x: object) -> tuple[Any, ...]:
    """Returns the shape of a value's array, whatever numbers it has."""
    found = unwrap(x)
    if isinstance(found, (np.ndarray, np.generic)) and found.dtype.kind in "biufc":
        return found.shape
    return tensor(found).shape


def has_arrays(x: object) -> TypeGuard[Sequence[object]]:
    """Returns whether nested lists have JAX arrays, or objects that stand for them."""
    return isinstance(x, (list, tuple)) and any(
        isinstance(unwrap(leaf), jax.Array) for leaf in host_types.leaves(x)
    )


def _stack(parts: Iterable[object], dtype: DType) -> jax.Array:
    """Returns the array of nested lists in which some leaves are arrays."""
    if dtype is None:
        found = (unwrap(leaf) for leaf in host_types.leaves(parts))
        dtype = next(x.dtype for x in found if isinstance(x, jax.Array))
    wanted = np.dtype(dtype)
    made = [_convert_to(part, wanted, "stack") for part in parts]
    return call("stack", jnp.stack, made)


def to_numpy(x: object, dtype: DType = None) -> np.ndarray:
    """Returns numbers of Python or NumPy as a NumPy array of TensorFlow's type.

    Raises:
        TypeError: a Python number does not fit `dtype`.
        ValueError: the value has no numbers, or lists of different lengths.
    """
    if isinstance(x, (np.ndarray, np.generic)):
        found = np.array(x)
        if found.dtype.kind in "OSU":
            raise _no_numbers_error(x)
        wanted = found.dtype if dtype is None else np.dtype(dtype)
        return _narrow(found, wide_numbers.usable_type(wanted))
    found = _read(x)
    natural = _natural_type(x, found)
    if dtype is not None and found.size and not kinds.can_hold(dtype, natural):
        raise TypeError(
            f"Cannot convert {x!r} to EagerTensor of dtype {np.dtype(dtype)}."
        )
    wanted = wide_numbers.usable_type(np.dtype(natural if dtype is None else dtype))
    # A Python float is a float32 in TensorFlow, too, where 1e300 is infinite.
    is_float = found.dtype == dtypes.float64 and natural == dtypes.float32
    return found.astype(wanted) if is_float else _narrow(found, wanted)


def _narrow(x: np.ndarray, wanted: np.dtype) -> np.ndarray:
    """Returns numbers in a type that JAX has.

    Raises:
        OverflowError: a number would be another one in that type.
    """
    wide_numbers.check(x, wanted=wanted)
    return x.astype(wanted)


def _read(x: object) -> np.ndarray:
    """Returns numbers, or nested lists of numbers, as NumPy reads them."""
    # NumPy reads a number from `HostText`.
    leaves = host_types.leaves(x) if isinstance(x, (list, tuple)) else (x,)
    if any(isinstance(leaf, (bytes, str)) for leaf in leaves):
        raise _no_numbers_error(np.array(x, object))
    found = host_types.read_rows(x)
    if found.dtype.kind not in "biufc" and found.dtype != dtypes.bfloat16:
        raise _no_numbers_error(x)
    return found


def _no_numbers_error(x: object) -> Exception:
    found = np.asarray(x)
    if found.dtype.kind in "SU" or _is_text(found):
        return host_bodies.TextError(
            f"An array cannot have strings here; received {x!r}. unisono.strings has "
            "the functions of text, for datasets' functions."
        )
    return ValueError(
        f"Attempt to convert a value ({x!r}) with an unsupported type ({type(x)}) to a "
        "Tensor."
    )


def _is_text(x: np.ndarray) -> bool:
    """Returns whether all objects of an array are texts, or arrays of one text."""
    objects = x.ravel().tolist()
    plain = (
        x.item() if isinstance(x, np.ndarray) and not x.ndim else x for x in objects
    )
    return all(isinstance(text, (bytes, str)) for text in plain)


def _natural_type(x: object, found: np.ndarray) -> np.dtype:
    """Returns TensorFlow's type for numbers that are not an array of NumPy's."""
    # An empty list is float32 in TensorFlow, and float64 to NumPy.
    if found.size == 0 and found.dtype == np.float64:
        return dtypes.float32
    letter = kinds.kind(found.dtype)
    leaves = list(host_types.leaves(x)) if isinstance(x, (list, tuple)) else [x]
    numpy = [leaf for leaf in leaves if isinstance(leaf, (np.ndarray, np.generic))]
    if letter != "i" and numpy:
        return np.result_type(*numpy) if len(numpy) == len(leaves) else found.dtype
    if letter == "i" and not host_types.fits(found, dtypes.int32):
        return found.dtype
    return _DEFAULTS.get(letter, dtypes.complex128)


def _convert_to(x: object, dtype: np.dtype, name: str) -> ArrayLike:
    """Returns a value as an array of a type, for a function that takes several.

    Raises:
        InvalidArgumentError: it is an array of another type.
        TypeError: it is a number, or an array of NumPy's, of a kind that does not fit.
    """
    x = unwrap(x)
    if has_arrays(x):
        x = _stack(x, None)
    fitted: ArrayLike = _fit(x, dtype, name)
    return fitted


def _fit(x: object, dtype: np.dtype, name: str) -> Any:
    """Returns the same as `_convert_to`, for a value that stands for itself."""
    if isinstance(x, jax.Array):
        if x.dtype != dtype:
            raise errors.InvalidArgumentError(
                f"{name} takes arrays of one type, received {dtype} and {x.dtype}. "
                f"Convert one of them first, as in unisono.cast(x, unisono.{dtype})."
            )
        return x
    if isinstance(x, (np.ndarray, np.generic)) and not kinds.can_hold(dtype, x.dtype):
        raise TypeError(
            f"{name} takes arrays of one type, received {dtype} and a NumPy array of "
            f"type {x.dtype}. Convert it first, as in unisono.cast(x, unisono.{dtype})."
        )
    if isinstance(x, (bool, int, float)) and kinds.can_hold(dtype, _DEFAULTS[_kind(x)]):
        # The most frequent case, such as `x + 1`, without an array.
        return dtype.type(x)
    return to_numpy(x, dtype)


def _kind(x: bool | int | float) -> str:
    """Returns the letter of the kind of a Python number."""
    return "b" if isinstance(x, bool) else "i" if isinstance(x, int) else "f"


def to_one_type(name: str, *values: object) -> list[jax.Array]:
    """Returns values as arrays of one type.

    The first array of JAX or variable decides on the type, or else the first value.

    Args:
        name: the name of the function that takes them.
        *values: arrays, variables, numbers, or nested lists of these.

    Raises:
        InvalidArgumentError: two of them are arrays of different types.
        TypeError: a number does not fit that type.
    """
    given = [unwrap(x) for x in values]
    given = [_stack(x, None) if has_arrays(x) else x for x in given]
    found = (x.dtype for x in given if isinstance(x, jax.Array))
    dtype = next(found, None)
    if dtype is None:
        given = [tensor(given[0]), *given[1:]]
        dtype = given[0].dtype
    return [_fit(x, dtype, name) for x in given]


def usable_type(dtype: DType) -> np.dtype:
    """Returns the type that JAX has for one that a program asks for.

    It warns if they differ, as they do for 64 bits.

    Raises:
        TypeError: it is the type of text, which JAX does not have.
    """
    if np.dtype(dtype) == dtypes.string:
        raise host_bodies.TextError("JAX has no arrays of text.")
    found: np.dtype = jax_types.usable_type(np.dtype(dtype))
    return found


def canonical_type(dtype: DType) -> np.dtype:
    """Returns the type that JAX has for a type that TensorFlow chooses by itself."""
    return jax.dtypes.canonicalize_dtype(np.dtype(dtype))


def call(name: str, fn: Callable[..., _R], *args: object, **kwargs: object) -> _R:
    """Returns ``fn(*args, **kwargs)``; raises TensorFlow's errors in place of JAX's.

    Args:
        name: the name of the function that the program has called.
        fn: the function of JAX.
        *args: its arguments.
        **kwargs: its arguments by name.

    Raises:
        InvalidArgumentError: shapes or numbers do not fit together.
    """
    try:
        return fn(*args, **kwargs)
    # JAX's own errors about traced values say more than ours would.
    except (errors.InvalidArgumentError, jax.errors.JAXTypeError):
        raise
    except (TypeError, ValueError, IndexError) as error:
        raise errors.InvalidArgumentError(f"{name}: {error}") from error


def require_known(name: str, what: str, given: object) -> Any:
    """Returns an argument that must be known when a program is compiled.

    Args:
        name: the name of the function.
        what: the name of the argument.
        given: whole numbers: one, or nested lists or an array of them.

    Returns:
        A number, or a tuple with one element for each element of `given`.

    Raises:
        TypeError: a number is computed by the program, or is not whole.
    """
    x: Any = unwrap(given)
    if isinstance(x, (list, tuple)):
        return tuple(require_known(name, what, part) for part in x)
    if jax_tapes.is_traced(x):
        raise TypeError(
            f"{what} of {name} must be known when the program is compiled; received "
            "an array that the program computes. Sizes that unisono.shape(x) gives, "
            "x.shape and Python's numbers are known."
        )
    if hasattr(x, "ndim") and x.ndim:
        return tuple(require_known(name, what, part) for part in np.asarray(x))
    # "O": a size that an exported program leaves open is an object of JAX.
    if isinstance(x, float) or getattr(x, "dtype", np.dtype(int)).kind not in "iubO":
        raise TypeError(f"{what} of {name} must be whole, received {x!r}.")
    return x.item() if hasattr(x, "dtype") else x


def sizes(name: str, what: str, x: object) -> tuple[Any, ...]:
    """Returns a shape or axes that must be known when a program is compiled."""
    found = require_known(name, what, x)
    return found if isinstance(found, tuple) else (found,)


def folds_constants(fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """Returns `fn`; while a program is made, its results of sizes stay known numbers.

    `unisono.shape` gives NumPy's numbers there. What such functions compute from them
    can be a shape again.

    Args:
        fn: a function that returns an array.
    """

    @functools.wraps(fn)
    def fold(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if jax_traces.is_clean() or not all(map(_is_known, (*args, *kwargs.values()))):
            return fn(*args, **kwargs)
        with jax.ensure_compile_time_eval():
            found: Any = fn(*args, **kwargs)
        # The type of sizes. As NumPy's numbers they can be a shape again.
        if found.dtype == dtypes.int32:
            found = known_numbers(np.asarray(found))
        result: _R = found
        return result

    return fold


def makes_new_arrays(fn: Callable[_P, jax.Array]) -> Callable[_P, jax.Array]:
    """Returns `fn`; its result is a new object also if there was nothing to do.

    Args:
        fn: a function whose first argument is an array.
    """

    @functools.wraps(fn)
    def call_and_renew(*args: _P.args, **kwargs: _P.kwargs) -> jax.Array:
        made = fn(*args, **kwargs)
        given = args[0] if args else next(iter(kwargs.values()))
        return renew(made) if made is given else made

    return call_and_renew


def known_numbers(x: np.ndarray) -> Any:
    """Returns numbers that a program may use as sizes, with the method `numpy`."""
    return elements.present(x)


def _is_known(x: object) -> bool:
    """Returns whether a value, or all in nested lists, is not of JAX."""
    if isinstance(x, (list, tuple)):
        return all(map(_is_known, x))
    hosts = (np.ndarray, np.generic, *_NUMBERS, str, np.dtype, type(None))
    return isinstance(x, hosts) or callable(x)


def is_traced_tree(x: object) -> bool:
    """Returns whether a number, or one in nested lists, is not known yet."""
    if isinstance(x, (list, tuple)):
        return any(map(is_traced_tree, x))
    return jax_tapes.is_traced(unwrap(x))
