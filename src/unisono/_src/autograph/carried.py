"""The values of names that go into branches and loops, and come out of them."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.autograph import jumps
from unisono._src.execution import conversion, signature
from unisono._src.foundation import nest
from unisono._src.ops import bodies, tensors

_NUMBERS = (bool, int, float, complex, np.ndarray, np.generic, jax.Array)


@final
class _Undefined:
    """Stands for the value of a name that has none."""

    def __repr__(self) -> str:
        return "<undefined>"


UNDEFINED = _Undefined()


@final
class Symbol(NamedTuple):
    """A name of a converted function.

    Attributes:
        name: its text, such as ``x`` or ``self.x``.
        get: returns its value; raises if it has none.
        put: sets its value.
    """

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], None]


def read(symbol: Symbol) -> Any:
    """Returns the value of a name, or `UNDEFINED`."""
    try:
        return symbol.get()
    except (NameError, AttributeError, KeyError, IndexError):
        return UNDEFINED


def write(symbols: Sequence[Symbol], values: Sequence[Any]) -> None:
    """Sets the values of names."""
    for symbol, value in zip(symbols, values, strict=True):
        if value is not UNDEFINED or read(symbol) is not UNDEFINED:
            symbol.put(value)


def find_known(x: object) -> tuple[bool, Any]:
    """Returns whether the value of a condition is known, and the value."""
    if not tensors.is_array(x):
        return True, x
    found = bodies.find_known_value(tensors.tensor(x))
    return found is not None, found


def is_unknown(x: object) -> bool:
    """Returns whether a value is an array that only the running program knows."""
    return tensors.is_array(x) and not find_known(x)[0]


def as_condition(x: object, what: str) -> jax.Array:
    """Returns a condition as a scalar of type bool.

    Raises:
        ValueError: it has more than one element.
    """
    array = tensors.tensor(x)
    if array.size != 1:
        raise ValueError(
            f"{where()}The condition of {what} must be one value, received an array of "
            f"shape {array.shape}. Write unisono.reduce_all or unisono.reduce_any."
        )
    found: jax.Array = jnp.reshape(array, ()).astype(bool)
    return found


# Structures of arrays.


@final
@dataclasses.dataclass(frozen=True)
class _Rest:
    """What a leaf is besides its arrays; an array is None."""

    rest: Any = None
    count: int = 1


_ARRAY = _Rest()


def split(value: object) -> tuple[Any, list[Any]]:
    """Returns a value with a mark for each leaf, and the arrays of the leaves."""
    leaves: list[Any] = []

    def take(x: object) -> _Rest:
        if isinstance(x, bodies.LoopCarried):
            leaves.append(x)
            return _ARRAY
        is_text = isinstance(x, np.ndarray) and x.dtype.kind in "OSU"
        if isinstance(x, _NUMBERS) and not is_text:
            leaves.append(bodies.strong_array(x))
            return _ARRAY
        flat: list[Any] = []
        rest = signature.flatten(x, flat, None)
        leaves.extend(map(bodies.strong_array, flat))
        return _Rest(rest, len(flat))

    return nest.map_structure(take, value), leaves


def as_arrays(value: object) -> Any:
    """Returns a value in which each variable is replaced by what it holds."""

    def take(x: object) -> Any:
        is_variable = tensors.is_array(x) and not isinstance(x, _NUMBERS)
        return tensors.tensor(x) if is_variable else x

    return nest.map_structure(take, value)


def join(marks: object, leaves: Iterator[Any]) -> Any:
    """Returns the value that `split` took apart, with other arrays."""

    def fill(mark: _Rest) -> Any:
        if mark.rest is None:
            return next(leaves)
        return signature.rebuild(
            mark.rest, iter([next(leaves) for _ in range(mark.count)])
        )

    return nest.map_structure(fill, marks)


def describe_parts(marks: object, leaves: Sequence[Any]) -> str:
    """Returns what a value is that `split` took apart, in the user's terms."""
    given = iter(leaves)

    def tell(mark: _Rest) -> str:
        parts = [next(given) for _ in range(mark.count)]
        if mark.rest is None or parts:
            return ", ".join(
                f"{a.dtype}{list(a.shape)}" if hasattr(a, "shape") else repr(a)
                for a in parts
            )
        return repr(signature.rebuild(mark.rest, iter(())))

    return str(nest.map_structure(tell, marks)).replace("'", "")


# Messages.


def told(name: str) -> str:
    """Returns the name of a symbol in messages."""
    if name == jumps.RESULT:
        return "the return value"
    return name if " " in name else f"'{name}'"


def where() -> str:
    """Returns the user's line that runs now, as the start of a message, or ""."""
    for frame, line in traceback.walk_stack(None):
        if not conversion.is_library(frame.f_globals, frame.f_code):
            code = frame.f_code
            return f"{code.co_filename}, line {line}: "
    return ""
