"""`Optimizer`, which applies an Optax transformation to variables."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.training.optimizers import Optimizer

if _typing.TYPE_CHECKING:
    from unisono.keras.optimizers import SGD as SGD
    from unisono.keras.optimizers import Adadelta as Adadelta
    from unisono.keras.optimizers import Adafactor as Adafactor
    from unisono.keras.optimizers import Adagrad as Adagrad
    from unisono.keras.optimizers import Adam as Adam
    from unisono.keras.optimizers import Adamax as Adamax
    from unisono.keras.optimizers import AdamW as AdamW
    from unisono.keras.optimizers import Ftrl as Ftrl
    from unisono.keras.optimizers import Lion as Lion
    from unisono.keras.optimizers import Nadam as Nadam
    from unisono.keras.optimizers import RMSprop as RMSprop
    from unisono.keras.optimizers import deserialize as deserialize
    from unisono.keras.optimizers import get as get
    from unisono.keras.optimizers import legacy as legacy
    from unisono.keras.optimizers import schedules as schedules
    from unisono.keras.optimizers import serialize as serialize

# Keras has the optimizers of TensorFlow; it is loaded on first use.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups(
        "unisono.optimizers",
        dict.fromkeys(
            (
                "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl",
                "Lion", "Nadam", "RMSprop", "SGD", "deserialize", "get", "legacy",
                "schedules", "serialize",
            ),
            "unisono.keras.optimizers",
        ),
    )  # fmt: skip

__all__ = ["Optimizer"]
