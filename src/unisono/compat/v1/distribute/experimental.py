"""More strategies of TensorFlow 1: ``tf.compat.v1.distribute.experimental``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.strategies import version_1 as _version_1
from unisono.distribute.experimental import (
    CollectiveCommunication as CollectiveCommunication,
    CollectiveHints as CollectiveHints,
    CommunicationImplementation as CommunicationImplementation,
    CommunicationOptions as CommunicationOptions,
)

# Loaded on first use: it is TensorFlow 2's.
if _typing.TYPE_CHECKING:
    from unisono.distribute import ParameterServerStrategy as ParameterServerStrategy

CentralStorageStrategy = _version_1.CentralStorageStrategyV1
MultiWorkerMirroredStrategy = _version_1.MultiWorkerMirroredStrategyV1
TPUStrategy = _version_1.TPUStrategyV1

_lazy_names.serve(__name__)
