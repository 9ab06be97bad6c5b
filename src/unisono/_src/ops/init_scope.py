"""`init_scope`: a block that runs at once, although a `function` is being traced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax

from unisono._src.foundation import ambient
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.ops import bodies
from unisono._src.values import jax_traces

__all__ = ["init_scope"]


@everyday_name(
    "init_scope",
    difference="In a replica of a compiled step it is in cross-replica context.",
)
@contextlib.contextmanager
def init_scope() -> Iterator[None]:
    """Runs a block at once and outside tapes, also while a function is traced.

    The block runs each time the `function` is traced, not when its program runs. It
    reads and assigns variables as they are outside the function, and cannot use the
    function's own arrays. In a replica of a compiled step it is in cross-replica
    context.

    Raises:
        TypeError: the block uses an array of the function.

    >>> import unisono
    >>> count = unisono.Variable(0)
    >>> @unisono.function
    ... def step(x):
    ...     with unisono.init_scope():
    ...         count.assign_add(1)
    ...     return x + 1
    >>> int(step(1)), int(step(1)), int(count.numpy())
    (2, 2, 1)
    """
    frame = ambient.current()
    # A tape never follows the block. In a program it also leaves replica and frame, but
    # keeps the strategy, its placement, and how variables are made and named.
    changes = {"tape": None}
    if bodies.is_traced():
        mode = ambient.REPLICA if frame.strategy is None else ambient.CROSS
        outside = ambient.ROOT._replace(
            strategy=frame.strategy,
            mode=mode,
            placement=frame.placement,
            creators=frame.creators,
            outer_creators=frame.outer_creators,
            names=frame.names,
        )
        changes = outside._asdict()
    with ambient.push(**changes), jax_traces.compute_at_once():
        try:
            yield
        except jax.errors.UnexpectedTracerError as error:
            raise TypeError(
                "The block of init_scope uses an array that the function around it "
                "computes. It runs while the function is traced, when that array has "
                "no value yet: move the line out of the block."
            ) from error
