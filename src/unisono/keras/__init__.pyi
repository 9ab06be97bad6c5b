# The stubs of this folder: mypy takes every name of Keras for `Any`, because Keras says
# of no type that it is meant for others; Pyright reads Keras' own code.
from typing import Any

from keras import *

from unisono.keras import (
    activations as activations,
    applications as applications,
    backend as backend,
    callbacks as callbacks,
    constraints as constraints,
    datasets as datasets,
    initializers as initializers,
    layers as layers,
    losses as losses,
    metrics as metrics,
    mixed_precision as mixed_precision,
    models as models,
    ops as ops,
    optimizers as optimizers,
    preprocessing as preprocessing,
    regularizers as regularizers,
    saving as saving,
    utils as utils,
)

def __getattr__(name: str) -> Any: ...
