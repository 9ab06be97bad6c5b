"""Describes a TPU, for `TPUClusterResolver.get_tpu_system_metadata`."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple, final

from unisono._src.foundation.public_names import publish


@final
class TPUSystemMetadata(NamedTuple):
    """The devices of a TPU, and how they are spread over its workers.

    Attributes:
        num_cores: the number of devices of all workers.
        num_hosts: the number of workers.
        num_of_cores_per_host: the number of devices of each worker.
        topology: None, as in TensorFlow; `initialize_tpu_system` returns it.
        devices: the names of the devices, in order.
    """

    num_cores: int
    num_hosts: int
    num_of_cores_per_host: int
    topology: None
    devices: tuple[str, ...]


@final
class MetadataQuery:
    """The function that reads the metadata from JAX's devices.

    The module that knows how workers join sets it: this room starts no devices.
    """

    # Gets the number of workers, and the name of their job.
    run: ClassVar[Callable[[int, str], TPUSystemMetadata] | None] = None


publish("unisono.tpu.experimental", TPUSystemMetadata)
