"""A table of libraries whose objects take part in a strategy's scope.

A scope must not import Keras to find out whether a program uses it. So integrations
are registered here, each under the name of the library's module. Entering a scope
enters the integrations of the libraries that the program has loaded by then, and of no
others. See docs/decisions/0014 and 0020.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast, final

if TYPE_CHECKING:
    import numpy as np
    from jax.typing import ArrayLike


class LibraryVariable(abc.ABC):
    """A variable of a library, as checkpoints and exported models see it.

    Args:
        owner: the library's variable.
    """

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    @property
    @abc.abstractmethod
    def strategy_variable(self) -> Any:
        """The variable of a strategy that keeps the value; None outside strategies."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the variable in messages."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""

    @property
    @abc.abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""

    @abc.abstractmethod
    def read(self, is_detached: bool) -> Any:
        """Return the value.

        Args:
            is_detached: whether the value must stay as it is while the program goes
                on. An array that the library may donate to a step is then copied.
        """

    @abc.abstractmethod
    def assign(self, value: ArrayLike) -> None:
        """Set the value, or the first value of a variable that has none yet."""

    @abc.abstractmethod
    def lend(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context manager that gives the `unisono.Variable` of the value.

        In its block the library reads and writes that variable. A variable that was
        made outside every scope has one in the block only.
        """

    def __repr__(self) -> str:
        return repr(self.owner)


@final
class Branch:
    """An inner node of a checkpoint, below an object of a library.

    Args:
        owner: the object.
        below: returns the children of the node, by name.
    """

    def __init__(self, owner: object, below: Callable[[], dict[str, Any]]) -> None:
        self.owner, self._below = owner, below

    def _checkpoint_children(self) -> dict[str, Any]:
        return self._below()


class StateFinder(abc.ABC):
    """Finds the state of a library's objects, for checkpoints and exported models."""

    @abc.abstractmethod
    def __getitem__(self, obj: object) -> LibraryVariable | dict[str, Any] | None:
        """Return the state of an object.

        Returns:
            A `LibraryVariable` if the object is a variable, its children by name if it
            contains some, or None if it has no state.
        """

    @abc.abstractmethod
    def make_forward(self, obj: object) -> Any:
        """Return the function that an object is, if it is a model.

        Returns:
            A `unisono.function` with an input signature that computes the outputs of
            the model, or None if the object is not a model.

        Raises:
            ValueError: the inputs of the model are not known; the message says what
                to do.
        """

    # Most libraries need neither of the next two, so they are not abstract.

    def prepare(self, obj: object) -> None:  # noqa: B027
        """Let an object create the variables that are about to be restored."""

    def watch(self, obj: object, then: Callable[[], None]) -> None:  # noqa: B027
        """Call `then` once, when an object may have created more variables."""


@final
@dataclasses.dataclass(frozen=True)
class LibraryHooks:
    """What the integration of a library does.

    Attributes:
        scope: a context manager that is entered with every scope. It can be entered
            again while it is open, and finds the strategy in the current frame.
        tape: a context manager that is entered with every gradient tape. It lets the
            tape follow the library's variables that were made outside every scope.
        state_finder: finds the state of the library's objects for checkpoints.
        thread_locals: the library's thread-local objects. A replica that was paused at
            a merge point finds them as it left them.
        introduce: makes the library recognize datasets and metrics of unisono. It is
            called again and again.
        adopt: brings an object of the library that was made outside every scope into
            the strategy that it is called with.
    """

    scope: contextlib.AbstractContextManager[object]
    tape: contextlib.AbstractContextManager[object]
    state_finder: StateFinder
    thread_locals: tuple[object, ...] = ()
    introduce: Callable[[], None] | None = None
    adopt: Callable[[Any, Any], None] | None = None


class Integration(abc.ABC):
    """The integration of one library, which loads when it is first needed.

    Args:
        module: the library's module; nothing happens before it is loaded.
    """

    def __init__(self, module: str) -> None:
        self.module = module

    @functools.cached_property
    def hooks(self) -> LibraryHooks:
        """What the integration does."""
        return self.load()

    @abc.abstractmethod
    def load(self) -> LibraryHooks:
        """Load the integration."""


_log = logging.getLogger("unisono")
# Integrations by the name of their module. Eager code asks at every step whether any of
# these modules is loaded, so it asks the table: `sys.modules.keys().isdisjoint(known)`.
known: dict[str, Integration] = {}


def register(integration: Integration) -> None:
    """Add an integration to the table; it replaces one of the same module."""
    known[integration.module] = integration


def loaded_integrations() -> list[Integration]:
    """Return the integrations of the libraries that the program has loaded."""
    return [c for c in known.values() if c.module in sys.modules]


def introduce() -> None:
    """Make loaded libraries recognize datasets and metrics of unisono.

    Called whenever a program makes one, because a library may be loaded at any time.
    """
    for integration in loaded_integrations():
        if integration.hooks.introduce is not None:
            integration.hooks.introduce()


# The blocks of `enter_scopes` that are open in each thread, by its id, from the outside
# in: how to leave each, and the integrations entered. No lock: a thread reads and
# writes its own entry only.
_open: dict[int, list[tuple[contextlib.ExitStack, list[Integration]]]] = {}


@contextlib.contextmanager
def enter_scopes() -> Iterator[list[Integration]]:
    """Run a block in which loaded libraries' objects belong to the current strategy.

    Gives the integrations that were entered; `join_open_scopes` may add more.
    """
    thread = threading.get_ident()
    with contextlib.ExitStack() as stack:
        entered = loaded_integrations()
        for integration in entered:
            stack.enter_context(integration.hooks.scope)
        # Noted after all were entered: one that fails leaves no block behind.
        blocks = _open.setdefault(thread, [])
        blocks.append((stack, entered))
        try:
            yield entered
        finally:
            blocks.pop()
            if not blocks:
                _open.pop(thread, None)


def join_open_scopes(module: str) -> None:
    """Enter the scopes that are open in this thread with a library loaded just now.

    Args:
        module: the library's module.
    """
    integration = known[module]
    for stack, entered in _open.get(threading.get_ident(), ()):
        if integration not in entered:
            stack.enter_context(integration.hooks.scope)
            entered.append(integration)


def enter_tapes() -> contextlib.ExitStack | None:
    """Let a gradient tape follow variables of loaded libraries.

    Returns:
        What ends it when it is closed; None if no library is loaded.
    """
    if sys.modules.keys().isdisjoint(known):
        return None
    with contextlib.ExitStack() as stack:
        for name, integration in known.items():
            if name in sys.modules:
                stack.enter_context(integration.hooks.tape)
        return stack.pop_all()


def check_known(before: list[Integration]) -> None:
    """Warn if a library was imported inside the scope that is being left.

    Args:
        before: the integrations that the scope has entered.
    """
    for integration in loaded_integrations():
        if integration not in before:
            _log.warning(
                "%s was imported inside a strategy's scope, which could not notice "
                "it: what was made with it there belongs to no strategy. Import it "
                "before `with strategy.scope():`.",
                integration.module,
            )


@final
@dataclasses.dataclass(frozen=True)
class ThreadLocals:
    """A copy of the contents of loaded libraries' thread-local objects.

    Attributes:
        objects: the attributes of each object.
        copies: a copy of the attributes of each object.
    """

    objects: list[dict[str, Any]]
    copies: list[dict[str, Any]]

    @classmethod
    def capture(cls) -> ThreadLocals:
        """Return a copy of the objects' contents in this thread now."""
        found: list[dict[str, Any]] = []
        for name, integration in known.items():
            if name in sys.modules:
                found.extend(map(vars, integration.hooks.thread_locals))
        return cls(found, _copy(found))

    def make_blank(self) -> ThreadLocals:
        """Return the contents that the same objects have in a new thread."""
        blank = [
            {name: type(x)() for name, x in held.items() if type(x) in (list, dict)}
            for held in self.objects
        ]
        return ThreadLocals(self.objects, blank)

    def apply(self) -> None:
        """Give the objects these contents again."""
        # Into the same dict, which the thread-local object owns. And copied again,
        # because one copy may be applied several times.
        for held, before in zip(self.objects, _copy(self.copies), strict=True):
            held.clear()
            held.update(before)


def _copy(contents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # Libraries use lists as stacks, and dicts of them, which change in place; all else
    # they replace. Subclasses of dict are counters, which all replicas share.
    copies = []
    for held in contents:
        copied = dict(held)
        for name, value in held.items():
            if isinstance(value, list):
                copied[name] = list(value)
            elif type(value) is dict:
                copied[name] = {
                    key: list(x) if isinstance(x, list) else x
                    for key, x in value.items()
                }
        copies.append(copied)
    return copies


# The state that a checkpoint saves.


@functools.lru_cache(maxsize=4096)
def _library(kind: type, modules: tuple[str, ...]) -> str | None:
    """Return the module of the library that a class or one of its bases belongs to."""
    # Bases too: a program's own subclass of a model is one of the library's.
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        found = next((m for m in modules if m.partition(".")[0] == package), None)
        if found is not None:
            return found
    return None


def _integration_of(obj: object) -> Integration | None:
    """Return the integration of the loaded library that has an object's class."""
    # mypy does not take a class for the hashable argument that `lru_cache` wants.
    module = _library(cast(Any, type(obj)), tuple(known))
    if module is None or module not in sys.modules:
        return None
    return known[module]


def state_finder_of(obj: object) -> StateFinder | None:
    """Return the finder for an object, or None if no loaded library has its class."""
    integration = _integration_of(obj)
    return None if integration is None else integration.hooks.state_finder


def adopt(obj: object, strategy: object) -> None:
    """Bring an object that was made outside every scope into a strategy.

    Raises:
        TypeError: no loaded library can bring in objects of its class.
    """
    integration = _integration_of(obj)
    adopt_object = None if integration is None else integration.hooks.adopt
    if adopt_object is None:
        raise TypeError(
            "strategy.adopt takes a Keras model, layer, optimizer or metric, received "
            f"{type(obj).__name__}. Make anything else inside `with strategy.scope():`."
        )
    adopt_object(obj, strategy)


def find_state(obj: object) -> LibraryVariable | dict[str, Any] | None:
    """Return the state of an object of a library, as `StateFinder` does, or None."""
    finder = state_finder_of(obj)
    return None if finder is None else finder[obj]
