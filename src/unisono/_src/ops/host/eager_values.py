"""The values of loops that run as Python: on the host in a dataset's function."""

from __future__ import annotations

from typing import Any

from unisono._src.foundation import ambient
from unisono._src.foundation.tensorflow_names import host_bodies
from unisono._src.ops import tensors
from unisono._src.ops.host import working_arrays
from unisono._src.values import jax_traces


def tensor(x: object) -> Any:
    """Returns the array of a value: NumPy's in a function of a dataset, else JAX's.

    In such a function an array of JAX stays what it is.

    >>> type(tensor([1, 2])).__name__
    'ArrayImpl'
    """
    if (
        ambient.is_in_dataset()
        and host_bodies.are_of_host((x,))
        and jax_traces.is_clean()
    ):
        try:
            return working_arrays.present(working_arrays.tensor(x))
        except working_arrays.NeedsJax:
            pass
    return tensors.tensor(x)


def is_tensor(x: object) -> bool:
    """Returns whether a value is an array of JAX or of the host, or stands for one."""
    return isinstance(x, working_arrays.TENSORS) or tensors.is_array(x)
