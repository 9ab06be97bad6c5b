"""Arrays of texts: from what a program gives to a function, and back to it.

One text is `bytes`; several are an array of `bytes` objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from unisono._src.foundation import dtypes, errors, host_numbers
from unisono._src.input.plan import elements
from unisono._src.ops import tensors
from unisono._src.values import jax_tapes

# What TensorFlow takes for a tensor of strings.
TextLike: TypeAlias = str | bytes | np.ndarray | Sequence[Any]
# What the functions of text return: see `give`.
Given: TypeAlias = Any


def read(name: str, x: object) -> bytes | np.ndarray:
    """Returns one text as `bytes`, and several as an array of `bytes` objects.

    Args:
        name: the function that was given `x`, for errors.
        x: text: of Python, of NumPy, or in lists.

    Raises:
        TypeError: it is not text, or a compiled step computes it.
    """
    if isinstance(x, bytes):
        return x
    found = x if isinstance(x, (str, np.ndarray)) else known(name, x)
    if isinstance(found, (list, tuple)) and not np.size(np.array(found, object)):
        # TensorFlow knows from the function that an empty list is one of texts.
        return np.empty(np.shape(found), object)
    made: Any = elements.to_array(found)
    if isinstance(made, bytes):
        return made
    if made.dtype.kind != "O":
        raise TypeError(
            f"{name} takes text, received an array of type {made.dtype}. "
            "unisono.strings.as_string makes text of numbers."
        )
    text: bytes | np.ndarray = made.item() if made.ndim == 0 else made
    return text


def known(name: str, x: object) -> Any:
    """Returns a value that is on the host, or that the host can read.

    Raises:
        TypeError: a compiled step computes it.
    """
    found = tensors.unwrap(x)
    if tensors.is_traced_tree(found):
        raise TypeError(
            f"unisono.{name} works on the host, and a compiled step has no text and no "
            "tables: call it in the input pipeline, as in dataset.map(lambda x: "
            f"unisono.{name}(...)), and give the step the numbers."
        )
    return np.asarray(jax_tapes.lower(found)) if tensors.is_array(found) else found


def numbers(name: str, x: object, dtype: tensors.DType = None) -> np.ndarray:
    """Returns numbers as an array of TensorFlow's type on the host, 64 bits included.

    Raises:
        TypeError: a compiled step computes them.
        InvalidArgumentError: they are no numbers.
    """
    found: Any = elements.to_array(known(name, x))
    if isinstance(found, bytes) or found.dtype.kind not in "biufcV":
        raise errors.InvalidArgumentError(f"{name} takes numbers, received {x!r}.")
    array = np.asarray(found)
    return array if dtype is None else array.astype(dtype, casting="same_kind")


def give(found: object) -> Given:
    """Returns a result for the program: arrays, numbers and texts that have `numpy`.

    >>> give(np.array([b"a"], object)), give(b"a"), give(np.int64(3)).numpy()
    (HostArray([b'a'], dtype=object), b'a', np.int64(3))
    """
    if isinstance(found, np.ndarray) and found.ndim:
        return found.view(elements.HostArray)
    plain = elements.to_plain(found)
    if type(plain) is np.bool_:
        return np.asarray(plain).view(host_numbers.HostBool)
    return host_numbers.to_host_number(plain)


def fill(
    values: Sequence[Any], shape: Sequence[int], dtype: np.dtype = dtypes.string
) -> np.ndarray:
    """Returns values, in the order of rows, as an array of a shape."""
    made = np.empty(len(values), dtype)
    made[:] = values
    return made.reshape(shape)


def each(
    fn: Callable[[bytes], Any],
    found: bytes | np.ndarray,
    dtype: np.dtype = dtypes.string,
) -> Given:
    """Returns a function's results for each text.

    Args:
        fn: takes one text.
        found: the texts, from `read`.
        dtype: the type of the results.
    """
    if isinstance(found, bytes):
        one = fn(found)
        return give(one if dtype is dtypes.string else dtype.type(one))
    return give(fill(list(map(fn, found.ravel().tolist())), found.shape, dtype))
