"""Libraries whose objects take part in a strategy's scope, once a program loads them.

A scope must not import Keras to find out whether a program uses it. So an integration
leaves its companion here, under the name of the library's module; entering a scope
enters the companions of those libraries that are loaded by then, and of no others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sys
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass(frozen=True)
class Companion:
    """What a library needs while a scope is open.

    Attributes:
        module: the library's module; nothing happens before it is loaded.
        scope: a context manager that can be entered again and again. It finds the
            strategy in the current frame.
        locals: names ``module:attribute`` of the library's thread-local objects, which
            code that is paused at a merge point must find again as it left them.
    """

    module: str
    scope: contextlib.AbstractContextManager[Any]
    locals: tuple[str, ...] = ()


_log = logging.getLogger("unisono")
_known: dict[str, Companion] = {}


def register(companion: Companion) -> None:
    """Make a companion known; one with the same module is replaced."""
    _known[companion.module] = companion


def loaded() -> list[Companion]:
    """The companions of the libraries that the program has loaded."""
    return [c for c in _known.values() if c.module in sys.modules]


@contextlib.contextmanager
def entered() -> Iterator[None]:
    """A block in which objects of loaded libraries belong to the current strategy."""
    found = loaded()
    if not found:
        yield
        return
    with contextlib.ExitStack() as stack:
        for companion in found:
            stack.enter_context(companion.scope)
        yield


def check_known(before: list[Companion]) -> None:
    """Say so if a scope is left in which a library was loaded too late.

    Args:
        before: the companions that the scope has entered.
    """
    for companion in loaded():
        if companion not in before:
            _log.warning(
                "%s was imported inside a strategy's scope, which could not notice "
                "of it: what was made of it there belongs to no strategy. Import it "
                "before `with strategy.scope():`.",
                companion.module,
            )


class Locals:
    """A copy of the thread-local objects of loaded libraries."""

    def __init__(self, kept: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        self._kept = kept

    @classmethod
    def taken(cls) -> Locals:
        """What they hold now; lists are copied, because they serve as stacks."""
        return cls([(held, _copied(held)) for held in map(vars, _thread_locals())])

    def apply(self) -> None:
        """Let them hold that again."""
        for held, before in self._kept:
            held.clear()
            held.update(_copied(before))


def _copied(held: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, list) else v for k, v in held.items()}


def _thread_locals() -> list[object]:
    found = []
    for companion in loaded():
        for name in companion.locals:
            module, _, attribute = name.partition(":")
            if module in sys.modules:
                found.append(getattr(sys.modules[module], attribute))
    return found
