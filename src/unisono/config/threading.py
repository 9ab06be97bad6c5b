"""TensorFlow's settings for threads; they have no effect, because XLA chooses."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.machines.runtime_settings import (
    get_inter_op_parallelism_threads as get_inter_op_parallelism_threads,
    get_intra_op_parallelism_threads as get_intra_op_parallelism_threads,
    set_inter_op_parallelism_threads as set_inter_op_parallelism_threads,
    set_intra_op_parallelism_threads as set_intra_op_parallelism_threads,
)

_lazy_names.serve(__name__)
