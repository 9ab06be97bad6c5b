"""Text as functions of records take it and return it: `bytes`, on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisono._src.foundation import errors, host_numbers
from unisono._src.input.plan import elements
from unisono._src.ops import bodies, tensors
from unisono._src.values import jax_traces


def read(name: str, what: str, x: object) -> bytes | np.ndarray:
    """Returns text as `bytes`, or as an array of `bytes`.

    Args:
        name: the function that was called.
        what: the argument, for messages.
        x: `bytes`, `str`, nested lists or an array of them.

    Raises:
        TypeError: it is no text, or a program is being compiled, which has none.
    """
    if not jax_traces.is_clean() and bodies.is_traced():
        raise TypeError(
            f"{name} reads bytes, and a compiled program has none. Call it in the "
            "dataset, as in dataset.map(parse), in a function without "
            "unisono.function."
        )
    if type(x) is bytes:
        return x
    # A batch of a dataset, which needs no conversion.
    if isinstance(x, elements.HostArray) and x.ndim and {*map(type, x.flat)} == {bytes}:
        return x.view(np.ndarray)
    found = None if tensors.is_array(x) else elements.to_array(x)
    if isinstance(found, bytes):
        return found
    if not isinstance(found, np.ndarray) or found.dtype.kind != "O":
        # A list without elements has no text either, and is one all the same.
        if isinstance(found, np.ndarray) and not found.size:
            return found.astype(object)
        raise TypeError(f"{what} of {name} must be bytes, received {x!r}.")
    return found


def read_one(name: str, what: str, x: object) -> bytes:
    """Returns one text; the arguments are those of `read`.

    Raises:
        TypeError: it is no text, or a program is being compiled, which has none.
        InvalidArgumentError: it is an array of texts.
    """
    found = read(name, what, x)
    if isinstance(found, bytes):
        return found
    raise errors.InvalidArgumentError(
        f"{what} of {name} must be a scalar, received shape {found.shape}."
    )


def present(x: Any) -> Any:
    """Returns an array, or one text, as functions return it: as elements are."""
    if type(x) is not bytes:
        return x.view(elements.HostArray)
    return host_numbers.HostText(x)
