"""`PreemptionWatcher`, which TensorFlow has for a platform of Google's own."""

from __future__ import annotations

import logging
from typing import final

_log = logging.getLogger("unisono")


@final
class PreemptionWatcher:
    """Sees no preemption, as TensorFlow's does outside Google's own TPU platform.

    A program that asks it goes on as if there were none. To save and exit when a
    machine is about to be taken away, use `PreemptionCheckpointHandler`; a warning says
    so.

    >>> import unisono
    >>> watcher = unisono.distribute.experimental.PreemptionWatcher()
    >>> watcher.preemption_message is None
    True
    >>> watcher.block_until_worker_exit()
    """

    def __init__(self) -> None:
        _log.warning(
            "PreemptionWatcher sees no preemption on this platform, as in TensorFlow. "
            "Use unisono.distribute.experimental.PreemptionCheckpointHandler to save "
            "and exit when a machine is about to be taken away."
        )

    @property
    def preemption_message(self) -> str | None:
        """The message of a preemption: always None."""
        return None

    def block_until_worker_exit(self) -> None:
        """Returns at once: there is no worker that is about to exit."""
