"""Weights with other last digits: what rounding elsewhere in a step would have done.

Another number of replicas gives each device fewer rows, for which it has other programs
of matrix products: the activations differ in their last digits. Another order of the
rows on one device leaves them as they are, bit for bit.
"""

from __future__ import annotations

import zlib

import numpy as np

# Changes with this number or a larger one are of so many rounding errors.
FAR, _FAR_UNITS = 100, 1000.0


def change(values: np.ndarray, name: str, number: int) -> np.ndarray:
    """Returns an array whose numbers are some rounding errors larger or smaller.

    Whole numbers stay, since a program may count or compare with them. So do numbers of
    16 bits, whose rounding errors are too large for it.

    Args:
        values: the numbers.
        name: the name of the variable that has them.
        number: which of many such arrays; zero for the values as they are. From one on
            they change by one rounding error, from `FAR` on by a thousand.

    >>> change(np.array([0.5, 1.0], "f"), "w", 1) == np.array([0.5, 1.0], "f")
    array([False,  True])
    """
    if not number or values.dtype not in (np.float32, np.float64):
        return values
    draw = np.random.RandomState([number, zlib.crc32(name.encode())])
    size = np.finfo(values.dtype).eps * (_FAR_UNITS if number >= FAR else 1.0)
    signs = draw.choice([-1.0, 1.0], values.shape)
    changed = (values * (1.0 + size * signs)).astype(values.dtype)
    return np.where(values == np.rint(values), values, changed)
