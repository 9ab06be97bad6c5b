"""More strategies, options and the preemption handler, under TensorFlow's names."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.foundation.options import (
    CommunicationImplementation,
    CommunicationOptions,
)
from unisono._src.foundation.options import (
    CommunicationImplementation as CollectiveCommunication,
)
from unisono._src.foundation.options import collective_hints as CollectiveHints
from unisono._src.strategies.function_contexts import ValueContext
from unisono._src.strategies.mirrored import CentralStorageStrategy

if _typing.TYPE_CHECKING:
    from unisono._src.saving.preemption import (
        PreemptionCheckpointHandler,
        TerminationConfig,
    )
    from unisono._src.servers.parameter_server import ParameterServerStrategy
    from unisono._src.strategies.multi_worker import (
        experimental_multi_worker as MultiWorkerMirroredStrategy,
    )
    from unisono._src.strategies.tpu import experimental_tpu as TPUStrategy
    from unisono.distribute.experimental import coordinator, partitioners

# Loaded on first use: not every program has several workers, or a TPU.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups(
        "unisono.distribute.experimental",
        {
            "MultiWorkerMirroredStrategy": (
                "unisono._src.strategies.multi_worker:experimental_multi_worker"
            ),
            "ParameterServerStrategy": "unisono._src.servers.parameter_server",
            "PreemptionCheckpointHandler": "unisono._src.saving.preemption",
            "TPUStrategy": "unisono._src.strategies.tpu:experimental_tpu",
            "TerminationConfig": "unisono._src.saving.preemption",
            "coordinator": "unisono.distribute.experimental",
            "partitioners": "unisono.distribute.experimental",
        },
    )

__all__ = [
    "CentralStorageStrategy",
    "CollectiveCommunication",
    "CollectiveHints",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "ParameterServerStrategy",
    "PreemptionCheckpointHandler",
    "TPUStrategy",
    "TerminationConfig",
    "ValueContext",
    "coordinator",
    "partitioners",
]
