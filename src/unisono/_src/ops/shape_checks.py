"""TensorFlow's assertions about shapes and types, known before a step runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.machines import runtime_settings
from unisono._src.ops.tensors import TensorLike, is_array, tensor as as_tensor

__all__ = [
    "assert_integer",
    "assert_proper_iterable",
    "assert_rank",
    "assert_rank_at_least",
    "assert_rank_in",
    "assert_same_float_dtype",
    "assert_scalar",
    "assert_shapes",
    "assert_type",
    "get_log_device_placement",
    "is_numeric_tensor",
    "set_log_device_placement",
]


@final
class _Setting:
    logs_placement = False


@everyday_name("debugging.assert_rank", "assert_rank")
def assert_rank(
    x: TensorLike, rank: int, message: str | None = None, name: str | None = None
) -> None:
    """Raises `ValueError` unless a value has `rank` axes.

    Args:
        x: the value.
        rank: the number of axes.
        message: the text with which the error begins.
        name: accepted for compatibility with TensorFlow and ignored.

    >>> assert_rank([[1, 2]], 2)
    """
    _check_rank(x, as_tensor(x).ndim == int(rank), f"{rank}", message)


@everyday_name("debugging.assert_rank_at_least")
def assert_rank_at_least(
    x: TensorLike, rank: int, message: str | None = None, name: str | None = None
) -> None:
    """Raises `ValueError` unless a value has at least `rank` axes.

    >>> assert_rank_at_least([[1, 2]], 1)
    """
    _check_rank(x, as_tensor(x).ndim >= int(rank), f"at least {rank}", message)


@everyday_name("debugging.assert_rank_in")
def assert_rank_in(
    x: TensorLike,
    ranks: Iterable[int],
    message: str | None = None,
    name: str | None = None,
) -> None:
    """Raises `ValueError` unless the number of axes of a value is one of `ranks`.

    >>> assert_rank_in([[1, 2]], [1, 2])
    """
    wanted = tuple(int(r) for r in ranks)
    _check_rank(x, as_tensor(x).ndim in wanted, f"in {wanted}", message)


@everyday_name("debugging.assert_scalar")
def assert_scalar(
    tensor: TensorLike, message: str | None = None, name: str | None = None
) -> None:
    """Raises `ValueError` if a value has axes.

    >>> assert_scalar(2.0)
    """
    array = as_tensor(tensor)
    if array.ndim:
        raise ValueError(
            f"{message + '  ' if message else ''}Expected scalar shape, saw shape: "
            f"{array.shape}."
        )


def _check_rank(
    x: TensorLike, is_right: bool, wanted: str, message: str | None
) -> None:
    if not is_right:
        shape = as_tensor(x).shape
        raise ValueError(
            f"{message + '.  ' if message else ''}Tensor must have rank {wanted}.  "
            f"Received rank {len(shape)}, shape {shape}"
        )


@everyday_name("debugging.assert_type")
def assert_type(
    tensor: TensorLike,
    tf_type: DTypeLike,
    message: str | None = None,
    name: str | None = None,
) -> None:
    """Raises `TypeError` unless a value has the dtype `tf_type`.

    Args:
        tensor: the value.
        tf_type: the dtype.
        message: the text with which the error begins.
        name: accepted for compatibility with TensorFlow and ignored.

    >>> assert_type([1.0], np.float32)
    """
    found = as_tensor(tensor).dtype
    if found != np.dtype(tf_type):
        raise TypeError(
            f"{message + '  ' if message else ''}tensor must be of type "
            f"{np.dtype(tf_type)}; got {found}"
        )


@everyday_name("debugging.assert_integer")
def assert_integer(
    x: TensorLike, message: str | None = None, name: str | None = None
) -> None:
    """Raises `TypeError` unless a value has an integer dtype.

    >>> assert_integer([1, 2])
    """
    found = as_tensor(x).dtype
    if not jnp.issubdtype(found, jnp.integer):
        raise TypeError(
            f'{message + "  " if message else ""}Expected "x" to be integer type.  '
            f"Found: tensor of dtype {found}"
        )


@everyday_name("debugging.assert_same_float_dtype")
def assert_same_float_dtype(
    tensors: Sequence[TensorLike] | None = None, dtype: DTypeLike | None = None
) -> np.dtype:
    """Returns the float dtype of values that must all have the same dtype.

    Args:
        tensors: the values, or None.
        dtype: the dtype that they must have; None for any float dtype. Without
            `tensors` and `dtype`, the result is float32.

    Raises:
        ValueError: the dtypes differ, or are not float dtypes.

    >>> assert_same_float_dtype([1.0, 2.0])
    dtype('float32')
    """
    found = {as_tensor(x).dtype for x in tensors or ()}
    if dtype is not None:
        found.add(np.dtype(dtype))
    if len(found) > 1:
        raise ValueError(
            f"Expected values of one type, received {sorted(map(str, found))}."
        )
    kind = np.dtype(found.pop() if found else np.float32)
    if not jnp.issubdtype(kind, jnp.floating):
        raise ValueError(f"Expected floating point type, got {kind}.")
    return kind


@everyday_name("debugging.assert_proper_iterable")
def assert_proper_iterable(values: object) -> None:
    """Raises `TypeError` for arrays, strings, and values that are not iterable.

    >>> assert_proper_iterable([1, 2])
    """
    refused = (str, bytes, np.ndarray)
    is_refused = isinstance(values, refused) or is_array(values)
    if is_refused or not isinstance(values, Iterable):
        raise TypeError(
            'Expected argument "values" to be a "proper" iterable.  Found: '
            f"{type(values)}"
        )


@everyday_name("debugging.is_numeric_tensor")
def is_numeric_tensor(tensor: object) -> bool:
    """Returns whether a value is a numeric JAX array or variable.

    >>> is_numeric_tensor(jnp.zeros(2)), is_numeric_tensor(np.zeros(2))
    (True, False)
    """
    if not is_array(tensor):
        return False
    return bool(jnp.issubdtype(as_tensor(tensor).dtype, jnp.number))


@everyday_name("debugging.assert_shapes")
def assert_shapes(
    shapes: Mapping[Any, Sequence[Any]] | Sequence[tuple[Any, Any]],
    data: Sequence[object] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> None:
    """Raises `ValueError` unless values have the expected shapes.

    Args:
        shapes: pairs of a value and its expected shape. Each size is a number; a name,
            which stands for the same number in all shapes; or None or a string of dots
            or stars, for any number. The first or the last size may be ``"..."``, for
            any number of axes.
        data: accepted for compatibility with TensorFlow and ignored.
        summarize: accepted for compatibility with TensorFlow and ignored.
        message: the text with which the error begins.
        name: accepted for compatibility with TensorFlow and ignored.

    >>> assert_shapes([([[1, 2, 3]], ("N", 3)), ([5], ("N",))])
    """
    pairs = shapes.items() if isinstance(shapes, Mapping) else shapes
    known: dict[str, tuple[int, str]] = {}
    prefix = f"{message}.  " if message else ""
    for value, wanted in pairs:
        array = as_tensor(value)
        told = f"Tensor shape={array.shape} dtype={array.dtype}"
        if isinstance(wanted, str):
            wanted = [wanted] if wanted == "..." else list(wanted)
        if not isinstance(wanted, Iterable):
            raise ValueError(
                f"{prefix}{told}.  Specified shape must be an iterable.  An iterable "
                "has the attribute `__iter__` or `__getitem__`.  Received specified "
                f"shape: {wanted!r}"
            )
        for axis, size in _pair_sizes(list(wanted), array, f"{prefix}{told}"):
            _check_size(size, axis, array.shape, known, (prefix, told))


def _pair_sizes(wanted: list[Any], array: Any, told: str) -> list[tuple[int, Any]]:
    """Returns pairs of an axis and the size that it must have."""
    rest = [i for i, size in enumerate(wanted) if size in ("...", Ellipsis)]
    fixed = [size for size in wanted if size not in ("...", Ellipsis)]
    if rest not in ([], [0], [len(fixed)]):
        raise ValueError(
            f"{told}.  Symbol `...` may only stand at one end of a shape.  Received "
            f"{tuple(wanted)}"
        )
    if len(fixed) > array.ndim or (not rest and len(fixed) != array.ndim):
        raise ValueError(
            f"{told} must have rank {'at least ' if rest else ''}{len(fixed)}.  "
            f"Received rank {array.ndim}, shape {array.shape}"
        )
    start = array.ndim - len(fixed) if rest == [0] else 0
    return [(start + i, size) for i, size in enumerate(fixed)]


def _check_size(
    size: Any,
    axis: int,
    shape: tuple[int, ...],
    known: dict[str, tuple[int, str]],
    told: tuple[str, str],
) -> None:
    """Raises unless an axis has its size; notes the size of a new symbol."""
    prefix, tensor = told
    if size is None or (isinstance(size, str) and size.strip(".*") == ""):
        return
    source = "Specified explicitly"
    if isinstance(size, str) and not size.isdigit():
        here = shape[axis], f"Specified by {tensor.lower()} dimension {axis}"
        size, source = known.setdefault(size, here)
    if shape[axis] != int(size):
        raise ValueError(
            f"{prefix}{source}.  {tensor} dimension {axis} must have size {size}.  "
            f"Received size {shape[axis]}, shape {shape}"
        )


@everyday_name(
    "debugging.set_log_device_placement", difference="The setting has no effect."
)
def set_log_device_placement(enabled: bool) -> None:
    """Stores a setting without effect; `Strategy.describe` shows the devices.

    >>> set_log_device_placement(False)
    """
    _Setting.logs_placement = bool(enabled)
    runtime_settings.tell_once(
        "debugging.set_log_device_placement",
        "strategy.describe() tells where its replicas and variables are.",
    )


@everyday_name("debugging.get_log_device_placement")
def get_log_device_placement() -> bool:
    """Returns the setting of `set_log_device_placement`.

    >>> get_log_device_placement()
    False
    """
    return _Setting.logs_placement
