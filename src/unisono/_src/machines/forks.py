"""Refuses to compute in a process that was forked after JAX had started.

A forked child has none of JAX's threads, but all the locks that they held, and waits
for one for ever. Here the methods that compute or save are replaced in the child, so
that they cost nothing where nobody forks. All else works there: NumPy, files, the
loader processes of other libraries.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn, final

from unisono._src.foundation import jax_internals


@final
class _ForkState:
    """The methods to replace in a forked child, and whether this process is one."""

    def __init__(self) -> None:
        self.methods: list[tuple[type, tuple[str, ...]]] = []
        self.is_forked = False


_fork_state = _ForkState()


def refuse(kind: type, *names: str) -> None:
    """Makes methods of a class raise in a child that is forked after JAX has started.

    Args:
        kind: the class that defines them.
        *names: the names of the methods.
    """
    _fork_state.methods.append((kind, names))
    if _fork_state.is_forked:
        # The class is loaded on first use, which may be in the child.
        _replace(kind, names)


def check(name: str) -> None:
    """Raises if this process was forked after JAX had started.

    Args:
        name: the function that is called, in the user's terms.

    Raises:
        RuntimeError: it was.
    """
    if _fork_state.is_forked:
        _raise(name)


def _raise(name: str) -> NoReturn:
    raise RuntimeError(
        f"{name} cannot work in this process: it was forked after JAX had started, and "
        "JAX's threads do not exist in a forked child. Start such processes with "
        "multiprocessing.get_context('spawn'), or fork before the first strategy, "
        "variable or array."
    )


def _make_refusal(name: str) -> Callable[..., NoReturn]:
    def refused(*args: object, **kwargs: object) -> NoReturn:
        _raise(name)

    return refused


def _mark_child() -> None:
    if not jax_internals.has_backends() or _fork_state.is_forked:
        return
    _fork_state.is_forked = True
    for kind, names in _fork_state.methods:
        _replace(kind, names)


def _replace(kind: type, names: tuple[str, ...]) -> None:
    for name in names:
        shown = kind.__name__ if name == "__call__" else f"{kind.__name__}.{name}"
        setattr(kind, name, _make_refusal(shown))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_child)
