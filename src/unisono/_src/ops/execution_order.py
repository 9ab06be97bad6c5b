"""Names of TensorFlow that order the operations of a graph.

Here statements take effect in the order in which Python runs them, also in a compiled
`function`, so these names change nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from unisono._src.foundation.tensorflow_names.everyday import everyday_name

__all__ = [
    "control_dependencies",
    "group",
    "no_op",
]


@everyday_name("control_dependencies")
def control_dependencies(
    control_inputs: Iterable[object] | None,
) -> contextlib.AbstractContextManager[None]:
    """Returns a context manager that changes nothing: statements run in order.

    Args:
        control_inputs: what the block must wait for; it has run already.

    >>> import unisono
    >>> count = unisono.Variable(1)
    >>> with control_dependencies([count.assign_add(1)]):
    ...     print(int(count.read_value()))
    2
    """
    return contextlib.nullcontext()


@everyday_name("group")
def group(*inputs: object, name: str | None = None) -> None:
    """Returns None: the given operations have run already.

    Args:
        *inputs: results of operations.
        name: accepted for TensorFlow's sake.

    >>> import unisono
    >>> v, w = unisono.Variable(1), unisono.Variable(1)
    >>> group(v.assign(3), w.assign(4))
    >>> int(v.read_value()), int(w.read_value())
    (3, 4)
    """


@everyday_name("no_op")
def no_op(name: str | None = None) -> None:
    """Does nothing, and returns None.

    Args:
        name: accepted for TensorFlow's sake.

    >>> no_op()
    """
