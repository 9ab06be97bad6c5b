"""Has every read of an array look first whether the workers have done the same.

A process that belongs to a group of workers changes JAX's class of arrays, once. A read
raises what happened to a worker, where JAX would raise the error of a socket; and what
workers have computed while they differed is not read at all (docs/decisions/0013).
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from typing import Any

import jax

from unisono._src.foundation import jax_internals
from unisono._src.workers import step_history, watchdog

_ArrayImpl = jax_internals.ArrayImpl

_log = logging.getLogger("unisono")

# Where a class of CPython has its size, its flags and its buffer protocol, in words
# behind the head of an object of variable size.
_SIZES, _BUFFER, _FLAGS = slice(1, 3), 17, 18


def install() -> None:
    """Changes JAX's class of arrays; a second call does nothing."""
    # `_value` is JAX's private property through which Python reads an array. A version
    # of JAX without it has its own errors.
    read = getattr(_ArrayImpl, "_value", None)
    if not isinstance(read, property) or read.fget is None:
        _tell_unguarded("JAX has no ArrayImpl._value")
        return
    if getattr(read.fget, "is_guarded", False):
        return
    step_history.READER.read = read.fget
    # By `setattr`, because mypy refuses the assignment to a class of another package.
    setattr(_ArrayImpl, "_value", property(_guard(read.fget)))  # noqa: B010
    for name in ("__dlpack__", "unsafe_buffer_pointer"):
        setattr(_ArrayImpl, name, _guard(getattr(_ArrayImpl, name)))
    _close_buffer_protocol(_ArrayImpl)


def _guard(read: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that reads an array once its step is known to be right."""

    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            # JAX's own wait cannot be interrupted (decision 0023).
            watchdog.wait_for_result(self)
            # A step is done, and so is its ledger, when a result of it is there.
            jax.block_until_ready(self)
            watchdog.check_marks()
            return read(self, *args, **kwargs)
        except (RuntimeError, ValueError) as error:
            watchdog.raise_explained(error)

    guarded.is_guarded = True  # type: ignore[attr-defined]
    return guarded


def _close_buffer_protocol(kind: type) -> None:
    """Has NumPy read arrays of a class by `__array__`, and so by `_value`.

    NumPy asks for the buffer of an array first, which no code in Python can intercept
    before Python 3.12.
    """
    head = object.__basicsize__ + ctypes.sizeof(ctypes.c_ssize_t)
    words = (ctypes.c_ssize_t * (_FLAGS + 1)).from_address(id(kind) + head)
    is_known = (
        words[_SIZES] == [kind.__basicsize__, kind.__itemsize__]
        and words[_FLAGS] == kind.__flags__
    )
    if not is_known:
        _tell_unguarded("this Python lays classes out in another way")
    elif words[_BUFFER]:
        # The first word of the protocol is the function that gives the buffer.
        ctypes.c_ssize_t.from_address(words[_BUFFER]).value = 0


def _tell_unguarded(why: str) -> None:
    _log.warning(
        "NumPy may read an array before it is known whether all workers did the same, "
        "because %s. The difference is raised at the next step.",
        why,
    )
