"""Feeding replicas: datasets, how they are split, and where the parts go.

From the ground up: plan, sources, stages, loaders, distribution, description, api. The
modules below are loaded on first use: ``import unisono`` does without them.
"""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from unisono._src.input.api import (
        dataset as dataset,
        distributed_dataset as distributed_dataset,
        input_iterator as input_iterator,
    )
    from unisono._src.input.distribution import input_options as input_options

_lazy_names.serve(__name__)
