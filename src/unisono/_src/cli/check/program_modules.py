"""The files of a program that import each other."""

from __future__ import annotations

import ast
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import final


@final
class ModuleFinder:
    """Finds the files that a program's imports mean, among those that are checked.

    Args:
        paths: the files.
    """

    def __init__(self, paths: Iterable[pathlib.Path]) -> None:
        self._files = {key(path) for path in paths}
        # A folder is a package, also without an `__init__`; but one that is called
        # keras holds programs for Keras.
        self._folders: set[str] = set()
        for file in self._files:
            folder = os.path.dirname(file)
            while folder not in self._folders and os.path.basename(folder) != "keras":
                self._folders.add(folder)
                folder = os.path.dirname(folder)

    def find(self, importer: str, module: str, level: int) -> str | None:
        """Returns the key of the file of a module, or None if it was not given.

        Args:
            importer: the key of the file that imports it.
            module: the dotted name; "" for a package itself.
            level: the number of dots before the name.
        """
        folder = os.path.dirname(importer)
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        below = module.split(".") if module else []
        while True:
            path = os.path.join(folder, *below)
            package = os.path.join(path, "__init__.py")
            if f"{path}.py" in self._files:
                return f"{path}.py"
            if package in self._files or path in self._folders:
                return package
            above = os.path.dirname(folder)
            # A name without dots is looked for in the folders above, too: one of them
            # is where the program starts.
            if level or above == folder:
                return None
            folder = above


def key(path: pathlib.Path) -> str:
    """Returns the key of a file: its path from the root."""
    return os.path.abspath(path)


def sort_by_imports(imports: dict[str, list[str]]) -> list[str]:
    """Returns files in an order in which each comes after those that it imports.

    Files that import each other in a circle come in some order.

    >>> sort_by_imports({"a": ["b"], "b": ["c", "a"], "c": []})
    ['c', 'b', 'a']
    """
    done: dict[str, None] = {}
    seen: set[str] = set()
    for first in imports:
        # No recursion: a chain of imports may be longer than Python's stack.
        waiting = [(first, iter(imports[first]))]
        while waiting:
            file, others = waiting[-1]
            seen.add(file)
            nearest = next((o for o in others if o not in seen), None)
            if nearest is None:
                done[file] = None
                waiting.pop()
            else:
                waiting.append((nearest, iter(imports[nearest])))
        # A file that was done before is not read again.
    return list(done)


def imported_files(
    finder: ModuleFinder, importer: str, trees: Sequence[ast.Module]
) -> Iterator[str]:
    """Yields the files that some trees of one file import, wherever they do so."""
    for tree in trees:
        for node in _statements(tree):
            if isinstance(node, ast.Import):
                names = [(alias.name, 0) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                below = [f"{module}.{a.name}".lstrip(".") for a in node.names]
                names = [(name, node.level) for name in (module, *below)]
            else:
                continue
            for name, level in names:
                found = finder.find(importer, name, level)
                if found is not None and found != importer:
                    yield found


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields all statements of a tree; expressions, most of it, are passed over."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = getattr(node, field, ())
            waiting += below if isinstance(below, list) else ()
