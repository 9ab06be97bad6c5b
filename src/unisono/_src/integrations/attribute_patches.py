"""Replacing attributes of a library while scopes are open, and putting them back."""

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
        title: what people call it.
        library: the module.
        oldest: the first version that will do.
        is_fit: False if it has not what is needed, whatever its version says.

    Raises:
        RuntimeError: it is too old.
    """
    version = tuple(int(x) for x in library.__version__.split(".")[:2])
    if version < oldest or not is_fit:
        package, wanted = library.__name__, ".".join(map(str, oldest))
        raise RuntimeError(
            f"unisono works with {title} {wanted} or newer, but {package} "
            f"{library.__version__} is loaded. Install a newer one: pip install "
            f"'{package}>={wanted}'."
        )


@final
class Patches:
    """Attributes that are replaced as long as at least one block has been entered.

    Scopes of several threads may be open at the same time; the first one replaces, the
    last one puts back. A replacement asks the current frame whether it is meant.

    Args:
        patches: owner, name of the attribute, and a function from the original to its
            replacement.
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
    """One attribute; what it holds when it is replaced is what is put back."""

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        self._owner, self._name, self._make = owner, name, make
        self._original: Any = None
        self._found: Any = _INHERITED
        self._replacement: Any = None

    def apply(self) -> None:
        """Replace the attribute."""
        found = getattr(self._owner, self._name)
        if found is not self._found:
            self._found, self._replacement = found, self._make(found)
        self._original = vars(self._owner).get(self._name, _INHERITED)
        setattr(self._owner, self._name, self._replacement)

    def undo(self) -> None:
        """Put back what was there."""
        if self._original is _INHERITED:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._original)
