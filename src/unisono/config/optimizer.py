"""Settings of TensorFlow's graph optimizer; XLA needs none of them."""

from unisono._src.machines.runtime_settings import (
    get_experimental_options,
    get_jit,
    set_experimental_options,
    set_jit,
)

__all__ = [
    "get_experimental_options",
    "get_jit",
    "set_experimental_options",
    "set_jit",
]
