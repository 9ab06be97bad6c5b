"""Refuses numbers of the host that do not fit the types that JAX has.

Without `jax_enable_x64` JAX keeps numbers of 64 bits in 32 bits, and leaves out their
upper half without a word. Whoever takes numbers from the host for JAX asks here first.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

_T = TypeVar("_T")

# The types of 64 bits in both byte orders, and the range of what JAX may keep them in.
# Complex numbers have no order.
_RANGES: dict[np.dtype[Any], tuple[float, float] | None] = {
    np.dtype(order + kind): limits
    for order in "<>"
    for kind, limits in (
        ("i8", (-(2**31), 2**31 - 1)),
        ("u8", (0, 2**32 - 1)),
        ("f8", (-float(np.finfo(np.float32).max), float(np.finfo(np.float32).max))),
        ("c16", None),
    )
}
WIDE = frozenset(_RANGES)
ADVICE = (
    'Write jax.config.update("jax_enable_x64", True) before the program makes its '
    "first array; or make the number smaller on the host, with NumPy: a remainder "
    "such as x % 2**31, a difference, or the place in a table of the known numbers; "
    "or make it a float, with x.astype(np.float32), if it may be rounded; or keep it "
    "as text."
)


def check(x: _T, what: str = "an array", wanted: DTypeLike | None = None) -> _T:
    """Returns `x`, once each of its numbers is known to keep its value in JAX.

    Floats may be rounded, but a finite one may not become infinite.

    Args:
        x: an array or number of NumPy's; anything else is returned as it is.
        what: what has the numbers, for the message.
        wanted: the type that they get; by default the one that JAX has for theirs.

    Raises:
        OverflowError: a number does not fit.

    >>> check(np.array([1, 2])).tolist()
    [1, 2]
    >>> check(np.array([5, 2**40]), "the argument")
    Traceback (most recent call last):
        ...
    OverflowError: The number 1099511627776 at [1] of the argument is of type int64 ...
    """
    dtype: Any = getattr(x, "dtype", None)
    # The usual case: one look at the type.
    if dtype not in WIDE and (wanted is None or dtype == wanted):
        return x
    if not isinstance(x, (np.ndarray, np.generic)) or not x.size:
        return x
    if wanted is None:
        wanted = usable_type(dtype)
        limits = _RANGES[dtype]
        # The next one: a look at the least and the greatest number.
        if wanted == dtype or (limits and _is_between(x, *limits)):
            return x
    if dtype != wanted and not _fits(x, wanted):
        _raise(np.asarray(x), what, wanted)
    return x


def as_jax(
    x: object, dtype: DTypeLike | None = None, what: str = "an array"
) -> jax.Array:
    """Returns `jnp.asarray(x, dtype)`; raises `OverflowError` if a number would change.

    >>> as_jax(np.int64(3)).dtype.name
    'int32'
    """
    check(x, what, dtype)
    try:
        return jnp.asarray(x, dtype)
    except OverflowError:
        # A number of Python's, or one in a list. JAX does not say where it is.
        check(np.asarray(x), what, dtype)
        raise


def _is_between(x: np.ndarray | np.generic, low: float, high: float) -> bool:
    """Returns whether all numbers of an array are in a range; NaN is not."""
    # Not `x.min()`, which asks more questions, nor NumPy's comparison of a number.
    least, most = np.minimum.reduce(x, axis=None), np.maximum.reduce(x, axis=None)
    return low <= least.item() and most.item() <= high  # type: ignore[no-any-return]


def usable_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns the type, in the byte order of this machine, that JAX has for another."""
    return jax.dtypes.canonicalize_dtype(dtype.newbyteorder("="))


def _fits(x: np.ndarray | np.generic, wanted: DTypeLike) -> bool:
    """Returns whether all numbers of an array keep their value in another type."""
    kinds = x.dtype.kind, np.dtype(wanted).kind
    if kinds[0] in "iu" and kinds[1] in "iu":
        return _is_between(x, np.iinfo(wanted).min, np.iinfo(wanted).max)
    if kinds == ("c", "c"):
        return _fits(x.real, np.finfo(wanted).dtype) and _fits(
            x.imag, np.finfo(wanted).dtype
        )
    # In a type of 16 bits large floats are infinite, as in TensorFlow.
    if kinds != ("f", "f") or x.dtype not in WIDE or usable_type(x.dtype) != wanted:
        return True
    # NaN and infinity are in no range, and stay what they are.
    return not _changed(x, wanted).any()


def _changed(x: np.ndarray | np.generic, wanted: DTypeLike) -> Any:
    """Returns which numbers of an array do not keep their value in another type."""
    if x.dtype.kind in "iu":
        limits, found = np.iinfo(wanted), np.asarray(x)
        return (found < limits.min) | (found > limits.max)
    with np.errstate(over="ignore"):
        return np.isfinite(x) & ~np.isfinite(np.asarray(x).astype(wanted))


def _raise(x: np.ndarray, what: str, wanted: DTypeLike) -> None:
    """Raises the error that names the first number that does not fit."""
    first = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(_changed(x, wanted))))
    place = f" at {list(first)} of" if x.ndim else " of"
    is_usual = usable_type(x.dtype) == wanted
    raise OverflowError(
        f"The number {np.atleast_1d(x)[first]}{place} {what} is of type {x.dtype.name} "
        f"and does not fit {np.dtype(wanted).name}"
        f"{f', which JAX has for it. {ADVICE}' if is_usual else '.'}"
    )
