"""Checks the arguments of datasets, so that errors appear at the call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from unisono._src.foundation import errors, nest
from unisono._src.foundation.whole_numbers import integer
from unisono._src.input.plan import nodes
from unisono._src.input.stages import captured_values, mapping

__all__ = ["integer"]

_Checked = TypeVar("_Checked")
Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Paths = Path | Sequence[Path] | np.ndarray


def positive_integer(value: object, what: str) -> int:
    """Returns a whole number that is at least 1.

    Raises:
        InvalidArgumentError: it is smaller.
    """
    number = integer(value, what)
    if number < 1:
        raise errors.InvalidArgumentError(
            f"{what} must be greater than zero, received {value}."
        )
    return number


def nonnegative_integer(value: object, what: str) -> int:
    """Returns a whole number that is at least 0; 0 for None.

    Raises:
        InvalidArgumentError: it is smaller.
    """
    number = 0 if value is None else integer(value, what)
    if number < 0:
        raise errors.InvalidArgumentError(
            f"{what} must not be negative, received {value}."
        )
    return number


def integers(values: object, what: str) -> list[int]:
    """Returns a list of whole numbers.

    Raises:
        TypeError: it is no list of whole numbers.
    """
    # An array without axes has an `__iter__` that raises.
    is_one = isinstance(values, (str, bytes)) or getattr(values, "ndim", 1) == 0
    if is_one or not isinstance(values, Iterable):
        raise TypeError(f"{what} must be a list of whole numbers, received {values!r}.")
    return [integer(value, f"Each of {what}") for value in values]


def flag(value: object, what: str) -> bool:
    """Returns True or False.

    Raises:
        TypeError: it is something else; the text "no", for one, would count as True.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{what} must be True or False, received {value!r}.")
    return bool(value)


def seed(value: object, what: str) -> int | None:
    """Returns a seed as an `int`, or None."""
    return None if value is None else integer(value, what)


def parallel(count: object, what: str) -> int | None:
    """Returns a number of parallel calls, `AUTOTUNE` or None.

    Raises:
        InvalidArgumentError: it is less than 1.
    """
    if count is None:
        return None
    number = integer(count, what)
    if number < 1 and number != mapping.AUTOTUNE:
        raise errors.InvalidArgumentError(
            f"{what} must be a positive number or AUTOTUNE, received {count}."
        )
    return number


# More datasets than a process could open at a time.
_MOST_OPEN = 1 << 24


def cycle(count: object, what: str) -> int | None:
    """Returns how many datasets are open at a time, `AUTOTUNE` or None.

    Raises:
        InvalidArgumentError: it is less than 1, or more than can be open.
    """
    number = parallel(count, what)
    if number is not None and number > _MOST_OPEN:
        raise errors.InvalidArgumentError(
            f"{what} must be at most {_MOST_OPEN}, received {number}."
        )
    return number


def function(fn: object, what: str) -> Callable[..., Any]:
    """Returns a function, which keeps the values that it takes from around it.

    Raises:
        TypeError: it cannot be called.
    """
    if not callable(fn):
        raise TypeError(f"`{what}` must be a function, received {type(fn).__name__}.")
    return captured_values.keep_values(fn)


def generator(fn: object, what: str) -> Callable[..., Any]:
    """Returns a function that gives an iterable, perhaps a generator.

    Raises:
        TypeError: it cannot be called.
    """
    if not callable(fn):
        raise TypeError(
            f"`{what}` must be a callable that gives an iterable, received "
            f"{type(fn).__name__}."
        )
    return fn


def optional(
    check: Callable[[Any, str], _Checked], value: object, what: str
) -> _Checked | None:
    """Returns what a check returns for a value; None for None."""
    return None if value is None else check(value, what)


def batch_sizes(given: object, what: str) -> list[int]:
    """Returns the sizes of batches, which take turns; often there is only one.

    Raises:
        TypeError: it is no whole number, and no list of whole numbers.
        ValueError: a size is negative, or all are 0.
    """
    many = isinstance(given, (list, tuple)) or getattr(given, "ndim", 0) > 0
    sizes = integers(given, what) if many else [integer(given, what)]
    if not sizes or min(sizes) < 0 or not any(sizes):
        raise ValueError(
            f"{what} must be a positive number or several, received {given!r}."
        )
    return sizes


def number_type(given: Any, what: str) -> np.dtype:
    """Returns a type of numbers.

    Raises:
        TypeError: it is no type, or not one of numbers.
    """
    found: np.dtype | None
    try:
        # An array has a type, but is none.
        is_array = hasattr(given, "__array__") and not isinstance(given, type)
        found = np.dtype(object if is_array else given)
    except (TypeError, ValueError, SyntaxError, OverflowError):
        found = None
    # Types such as bfloat16 are of the kind "V", as plain bytes are.
    is_extended = found is not None and found.kind == "V" and found.names is None
    # ml_dtypes' types print their names; raw bytes and sub-arrays print these.
    is_extended = is_extended and not str(found).startswith(("|V", "void", "("))
    if found is None or not (found.kind in "biuf" or is_extended):
        raise TypeError(f"{what} must be a type of numbers, received {given!r}.")
    return found


# What file systems allow.
_MOST_NAME_BYTES = 255


def path(given: object, what: str) -> str:
    """Returns a path as text.

    Raises:
        TypeError: it is no path.
        ValueError: no file can have that name.
    """
    if not isinstance(given, (str, bytes, os.PathLike)):
        raise TypeError(f"`{what}` must be a path, received {given!r}.")
    text = os.fsdecode(given)
    if "\0" in text:
        raise ValueError(f"`{what}` must have no zero bytes, received {text[:80]!r}.")
    check_name_lengths(text, what)
    return text


def check_name_lengths(text: str, what: str, ending: str = "") -> None:
    """Raises `ValueError` if a path has a longer name than file systems allow."""
    for part in f"{text}{ending}".split(os.sep):
        count = len(part.encode(errors="surrogatepass"))
        if count > _MOST_NAME_BYTES:
            raise ValueError(
                f"`{what}` must have names of at most "
                f"{_MOST_NAME_BYTES - len(ending)} bytes, received one of "
                f"{count - len(ending)}: {part[:40]}..."
            )


def compression(given: object, what: str) -> str | None:
    """Returns the name of a compression, or None; whether it is known is not checked.

    Raises:
        TypeError: it is no text.
    """
    if given is not None and not isinstance(given, str):
        raise TypeError(f"`{what}` must be text or None, received {given!r}.")
    return given


def plan(dataset: object, what: str) -> nodes.Node:
    """Returns the plan of a dataset.

    Raises:
        TypeError: it is no dataset.
    """
    node = getattr(dataset, "_node", None)
    if not isinstance(node, nodes.Node):
        raise TypeError(f"`{what}` must be a `Dataset`, received {dataset!r}.")
    return node


def plans(datasets: object, what: str) -> list[nodes.Node]:
    """Returns the plans of a list of datasets.

    Raises:
        TypeError: it is no list of datasets.
        ValueError: it is empty.
    """
    if not isinstance(datasets, Sequence) or isinstance(datasets, (str, bytes)):
        raise TypeError(f"`{what}` must be a list of datasets, received {datasets!r}.")
    if not len(datasets):
        raise ValueError(f"`{what}` must not be empty.")
    return [plan(d, f"{what}[{i}]") for i, d in enumerate(datasets)]


def parts(like: Any, given: Any, what: str, wanted: str) -> list[Any]:
    """Returns the parts of `given` in the order of the components of `like`.

    Args:
        like: a tuple or mapping.
        given: a structure that must have the same components.
        what: the name of the argument.
        wanted: names `like` in error messages.

    Raises:
        TypeError: `given` is a structure of another kind, or no structure.
        ValueError: `given` has other components.
    """
    told = f"`{what}` must have the structure of {wanted}, {like!r}; received {given!r}"
    if isinstance(like, Mapping):
        if not isinstance(given, Mapping):
            raise TypeError(f"{told}, which is no dict.")
        if given.keys() != like.keys():
            raise ValueError(f"{told}, which has other keys.")
        return [given[key] for key in nest.keys(like)]
    if not isinstance(given, tuple):
        raise TypeError(f"{told}, which is no tuple.")
    if len(given) != len(like):
        raise ValueError(f"{told}, which has another length.")
    return list(given)


def shape(given: object, what: str) -> tuple[int | None, ...] | None:
    """Returns a shape whose sizes may be None; None stands for any rank.

    A single number is a shape of one axis, and a size of -1 means None.

    Raises:
        TypeError: it is no shape.
        ValueError: it is a structure of shapes, or a size is negative.
    """
    if given is None:
        return None
    if isinstance(given, (str, bytes)):
        raise TypeError(f"{what} must be a shape, received {given!r}.")
    sizes = given if hasattr(given, "__iter__") else [given]
    if isinstance(sizes, Mapping) or any(isinstance(n, (list, tuple)) for n in sizes):
        raise ValueError(f"{what} must be one shape, received {given!r}.")
    made = tuple(
        None if size is None else integer(size, f"Each size in {what}")
        for size in sizes
    )
    if any(size is not None and size < -1 for size in made):
        raise ValueError(f"{what} must have sizes >= 0, received {given!r}.")
    return tuple(None if size == -1 else size for size in made)


def shares(
    given: object, what: str, thing: str, count: int | None = None
) -> np.ndarray:
    """Returns one finite number >= 0 for each of several things, in float64.

    Args:
        given: the numbers.
        what: the name of the argument.
        thing: names one of the things in error messages.
        count: how many things there are, if that is known.

    Raises:
        TypeError: it does not consist of numbers.
        ValueError: there is not one number for each, or one is negative.
    """
    told = f"{what} must be a list of numbers, received {given!r}."
    try:
        found = np.asarray(given)
    except (TypeError, ValueError):
        raise TypeError(told) from None
    if found.dtype.kind not in "biuf":
        raise TypeError(told)
    found = found.astype(np.float64)
    if found.ndim != 1 or not found.size or (count is not None and found.size != count):
        known = "" if count is None else f", of which there are {count}"
        raise ValueError(
            f"{what} must have one number for each {thing}{known}; received "
            f"{given!r} of shape {found.shape}."
        )
    if not np.isfinite(found).all() or (found < 0).any():
        raise ValueError(
            f"{what} must be finite numbers >= 0, received {found.tolist()}."
        )
    return found


def paths(given: object, what: str) -> tuple[str, ...]:
    """Returns one or several paths, also nested ones, as a flat tuple.

    Raises:
        TypeError: it is something else.
        ValueError: it is None, as in TensorFlow.
    """
    if given is None:
        raise ValueError(f"`{what}` must be one or several paths, received None.")
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if isinstance(given, (str, bytes, os.PathLike)):
        return (path(given, what),)
    if not isinstance(given, (list, tuple)):
        raise TypeError(
            f"`{what}` must contain text, a path or several, received {given!r}."
        )
    return tuple(name for part in given for name in paths(part, what))


def call_generator(make: Callable[[], Any]) -> Iterable[Any]:
    """Calls a generator function and returns its result, which can be iterated.

    Raises:
        InvalidArgumentError: the result cannot be iterated.
    """
    made: Iterable[Any] = make()
    if not hasattr(made, "__iter__") and not hasattr(made, "__getitem__"):
        raise errors.InvalidArgumentError(
            "The `generator` of from_generator must yield elements or return an "
            f"iterable of them; it returned {made!r}."
        )
    return made
