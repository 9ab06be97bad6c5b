"""Converts the structure of elements to JSON data and back."""

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
    """Returns the structure of an element, with `leaf(x)` in place of each leaf.

    >>> layout({"a": 1, "b": (2, 3)})
    {'dict': [['a', None], ['b', {'tuple': [None, None]}]]}
    """
    if element is None:
        return {"none": True}
    if not elements.is_structure(element):
        return leaf(element)
    # Pairs, not an object: JSON would make text of keys that are numbers.
    if isinstance(element, Mapping):
        return {"dict": [[k, layout(v, leaf)] for k, v in element.items()]}
    parts = [layout(v, leaf) for v in nest.children(element)]
    if hasattr(element, "_fields"):
        names = [type(element).__name__, *element._fields]
        return {"tuple": parts, "names": names}
    return {"tuple": parts}


def fill(made: Any, leaf: Callable[[Any], Any]) -> Any:
    """Returns the structure that `layout` described, with `leaf(x)` for each leaf.

    >>> fill({"dict": [["a", 1], ["b", {"tuple": [2]}]]}, lambda n: n * 10)
    {'a': 10, 'b': (20,)}
    """
    if not isinstance(made, dict) or not made.keys() & {"none", "dict", "tuple"}:
        return leaf(made)
    if "none" in made:
        return None
    if "dict" in made:
        like = dict(made["dict"])
        return nest.rebuild(like, [fill(v, leaf) for v in nest.children(like)])
    parts = [fill(v, leaf) for v in made["tuple"]]
    return (
        _named_tuple_type(*made["names"])(*parts) if "names" in made else tuple(parts)
    )


# Cached, so that equal names give the same type: elements of one dataset must agree.
@functools.cache
def _named_tuple_type(name: str, *fields: str) -> Any:
    return collections.namedtuple(name, fields)


def from_spec(spec: Any) -> Any:
    """Returns the specs of an element as JSON data.

    Raises:
        TypeError: one of them does not describe an array.
    """

    def convert_leaf(s: Any) -> Any:
        if not isinstance(s, specs.TensorSpec):
            raise TypeError(
                f"Only arrays can be written, and the dataset has {s}. Make arrays "
                "of it with map."
            )
        shape = s.shape.dims
        return {
            "shape": shape,
            "dtype": "string" if s.dtype.kind == "O" else s.dtype.name,
        }

    return layout(spec, convert_leaf)


def to_spec(made: Any) -> Any:
    """Returns the specs that `from_spec` made JSON data of."""
    return fill(made, lambda s: specs.TensorSpec(s["shape"], _dtype(s["dtype"])))


def _dtype(name: str) -> Any:
    return object if name == "string" else np.dtype(name)
