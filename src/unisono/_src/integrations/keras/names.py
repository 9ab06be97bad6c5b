"""Names that Keras gives by itself, counted anew for a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from keras.src.backend.common import global_state

_COUNTS = "object_name_uids"


@contextlib.contextmanager
def fresh() -> Iterator[None]:
    """A block in which the first layer without a name is ``dense``, not ``dense_7``.

    So a function that makes a model names its variables alike whenever it is called.
    """
    before = global_state.get_global_attribute(_COUNTS)
    global_state.set_global_attribute(_COUNTS, None)
    try:
        yield
    finally:
        global_state.set_global_attribute(_COUNTS, before)
