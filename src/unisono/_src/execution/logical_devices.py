"""A block of a program that belongs to one logical device of its replica."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from unisono._src.foundation import ambient
from unisono._src.machines.topology import Topology


def check(logical: int, number: int) -> None:
    """Raise unless a replica has a logical device of this number.

    Args:
        logical: how many logical devices a replica has.
        number: the number of the wanted one.
    """
    if not 0 <= number < logical:
        raise ValueError(
            "`logical_core_id` to assign must be lower then total number of logical "
            f"devices per replica. Received logical device id {number} but there are "
            f"only total of {logical} logical devices in replica."
        )


@contextlib.contextmanager
def enter(topology: Topology | None, number: int) -> Iterator[None]:
    """Run a block for a logical device; its variables are whole.

    Args:
        topology: the replicas; None for one that has a single device.
        number: the number of the logical device.
    """
    check(1 if topology is None else topology.num_logical_devices, number)
    placement = ambient.current().placement
    if placement is not None:
        placement = dataclasses.replace(placement, split_above=None)
    with ambient.push(placement=placement):
        yield
