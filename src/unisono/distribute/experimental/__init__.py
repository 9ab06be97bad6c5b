"""More strategies, options and the preemption handler, under TensorFlow's names."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.foundation.options import (
    CollectiveHints as CollectiveHints,
    CommunicationImplementation as CommunicationImplementation,
    CommunicationOptions as CommunicationOptions,
)

CollectiveCommunication = CommunicationImplementation

# Loaded on first use: not every program has several workers, or a TPU.
if _typing.TYPE_CHECKING:
    from unisono._src.saving.preemption import (
        PreemptionCheckpointHandler as PreemptionCheckpointHandler,
        PreemptionWatcher as PreemptionWatcher,
        TerminationConfig as TerminationConfig,
    )
    from unisono._src.strategies import multi_worker as _multi_worker, tpu as _tpu
    from unisono.distribute import (
        CentralStorageStrategy as CentralStorageStrategy,
        ParameterServerStrategy as ParameterServerStrategy,
        ValueContext as ValueContext,
    )
    from unisono.distribute.experimental import (
        coordinator as coordinator,
        partitioners as partitioners,
    )

    MultiWorkerMirroredStrategy = _multi_worker.ExperimentalMultiWorkerMirroredStrategy
    TPUStrategy = _tpu.ExperimentalTPUStrategy

_lazy_names.serve(__name__)
