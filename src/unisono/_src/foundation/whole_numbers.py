"""The check of arguments that are whole numbers."""

from __future__ import annotations

import operator
from typing import SupportsIndex, cast

# Sizes and positions are counted in 64 bits with a sign, as in TensorFlow.
LARGEST = 2**63 - 1


def integer(value: object, what: str) -> int:
    """Returns a whole number of Python, NumPy or JAX as an `int`.

    Args:
        value: the number.
        what: the name of the argument.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is None, as in TensorFlow, or does not fit into 64 bits.

    >>> integer(3, "count")
    3
    """
    if value is None:
        raise ValueError(f"{what} must be a whole number, received None.")
    try:
        number = operator.index(cast("SupportsIndex", value))
    except TypeError:
        raise TypeError(f"{what} must be a whole number, received {value!r}.") from None
    if not -LARGEST - 1 <= number <= LARGEST:
        raise ValueError(
            f"{what} must be a whole number of 64 bits, from -2**63 to 2**63 - 1, "
            f"received {hex(number)[:40]}."
        )
    return number
