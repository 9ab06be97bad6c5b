"""Names that TensorFlow keeps under ``tf.distribute.experimental``."""

from unisono._src.options import (
    CommunicationImplementation,
    CommunicationOptions,
)
from unisono._src.options import (
    CommunicationImplementation as CollectiveCommunication,
)
from unisono._src.options import collective_hints as CollectiveHints
from unisono._src.preemption import PreemptionCheckpointHandler, TerminationConfig
from unisono._src.strategies.base import ValueContext
from unisono._src.strategies.central import CentralStorageStrategy
from unisono._src.strategies.multi_worker import (
    experimental_multi_worker as MultiWorkerMirroredStrategy,
)
from unisono._src.strategies.tpu import experimental_tpu as TPUStrategy

__all__ = [
    "CentralStorageStrategy",
    "CollectiveCommunication",
    "CollectiveHints",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "PreemptionCheckpointHandler",
    "TPUStrategy",
    "TerminationConfig",
    "ValueContext",
]
