"""What loaders mean by lists, tuples and mappings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def structured(element: Any) -> Any:
    """Loaders give lists of arrays where they mean several arrays."""
    if isinstance(element, list) and any(_is_array(x) for x in element):
        return tuple(map(structured, element))
    if isinstance(element, Mapping):
        return {k: structured(v) for k, v in element.items()}
    if type(element) is tuple:
        return tuple(map(structured, element))
    return element


def _is_array(x: Any) -> bool:
    return hasattr(x, "__array__") or isinstance(x, (list, tuple, Mapping))
