"""Replacing attributes of a library while scopes are open, and putting them back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

# Stands for an attribute that the class inherits, so that undoing means deleting.
_INHERITED = object()


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
        self._made = [
            (owner, name, vars(owner).get(name, _INHERITED), make(getattr(owner, name)))
            for owner, name, make in patches
        ]
        self._open = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._open += 1
            if self._open == 1:
                for owner, name, _, replacement in self._made:
                    setattr(owner, name, replacement)

    def __exit__(self, *exc: Any) -> None:
        with self._lock:
            self._open -= 1
            if self._open == 0:
                for owner, name, original, _ in self._made:
                    if original is _INHERITED:
                        delattr(owner, name)
                    else:
                        setattr(owner, name, original)
