"""Makes a plan from whatever loader, arrays or iterable a user has.

The libraries of the loaders are not imported here: an object of a library that the
program has not loaded cannot exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from unisono._src.input.loaders import data_sources, hugging_face, keras, torch
from unisono._src.input.plan import elements, loader_structures, nodes
from unisono._src.input.sources import arrays, grain_sources, iterables


def to_node(loader: object) -> nodes.Node:
    """Returns the plan of a dataset, a loader, arrays, or anything iterable.

    Raises:
        TypeError: it cannot be iterated.
    """
    node = getattr(loader, "_node", None)
    if isinstance(node, nodes.Node):
        return node
    for convert in _CONVERTERS:
        node = convert(loader)
        if node is not None:
            return node
    by_number = hasattr(type(loader), "__getitem__")
    if isinstance(loader, (str, bytes)) or not (
        by_number or isinstance(loader, Iterable)
    ):
        raise TypeError(
            "Expected a unisono.data.Dataset, a loader of Grain, PyTorch, Hugging Face "
            "or Keras, arrays, or something else to iterate over, received "
            f"{type(loader).__name__}."
        )
    torch.check_processes(loader)
    if isinstance(loader, Iterator):
        return iterables.OneShot(iterables.CallableOnce(loader))
    if not isinstance(loader, Iterable):
        return iterables.Plain(iterables.IndexedIterable(loader))
    return iterables.Plain(loader)


def _arrays_to_node(loader: object) -> nodes.Node | None:
    """Returns a source of the rows of arrays; None if `loader` is no arrays.

    In a dict, lists count as arrays as well.

    Raises:
        TypeError: it is a dict of something else.
    """
    is_dict = isinstance(loader, Mapping)
    if elements.is_structure(loader):
        leaves = list(elements.leaves(loader))
    else:
        leaves = [loader]
    if leaves and all(
        hasattr(x, "__array__") or (is_dict and isinstance(x, list)) for x in leaves
    ):
        return arrays.Slices.of(
            elements.map_leaves(loader_structures.convert_tensor, loader)
        )
    if is_dict:
        raise TypeError(
            "Expected a dict of arrays or lists with one row per example, as "
            "Dataset.from_tensor_slices takes it, received a "
            f"{type(loader).__name__} of {_types_of(leaves)}. To go through what a "
            "dict holds, give list(d.values()), or one of them: d[key]."
        )
    return None


def _types_of(leaves: list[Any]) -> str:
    """Returns the names of the types of some objects, for an error."""
    return ", ".join(sorted({type(x).__name__ for x in leaves})) or "nothing"


# Each returns None for what it does not know. Arrays come last: loaders may look like
# mappings or arrays.
_CONVERTERS = (
    grain_sources.to_node,
    torch.to_node,
    hugging_face.to_node,
    keras.to_node,
    data_sources.to_node,
    _arrays_to_node,
)
