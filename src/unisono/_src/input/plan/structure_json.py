"""The structure of elements as JSON data."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import nest
from unisono._src.input.plan import elements


def layout(element: Any, leaf: Callable[[Any], Any] = lambda _: None) -> Any:
    """The structure of an element; where its arrays are, what `leaf` makes of them.

    >>> layout({"a": 1, "b": (2, 3)})
    {'dict': [['a', None], ['b', {'tuple': [None, None]}]]}
    """
    if element is None:
        return {"none": True}
    if not elements.is_structure(element):
        return leaf(element)
    if isinstance(element, Mapping):
        return {"dict": [[k, layout(v, leaf)] for k, v in element.items()]}
    parts = [layout(v, leaf) for v in nest.children(element)]
    if hasattr(element, "_fields"):
        names = [type(element).__name__, *element._fields]
        return {"tuple": parts, "names": names}
    return {"tuple": parts}


def filled(made: Any, leaf: Callable[[Any], Any]) -> Any:
    """The reverse.

    >>> filled({"dict": [["a", 1], ["b", {"tuple": [2]}]]}, lambda n: n * 10)
    {'a': 10, 'b': (20,)}
    """
    if not isinstance(made, dict) or not made.keys() & {"none", "dict", "tuple"}:
        return leaf(made)
    if "none" in made:
        return None
    if "dict" in made:
        like = dict(made["dict"])
        return nest.rebuild(like, [filled(v, leaf) for v in nest.children(like)])
    parts = [filled(v, leaf) for v in made["tuple"]]
    return _named(*made["names"])(*parts) if "names" in made else tuple(parts)


@functools.cache
def _named(name: str, *fields: str) -> Any:
    return collections.namedtuple(name, fields)


def of_spec(spec: Any) -> Any:
    """The specs of an element as JSON data.

    Raises:
        TypeError: one of them does not describe an array.
    """

    def one(s: Any) -> Any:
        if not isinstance(s, specs.TensorSpec):
            raise TypeError(f"Only arrays can be written; the dataset has {s}.")
        shape = None if s.shape is None else list(s.shape)
        return {
            "shape": shape,
            "dtype": "string" if s.dtype.kind == "O" else s.dtype.name,
        }

    return layout(spec, one)


def to_spec(made: Any) -> Any:
    """The reverse."""
    return filled(made, lambda s: specs.TensorSpec(s["shape"], _type(s["dtype"])))


def _type(name: str) -> Any:
    return object if name == "string" else np.dtype(name)
