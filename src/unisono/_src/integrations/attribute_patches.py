"""Patches that replace attributes of a library while scopes are open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, final

# Stands for an attribute that the class inherits, so that undoing means deleting.
_INHERITED = object()


def check_version(
    title: str, library: Any, oldest: tuple[int, int], is_fit: bool = True
) -> None:
    """Raise if a library is too old to be patched.

    Args:
        title: the name of the library in the message.
        library: the module of the library.
        oldest: the first version, as major and minor number, that can be patched.
        is_fit: whether the library has the attributes that are patched. False counts
            as too old, whatever the version says.

    Raises:
        RuntimeError: the library is too old.
    """
    if not is_new_enough(library, oldest) or not is_fit:
        package, wanted = library.__name__, ".".join(map(str, oldest))
        raise RuntimeError(
            f"unisono works with {title} {wanted} or newer, but {package} "
            f"{library.__version__} is loaded. Install a newer one: pip install "
            f"'{package}>={wanted}'."
        )


def is_new_enough(library: Any, oldest: tuple[int, int]) -> bool:
    """Return whether a library has a version from `oldest` on."""
    return tuple(int(x) for x in library.__version__.split(".")[:2]) >= oldest


@final
class Patches:
    """A context manager that replaces attributes while at least one block is open.

    Blocks of several threads may be open at the same time: the first one replaces the
    attributes, the last one restores them. So threads without a scope meet the
    replacements too, and a replacement must ask the current frame whether to act.

    Args:
        patches: for each attribute its owner, its name, and a function that returns
            the replacement of the original.
    """

    def __init__(
        self, patches: Sequence[tuple[Any, str, Callable[[Any], Any]]]
    ) -> None:
        self._patches = [_Patch(*p) for p in patches]
        self._open = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._open += 1
            if self._open == 1:
                for patch in self._patches:
                    patch.apply()

    def __exit__(self, *exc: Any) -> None:
        with self._lock:
            self._open -= 1
            if self._open == 0:
                for patch in self._patches:
                    patch.undo()


@final
class _Patch:
    """The patch of one attribute.

    Another library may patch the same attribute between two scopes. So the original
    is read anew each time, and that is what `undo` restores.
    """

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        self._owner, self._name, self._make = owner, name, make
        self._original: Any = None
        self._found: Any = _INHERITED
        self._replacement: Any = None

    def apply(self) -> None:
        """Replace the attribute of the owner."""
        found = getattr(self._owner, self._name)
        # Scopes open and close at every step; a replacement is made only once.
        if found is not self._found:
            self._found, self._replacement = found, self._make(found)
        self._original = vars(self._owner).get(self._name, _INHERITED)
        setattr(self._owner, self._name, self._replacement)

    def undo(self) -> None:
        """Restore the original attribute."""
        if self._original is _INHERITED:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._original)
