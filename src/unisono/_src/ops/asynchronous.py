"""Names about operations that the program does not wait for."""

from __future__ import annotations

import contextlib

from unisono._src.foundation.tensorflow_names.everyday import everyday_name

__all__ = ["async_clear_error", "async_scope"]


@everyday_name("experimental.async_scope")
def async_scope() -> contextlib.AbstractContextManager[None]:
    """Returns a context manager without effect: JAX runs steps asynchronously.

    JAX hands a step to the device, and the program continues until it reads a result.
    If a step fails, the error is raised where its result is read. At the end of a
    dataset, `next` raises an error. So a loop in the block ends as in TensorFlow.

    >>> import unisono
    >>> total = unisono.Variable(0)
    >>> try:
    ...     iterator = iter(unisono.data.Dataset.range(3))
    ...     while True:
    ...         with unisono.experimental.async_scope():
    ...             _ = total.assign_add(iterator.get_next())
    ... except unisono.errors.OutOfRangeError:
    ...     unisono.experimental.async_clear_error()
    >>> int(total.read_value())
    3
    """
    return contextlib.nullcontext()


@everyday_name("experimental.async_clear_error")
def async_clear_error() -> None:
    """Does nothing, because unisono does not keep errors that it has raised.

    >>> async_clear_error()
    """
