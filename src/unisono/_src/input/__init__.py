"""Feeding replicas: datasets, how they are split, and where the parts go.

From the ground up: plan, sources, stages, loaders, distribution, description, api. The
modules below are loaded on first use: ``import unisono`` does without them.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from unisono._src.input.api import dataset, distributed_dataset, input_iterator
    from unisono._src.input.distribution import dataset_functions, input_options

__all__ = [
    "dataset",
    "dataset_functions",
    "distributed_dataset",
    "input_iterator",
    "input_options",
]

_MODULES = {
    "dataset": "unisono._src.input.api.dataset",
    "dataset_functions": "unisono._src.input.distribution.dataset_functions",
    "distributed_dataset": "unisono._src.input.api.distributed_dataset",
    "input_iterator": "unisono._src.input.api.input_iterator",
    "input_options": "unisono._src.input.distribution.input_options",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(_MODULES[name])
