"""Names about operations that the program does not wait for."""

from __future__ import annotations

import contextlib

from unisono._src.foundation.tensorflow_names.everyday import everyday_name

__all__ = ["async_clear_error", "async_scope"]


@everyday_name("experimental.async_scope")
def async_scope() -> contextlib.AbstractContextManager[None]:
    """Returns a context manager that changes nothing: JAX never waits by itself.

    A step is handed to the device, and the program goes on until it reads a result. An
    error of a step is raised where its result is read, and a dataset ends at its
    `next`, so that a loop in the block ends as in TensorFlow.

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
    """Does nothing: an error that was raised is not kept.

    >>> async_clear_error()
    """
