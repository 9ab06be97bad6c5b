# The stubs of this folder: mypy takes every name of Keras for `Any`, because Keras says
# of no type that it is meant for others; Pyright reads Keras' own code.
from typing import Any

from keras import *

from unisono.keras import activations as activations
from unisono.keras import applications as applications
from unisono.keras import backend as backend
from unisono.keras import callbacks as callbacks
from unisono.keras import constraints as constraints
from unisono.keras import datasets as datasets
from unisono.keras import initializers as initializers
from unisono.keras import layers as layers
from unisono.keras import losses as losses
from unisono.keras import metrics as metrics
from unisono.keras import mixed_precision as mixed_precision
from unisono.keras import models as models
from unisono.keras import ops as ops
from unisono.keras import optimizers as optimizers
from unisono.keras import preprocessing as preprocessing
from unisono.keras import regularizers as regularizers
from unisono.keras import saving as saving
from unisono.keras import utils as utils

def __getattr__(name: str) -> Any: ...
