"""A block in which Keras numbers the names of layers from the beginning."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from keras.src.backend.common import global_state

# Keras keeps its counters of names in its global state, under this name.
_COUNTS = "object_name_uids"


@contextlib.contextmanager
def restart_numbering() -> Iterator[None]:
    """Run a block in which the first unnamed layer is ``dense``, not ``dense_7``.

    So a function that makes a model gives the same names whenever it is called.
    """
    before = global_state.get_global_attribute(_COUNTS)
    global_state.set_global_attribute(_COUNTS, None)
    try:
        yield
    finally:
        global_state.set_global_attribute(_COUNTS, before)
