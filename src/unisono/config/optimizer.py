"""Settings of TensorFlow's graph optimizer, which have no effect with XLA."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.machines.runtime_settings import (
    get_experimental_options as get_experimental_options,
    get_jit as get_jit,
    set_experimental_options as set_experimental_options,
    set_jit as set_jit,
)

_lazy_names.serve(__name__)
