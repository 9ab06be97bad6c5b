"""`ValueContext`: the argument of functions that make one value for each replica."""

from __future__ import annotations

from unisono._src.foundation.public_names import publish


class ValueContext:
    """Tells a function which replica it makes a value for.

    `Strategy.experimental_distribute_values_from_function` passes one to its function.

    Args:
        replica_id_in_sync_group: the number of the replica, from 0.
        num_replicas_in_sync: the number of all replicas.

    >>> str(ValueContext(1, 4))
    'tf.distribute.ValueContext(replica id 1,  total replicas in sync: 4)'
    """

    def __init__(
        self, replica_id_in_sync_group: int = 0, num_replicas_in_sync: int = 1
    ) -> None:
        self._replica_id_in_sync_group = replica_id_in_sync_group
        self._num_replicas_in_sync = num_replicas_in_sync

    @property
    def replica_id_in_sync_group(self) -> int:
        """The number of the replica that the value is for, from 0.

        >>> ValueContext(1, 4).replica_id_in_sync_group
        1
        """
        return self._replica_id_in_sync_group

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of all replicas.

        >>> ValueContext(1, 4).num_replicas_in_sync
        4
        """
        return self._num_replicas_in_sync

    def __str__(self) -> str:
        return (
            "tf.distribute.ValueContext(replica id "
            f"{self._replica_id_in_sync_group},  total replicas in sync: "
            f"{self._num_replicas_in_sync})"
        )


publish("unisono.distribute", ValueContext)
