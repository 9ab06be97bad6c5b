"""Makes variables in parts, as a partitioner cuts them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import jax_types
from unisono._src.foundation.tensor_shape import TensorShape
from unisono._src.servers import partitioners
from unisono._src.state.sharded_variable import ShardedVariable
from unisono._src.values.array_operators import operand

_log = logging.getLogger("unisono")
# A first value of more elements is made whole only with a warning, as in TensorFlow.
_LARGE = 1e9


def create(
    partitioner: Callable[..., Any],
    create_part: Callable[..., Any],
    arguments: dict[str, Any],
) -> Any:
    """Returns a variable; one in parts if the partitioner cuts it.

    Args:
        partitioner: says into how many parts.
        create_part: makes a variable from keyword arguments.
        arguments: those of `Variable`.

    Raises:
        ValueError: there is no first value, or the partitioner returns something else
            than parts along one axis.
    """
    given, name = arguments["initial_value"], arguments["name"] or "Variable"
    if given is None:
        raise ValueError(
            "It looks like you are using `ParameterServerStrategy` with a "
            "`variable_partitioner`, and trying to create a variable without "
            "specifying `initial_value`. This is not allowed. Please specify the "
            "`initial_value`."
        )
    shape, dtype = TensorShape(arguments["shape"]), arguments["dtype"]
    whole = None
    if not callable(given) or not shape.is_fully_defined() or dtype is None:
        # The partitioner needs shape and type. If they were not given, the value has
        # them.
        whole = operand(given() if callable(given) else given)
        whole = whole if hasattr(whole, "dtype") else jnp.asarray(whole)
        shape, dtype = TensorShape(whole.shape), dtype or whole.dtype
    sizes = cast("tuple[int, ...]", tuple(shape))
    count = partitioners.count_parts(partitioner, sizes, dtype, name)
    if count == 1:
        first = given if whole is None else whole
        return create_part(**{**arguments, "initial_value": first})
    parts = _first_values(given, whole, sizes, dtype, count, name)
    made = [
        create_part(
            **{
                **arguments,
                "initial_value": value,
                "shape": None,
                "name": f"{name}/part_{i}",
            }
        )
        for i, value in enumerate(parts)
    ]
    return ShardedVariable(made, name)


def _first_values(
    given: Any, whole: Any, shape: tuple[int, ...], dtype: Any, count: int, name: str
) -> Any:
    """Yields the first value of each part."""
    lengths = partitioners.lengths(shape[0], count)
    offset = 0
    for length in lengths:
        part = (length, *shape[1:])
        if whole is None:
            found = _call_for_part(given, part, (offset, *[0] * len(shape[1:])))
            if found is None or tuple(np.shape(found)) != part:
                # The function knows nothing of parts: it makes the whole value, once.
                whole = _call_for_whole(given, shape, name)
            else:
                yield jnp.asarray(found, jax_types.usable_type(dtype))
        if whole is not None:
            yield whole[offset : offset + length]
        offset += length


def _call_for_part(given: Any, shape: Any, offset: Any) -> Any:
    """Returns the part that a function makes; None if it makes no parts."""
    try:
        # TensorFlow's keywords. A function that does not take them raises `TypeError`.
        return operand(given(partition_shape=shape, partition_offset=offset))
    except (TypeError, ValueError):
        return None


def _call_for_whole(given: Any, shape: tuple[int, ...], name: str) -> Any:
    if np.prod(shape) > _LARGE:
        _log.warning(
            "The first value of the variable '%s' of shape %s is made whole, and then "
            "cut. Let the function take `partition_shape` and `partition_offset`.",
            name,
            shape,
        )
    return jnp.asarray(operand(given()))
