"""Patches that replace attributes of a library while scopes are open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, final

# An attribute: its owner, its name, and what makes its replacement from the original.
Patch = tuple[object, str, Callable[[Any], object]]

# Stands for an attribute that the class inherits, so that undoing means deleting.
_INHERITED = object()


def check_version(
    title: str, library: ModuleType, oldest: tuple[int, int], is_fit: bool = True
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


def is_new_enough(library: ModuleType, oldest: tuple[int, int]) -> bool:
    """Return whether a library has a version from `oldest` on."""
    return tuple(int(x) for x in library.__version__.split(".")[:2]) >= oldest


@final
class Patches:
    """A context manager that replaces attributes while at least one block is open.

    Blocks of several threads may be open at the same time: the first one replaces the
    attributes, the last one restores them. So threads without a block meet the
    replacements too, and a replacement must ask the current frame whether to act.

    Two objects of this class must not replace the same attribute: the one that is left
    first would restore the original.

    Args:
        patches: for each attribute its owner, its name, and a function that returns
            the replacement of the original.

    Raises:
        AttributeError: an owner has no such attribute.
    """

    def __init__(self, patches: Iterable[Patch]) -> None:
        self._patches = list(patches)
        for owner, name, _ in self._patches:
            getattr(owner, name)
        # What the owners had of their own, while a block is open.
        self._originals: list[tuple[object, str, object]] = []
        # What was found last, and its replacement.
        self._made: list[tuple[object, object]] = [(None, None)] * len(self._patches)
        self._open = 0
        self._lock = threading.Lock()

    # Scopes and tapes open and close at every step. So a replacement is made only once.

    def __enter__(self) -> None:
        with self._lock:
            if self._open == 0:
                try:
                    self._replace()
                except BaseException:
                    self._restore()
                    raise
            self._open += 1

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._open -= 1
            if self._open == 0:
                self._restore()

    def _replace(self) -> None:
        # Another library may patch the same attribute between two blocks. So the
        # original is read anew each time, and that is what is restored.
        for i, (owner, name, make) in enumerate(self._patches):
            found = getattr(owner, name)
            if found is not self._made[i][0]:
                self._made[i] = found, make(found)
            self._originals.append((owner, name, vars(owner).get(name, _INHERITED)))
            setattr(owner, name, self._made[i][1])

    def _restore(self) -> None:
        while self._originals:
            owner, name, original = self._originals.pop()
            if original is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
