"""`padded_batch`: finds the padded shape and the value of every component."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import nest
from unisono._src.input.plan import elements
from unisono._src.input.stages import argument_checks


def _loosen(shape: Any, certain: bool) -> Any:
    """Returns a shape; without its sizes if it is only that of the first element."""
    return shape if certain or shape.rank is None else (None,) * len(shape)


def find(spec: Any, shapes: Any, values: Any, certain: bool = True) -> tuple[Any, Any]:
    """Returns the padded shape and the value of every component.

    Args:
        spec: the spec of an element.
        shapes: the shapes that the user gave, or None.
        values: the values that the user gave, or None.
        certain: whether all elements fit `spec`, not only the first.

    Raises:
        ValueError: a shape is not known, or does not fit its component.
        TypeError: a value cannot be of the type of its component.
    """
    found = list(elements.leaves(spec))
    if shapes is None:
        wanted = [_loosen(s.shape, certain) for s in found]
    else:
        wanted = _flat_shapes(spec, shapes)
    for s, shape in zip(found, wanted, strict=True):
        if s.shape.rank is None or shape is None:
            raise ValueError(
                "You must provide `padded_shapes` argument because component of "
                f"unknown rank: {s}."
            )
        if len(shape) != len(s.shape) or (certain and _is_too_small(shape, s.shape)):
            raise ValueError(
                f"The padded shape {tuple(shape)} is not compatible with the shape "
                f"{s.shape} of the corresponding input component."
            )
    given = _flat_values(spec, values)
    made = iter(
        specs.TensorSpec(shape, s.dtype) for s, shape in zip(found, wanted, strict=True)
    )
    filler = iter(given)
    return (
        elements.map_leaves(lambda _: next(made), spec),
        elements.map_leaves(lambda _: next(filler), spec),
    )


def _is_too_small(padded: Any, shape: Any) -> bool:
    """Whether an element surely does not fit into a padded shape."""
    pairs = zip(padded, shape, strict=True)
    return any(p is not None and n is not None and p < n for p, n in pairs)


def _flat_shapes(spec: Any, shapes: Any) -> list[Any]:
    """Returns the shapes in the order of the components; a shape is itself a tuple."""
    if not elements.is_structure(spec):
        return [argument_checks.shape(shapes, "padded_shapes")]
    found = argument_checks.parts(spec, shapes, "padded_shapes", "an element")
    pairs = zip(nest.children(spec), found, strict=True)
    return [shape for s, p in pairs for shape in _flat_shapes(s, p)]


def _spread_values(spec: Any, values: Any) -> list[Any]:
    """Returns the value for every component; one value stands for all below it."""
    if not elements.is_structure(spec):
        return [values]
    if not elements.is_structure(values):
        parts = [values] * len(spec)
    elif isinstance(spec, Mapping) and isinstance(values, Mapping):
        if values.keys() != spec.keys():
            raise ValueError(
                f"padding_values has the components {sorted(values)}, and elements "
                f"have {sorted(spec)}."
            )
        parts = nest.children(values)
    elif (
        isinstance(spec, Mapping)
        or isinstance(values, Mapping)
        or len(values) != len(spec)
    ):
        raise ValueError(
            f"padding_values must have the structure of an element, {spec}, or be one "
            f"value, received {values!r}."
        )
    else:
        parts = list(values)
    pairs = zip(nest.children(spec), parts, strict=True)
    return [value for s, v in pairs for value in _spread_values(s, v)]


def _flat_values(structure: Any, values: Any) -> list[Any]:
    """Returns the value for every component, in its type; zero or empty by default."""
    flat = _spread_values(structure, values)
    made = []
    for spec, value in zip(elements.leaves(structure), flat, strict=True):
        if value is None:
            value = b"" if spec.dtype.kind == "O" else np.zeros((), spec.dtype)[()]
        array = elements.as_array(elements.to_array(value))
        # Python's numbers have no type of their own, so they
        # take that of the component.
        is_python = isinstance(value, (int, float)) and spec.dtype.kind in "iuf"
        if array.dtype != spec.dtype and not is_python:
            raise TypeError(
                f"Value to be padded with ({value!r}) does not match the type of its "
                f"component, {spec.dtype}."
            )
        is_text = spec.dtype.kind == "O"
        made.append(array[()] if is_text else np.asarray(value, spec.dtype))
    return made
