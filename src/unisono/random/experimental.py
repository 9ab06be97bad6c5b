"""Generators and seeds under TensorFlow's older names, and `stateless_shuffle`."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.ops import stateless_draws as _stateless_draws
from unisono._src.ops.stateless_draws import stateless_shuffle as stateless_shuffle

if _typing.TYPE_CHECKING:
    from unisono.random import (
        Algorithm as Algorithm,
        Generator as Generator,
        create_rng_state as create_rng_state,
        get_global_generator as get_global_generator,
        set_global_generator as set_global_generator,
    )

stateless_fold_in = _stateless_draws.fold_in
stateless_split = _stateless_draws.split

_lazy_names.serve(__name__)
