"""The structures that loaders return, as elements of a dataset.

A list of numbers or of text is one array, however deep; a list that holds an array,
or both numbers and text, means several components. PyTorch collates the texts of a
batch into a tuple, so in its batches a tuple of plain values is one component as well.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from unisono._src.foundation import nest
from unisono._src.input.plan import elements

_NUMBERS = (bool, int, float, complex, np.number, np.bool_)
_TEXT = (str, bytes)


def to_structure(element: object) -> object:
    """Returns an element whose tuples and dicts are components, and lists arrays.

    >>> to_structure([[1, 2], [3, 4]]), to_structure([np.int8([1, 2]), [3, 4]])
    ([[1, 2], [3, 4]], (array([1, 2], dtype=int8), [3, 4]))
    """
    if isinstance(element, list) and _content_kind(element) == "parts":
        return tuple(map(to_structure, element))
    if isinstance(element, Mapping):
        return {k: to_structure(v) for k, v in element.items()}
    if isinstance(element, tuple):
        return nest.rebuild(element, [to_structure(v) for v in element])
    return convert_tensor(element)


def to_element(element: object) -> object:
    """Returns what a loader gave as an element."""
    return elements.convert(to_structure(element))


def from_collated(batch: object) -> object:
    """Returns a batch that PyTorch collated, in the form that `to_structure` returns.

    >>> from_collated([("a", "b"), ("c", "d")])
    (['a', 'b'], ['c', 'd'])
    """
    if isinstance(batch, tuple):
        return nest.rebuild(batch, [_convert_component(v) for v in batch])
    if isinstance(batch, Mapping):
        return {k: _convert_component(v) for k, v in batch.items()}
    if isinstance(batch, list) and (
        _content_kind(batch) == "parts" or any(isinstance(v, tuple) for v in batch)
    ):
        return tuple(map(_convert_component, batch))
    return convert_tensor(batch)


def _convert_component(part: object) -> object:
    if type(part) is tuple and _content_kind(part) in ("numbers", "text"):
        return list(part)
    return from_collated(part)


def _content_kind(x: object) -> str:
    """Returns the contents of a list: "numbers", "text", "parts", or "" if unclear."""
    if isinstance(x, _TEXT):
        return "text"
    if isinstance(x, _NUMBERS):
        return "numbers"
    if isinstance(x, (list, tuple)):
        of_each_type = {type(v): v for v in x}
        # In a flat list, one value of each type tells as much as all of them.
        is_deep = any(issubclass(kind, (list, tuple)) for kind in of_each_type)
        kinds = {
            _content_kind(v) for v in (x if is_deep else of_each_type.values())
        } - {""}
        return "parts" if len(kinds) > 1 else "".join(kinds)
    return "parts" if hasattr(x, "__array__") or isinstance(x, Mapping) else ""


def convert_tensor(x: Any) -> object:
    """Returns `x`, as an array if it is a PyTorch tensor that NumPy would refuse."""
    torch: Any = sys.modules.get("torch")
    kind: Any = getattr(torch, "Tensor", None)
    if kind is None or not isinstance(x, kind):
        return x
    x = x.detach().cpu()
    name = str(x.dtype).removeprefix("torch.")
    if name != "bfloat16" and not name.startswith("float8"):
        return x
    # PyTorch cannot hand these types to NumPy, which knows them only from JAX. So the
    # bytes go over as integers, and get their type there.
    raw = x.contiguous().view(torch.int16 if x.element_size() == 2 else torch.uint8)
    return raw.numpy().view(np.dtype(name))
