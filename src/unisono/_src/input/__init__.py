"""Feeding replicas: datasets, how they are split, and where the parts go.

The modules of this room are loaded on first use: ``import unisono`` does without them.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from unisono._src.input import choices, dataset, distributed

__all__ = ["choices", "dataset", "distributed"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
