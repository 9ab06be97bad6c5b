"""What loaders mean by lists, tuples, mappings and tensors.

A list of numbers or of text is one array, however deep; a list that holds an array,
or both numbers and text, means several components. PyTorch joins the texts of a batch
in a tuple, so in its batches a tuple of plain values is one component as well.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from unisono._src.foundation import nest

_NUMBERS = (bool, int, float, complex, np.number, np.bool_)
_TEXT = (str, bytes)


def structured(element: Any) -> Any:
    """An element whose tuples and dicts are components, and whose lists are arrays.

    >>> structured([[1, 2], [3, 4]]), structured([np.int8([1, 2]), [3, 4]])
    ([[1, 2], [3, 4]], (array([1, 2], dtype=int8), [3, 4]))
    """
    if isinstance(element, list) and _kind(element) == "parts":
        return tuple(map(structured, element))
    if isinstance(element, Mapping):
        return {k: structured(v) for k, v in element.items()}
    if isinstance(element, tuple):
        return nest.rebuild(element, [structured(v) for v in element])
    return tensor(element)


def collated(batch: Any) -> Any:
    """A batch of PyTorch's, as `structured` would have it.

    >>> collated([("a", "b"), ("c", "d")])
    (['a', 'b'], ['c', 'd'])
    """
    if isinstance(batch, tuple):
        return nest.rebuild(batch, [_component(v) for v in batch])
    if isinstance(batch, Mapping):
        return {k: _component(v) for k, v in batch.items()}
    if isinstance(batch, list) and (
        _kind(batch) == "parts" or any(isinstance(v, tuple) for v in batch)
    ):
        return tuple(map(_component, batch))
    return tensor(batch)


def _component(part: Any) -> Any:
    if type(part) is tuple and _kind(part) in ("numbers", "text"):
        return list(part)
    return collated(part)


def _kind(x: Any) -> str:
    """What a list consists of: "numbers", "text" or "parts"; "" if that is open."""
    if isinstance(x, _TEXT):
        return "text"
    if isinstance(x, _NUMBERS):
        return "numbers"
    if isinstance(x, (list, tuple)):
        of_each_type = {type(v): v for v in x}
        is_deep = any(issubclass(kind, (list, tuple)) for kind in of_each_type)
        kinds = {_kind(v) for v in (x if is_deep else of_each_type.values())} - {""}
        return "parts" if len(kinds) > 1 else "".join(kinds)
    return "parts" if hasattr(x, "__array__") or isinstance(x, Mapping) else ""


def tensor(x: Any) -> Any:
    """An array, if `x` is a tensor of PyTorch's that NumPy would refuse."""
    torch: Any = sys.modules.get("torch")
    kind: Any = getattr(torch, "Tensor", None)
    if kind is None or not isinstance(x, kind):
        return x
    x = x.detach().cpu()
    name = str(x.dtype).removeprefix("torch.")
    if name != "bfloat16" and not name.startswith("float8"):
        return x
    # NumPy knows these types only from JAX, and PyTorch gives it only their bytes.
    raw = x.contiguous().view(torch.int16 if x.element_size() == 2 else torch.uint8)
    return raw.numpy().view(np.dtype(name))
