"""Conversion of plain Python data to JSON and back, without loss and without code.

JSON has no tuples, bytes, complex numbers, infinities or NumPy arrays, and its objects
have string keys only. Each of these is written as an object with one key that begins
with ``$``; a dictionary that has such a key itself is written as a list of pairs.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from unisono._src.foundation.tensor_shape import TensorShape
from unisono._src.saving.format import array_types

_SCALARS = (bool, int, str)
# Deep enough for any state, and far below Python's limit of 1,000 nested calls.
_MAX_LEVELS = 200


def is_plain(value: Any, _level: int = 0) -> bool:
    """Whether `encode` can write a value and it holds no arrays."""
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return True
    if isinstance(value, np.generic):
        return array_types.is_known(value.dtype)
    if _level > _MAX_LEVELS:
        return False
    if type(value) in (list, tuple):
        return all(is_plain(x, _level + 1) for x in value)
    if type(value) is dict:
        pairs = value.items()
        return all(is_plain(x, _level + 1) for pair in pairs for x in pair)
    return False


def encode(value: Any, where: str, _level: int = 0) -> Any:
    """Returns a value in a form that `json.dumps` accepts.

    Args:
        value: nested dicts, lists and tuples of numbers, strings, bytes, None and
            NumPy arrays.
        where: what the value is part of, for messages.

    Raises:
        TypeError: the value holds something else.

    >>> encode({"epoch": 3, "shape": (2, 4)}, "state")
    {'epoch': 3, 'shape': {'$tuple': [2, 4]}}
    """
    if _level > _MAX_LEVELS:
        raise TypeError(f"{where} is nested more than {_MAX_LEVELS} levels deep.")
    # Exact types throughout: a subclass would come back as its base class. A shape may,
    # because it is equal to the tuple.
    if value is None or type(value) in _SCALARS:
        return value
    if type(value) is list:
        return [encode(x, where, _level + 1) for x in value]
    if type(value) in (tuple, TensorShape):
        return {"$tuple": [encode(x, where, _level + 1) for x in value]}
    if type(value) is dict:
        return _encode_dict(value, where, _level)
    return _encode_leaf(value, where)


def _encode_dict(value: dict[Any, Any], where: str, level: int) -> Any:
    if all(type(k) is str and not k.startswith("$") for k in value):
        return {k: encode(v, where, level + 1) for k, v in value.items()}
    return {
        "$items": [
            [encode(k, where, level + 1), encode(v, where, level + 1)]
            for k, v in value.items()
        ]
    }


def _encode_leaf(value: object, where: str) -> Any:
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if type(value) is complex:
        return {"$complex": [repr(value.real), repr(value.imag)]}
    if type(value) is bytes:
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, np.ndarray | np.generic) and array_types.is_known(value.dtype):
        array = np.ascontiguousarray(value)
        return {
            "$array" if isinstance(value, np.ndarray) else "$scalar": [
                array_types.name(array.dtype),
                list(np.shape(value)),
                base64.b64encode(array.tobytes()).decode("ascii"),
            ]
        }
    raise TypeError(
        f"{where} holds {value!r} of type {type(value).__name__}, which cannot be put "
        "in a checkpoint. State is made of numbers, strings, bytes, None, NumPy arrays "
        "of numbers, and lists, tuples and dicts of these."
    )


def decode(value: object, _level: int = 0) -> Any:
    """Returns the data that `encode` was given.

    Raises:
        ValueError: `encode` does not write such a value.

    >>> decode({"epoch": 3, "shape": {"$tuple": [2, 4]}})
    {'epoch': 3, 'shape': (2, 4)}
    """
    if _level > _MAX_LEVELS + 1:
        raise ValueError(f"data is nested more than {_MAX_LEVELS} levels deep")
    if isinstance(value, list):
        return [decode(x, _level + 1) for x in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if not tag.startswith("$"):
        return {k: decode(v, _level + 1) for k, v in value.items()}
    if len(value) != 1 or tag not in _DECODERS:
        raise ValueError(f"unknown form of data {tag[:80]!r}")
    try:
        return _DECODERS[tag](value[tag], _level + 1)
    except (TypeError, KeyError, IndexError, OverflowError, binascii.Error) as error:
        raise ValueError(f"malformed data under {tag!r}: {error}") from error


def _decode_tuple(parts: object, level: int) -> tuple[Any, ...]:
    return tuple(decode(x, level) for x in _check_type(parts, list))


def _decode_float(text: object, _: int = 0) -> float:
    return float(_check_type(text, str))


def _decode_complex(parts: object, _: int) -> complex:
    real, imaginary = _check_type(parts, list)
    return complex(_decode_float(real), _decode_float(imaginary))


def _decode_scalar(parts: object, level: int) -> Any:
    found = _decode_array(parts, level)
    if found.ndim:
        raise ValueError(f"a number has the shape {found.shape}")
    return found[()]


def _check_type(value: object, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, found {str(value)[:80]}")
    return value


def _decode_array(parts: Any, _: int) -> np.ndarray:
    name, shape, text = parts
    dtype = array_types.parse(name)
    data = base64.b64decode(text, validate=True)
    count = array_types.count(shape)
    if len(data) != count * dtype.itemsize:
        raise ValueError(f"{len(data)} bytes given for {name}{shape}")
    # A copy, because an array on top of `bytes` is read-only.
    return np.frombuffer(data, dtype).reshape(shape).copy()


def _decode_dict(pairs: object, level: int) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in _check_type(pairs, list):
        name = decode(key, level)
        if name in found:
            raise ValueError(f"the key {str(name)[:80]!r} is there twice")
        found[name] = decode(value, level)
    return found


_DECODERS: dict[str, Callable[[Any, int], Any]] = {
    "$tuple": _decode_tuple,
    "$items": _decode_dict,
    "$float": _decode_float,
    "$complex": _decode_complex,
    "$bytes": lambda x, _: base64.b64decode(_check_type(x, str), validate=True),
    "$array": _decode_array,
    "$scalar": _decode_scalar,
}
