"""Libraries whose objects take part in a strategy's scope, once a program loads them.

A scope must not import Keras to find out whether a program uses it. So an integration
leaves its companion here, under the name of the library's module; entering a scope
enters the companions of those libraries that are loaded by then, and of no others.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast, final


class Held(abc.ABC):
    """A variable of a library, as a checkpoint sees it.

    Args:
        owner: the library's variable.
    """

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What to call it."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of its value."""

    @property
    @abc.abstractmethod
    def dtype(self) -> Any:
        """The type of its elements."""

    @abc.abstractmethod
    def read(self, is_detached: bool) -> Any:
        """Its value; a copy if the library may change it and `is_detached` is set."""

    @abc.abstractmethod
    def assign(self, value: Any) -> None:
        """Set its value, or what it will be when the variable gets one."""

    def __repr__(self) -> str:
        return repr(self.owner)


@final
class Branch:
    """A name below an object of a library, with more names below it.

    Args:
        owner: the object.
        below: gives what there is, by name.
    """

    def __init__(self, owner: Any, below: Callable[[], dict[str, Any]]) -> None:
        self.owner, self._below = owner, below

    def _checkpoint_children(self) -> dict[str, Any]:
        return self._below()


class Keeper(abc.ABC):
    """Knows what of a library's objects is state."""

    @abc.abstractmethod
    def __getitem__(self, obj: Any) -> Held | dict[str, Any] | None:
        """The variable that an object is, or what is below it; None for no state."""

    def prepare(self, obj: Any) -> None:  # noqa: B027
        """Let an object make what is about to be restored, if it can."""

    def watch(self, obj: Any, then: Callable[[], None]) -> None:  # noqa: B027
        """Call `then` once when an object may have got more."""


@final
@dataclasses.dataclass(frozen=True)
class Companion:
    """What a library needs while a scope is open.

    Attributes:
        module: the library's module; nothing happens before it is loaded.
        scope: a context manager that can be entered again and again. It finds the
            strategy in the current frame.
        locals: names ``module:attribute`` of the library's thread-local objects, which
            code that is paused at a merge point must find again as it left them.
        keeper: knows what of the library's objects a checkpoint saves.
    """

    module: str
    scope: contextlib.AbstractContextManager[Any]
    locals: tuple[str, ...] = ()
    keeper: Keeper | None = None


_log = logging.getLogger("unisono")
# Companions by the name of their module. Eager code asks at every step whether any of
# these modules is loaded, so it asks the table: `sys.modules.keys().isdisjoint(known)`.
known: dict[str, Companion] = {}


def register(companion: Companion) -> None:
    """Make a companion known; one with the same module is replaced."""
    known[companion.module] = companion


def loaded() -> list[Companion]:
    """The companions of the libraries that the program has loaded."""
    return [c for c in known.values() if c.module in sys.modules]


@contextlib.contextmanager
def entered() -> Iterator[None]:
    """A block in which objects of loaded libraries belong to the current strategy."""
    with contextlib.ExitStack() as stack:
        for companion in loaded():
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


@final
class Locals:
    """A copy of the thread-local objects of loaded libraries."""

    def __init__(self, kept: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        self._kept = kept

    @classmethod
    def taken(cls) -> Locals:
        """What they hold now; lists are copied, because they serve as stacks."""
        return cls([(held, _copied(held)) for held in map(vars, _thread_locals())])

    def blank(self) -> Locals:
        """What the same objects held before anyone wrote to them."""
        return Locals([(held, {}) for held, _ in self._kept])

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


# What a checkpoint saves.


@functools.lru_cache(maxsize=4096)
def _library(kind: Any, modules: tuple[str, ...]) -> str | None:
    """The library that a class, or one that it inherits from, belongs to."""
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        found = next((m for m in modules if m.partition(".")[0] == package), None)
        if found is not None:
            return found
    return None


def keeper_of(obj: Any) -> Keeper | None:
    """Who knows the state of an object; None if it is of no library in the table."""
    module = _library(cast(Any, type(obj)), tuple(known))
    if module is None or module not in sys.modules:
        return None
    return known[module].keeper


def kept(obj: Any) -> Held | dict[str, Any] | None:
    """What of an object of a library is state: a variable, or what is below it."""
    keeper = keeper_of(obj)
    return None if keeper is None else keeper[obj]
