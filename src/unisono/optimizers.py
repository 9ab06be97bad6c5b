"""`Optimizer`, which applies an Optax transformation to variables."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.training.optimizers import Optimizer as Optimizer

# Keras has the optimizers of TensorFlow; it is loaded on first use.
if _typing.TYPE_CHECKING:
    from unisono.keras.optimizers import (
        SGD as SGD,
        Adadelta as Adadelta,
        Adafactor as Adafactor,
        Adagrad as Adagrad,
        Adam as Adam,
        Adamax as Adamax,
        AdamW as AdamW,
        Ftrl as Ftrl,
        Lion as Lion,
        Nadam as Nadam,
        RMSprop as RMSprop,
        deserialize as deserialize,
        get as get,
        legacy as legacy,
        schedules as schedules,
        serialize as serialize,
    )

_lazy_names.serve(__name__)
