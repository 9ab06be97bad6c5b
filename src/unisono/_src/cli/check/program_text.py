"""The files that a check reads: Python files, notebooks, folders, and their imports."""

from __future__ import annotations

import ast
import dataclasses
import io
import json
import os
import pathlib
import re
import stat
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, final

from unisono._src.foundation import printable

_SUFFIXES = (".py", ".ipynb")
# What is longer is no program, and its syntax tree would fill the memory. Notebooks
# hold pictures, too.
_MOST_CODE = 10_000_000
_MOST_NOTEBOOK = 1 << 28
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
# A line of a notebook that is for the shell or for IPython, not for Python.
_MAGIC = re.compile(r"^\s*(?:[!%?]|[\w.\[\]]+\?{1,2}\s*$)")
# Cells for IPython that hold Python: those that are timed, and files that are written.
_PYTHON_CELL = re.compile(r"%%(time|timeit|capture|prun|writefile\b.*\.py\s*\n)")
_ASSIGNED_MAGIC = re.compile(r"^(\s*[\w, ]+=\s*)[!%].*")


@final
class BadFileError(Exception):
    """A file cannot be read as Python; the message says why."""


@final
@dataclasses.dataclass(frozen=True)
class CodePart:
    """Holds a piece of Python: a file, or one cell of a notebook.

    Attributes:
        cell: the number of the cell in its notebook, from 1; None for a file.
        lines: its lines, with their ends.
        tree: its syntax tree. Lines for IPython are left out.
    """

    cell: int | None
    lines: Sequence[str]
    tree: ast.Module


@final
@dataclasses.dataclass(frozen=True)
class ProgramFile:
    """Holds one file that is checked.

    Attributes:
        path: where it is.
        text: all of its text.
        encoding: the encoding of the text.
        parts: its pieces of Python.
    """

    path: pathlib.Path
    text: str
    encoding: str
    parts: Sequence[CodePart]

    def replace_parts(self, texts: Sequence[str]) -> str:
        """Returns the file's text with other pieces of Python, one for each part."""
        if self.path.suffix != ".ipynb":
            return texts[0]
        if [*texts] == ["".join(part.lines) for part in self.parts]:
            return self.text
        notebook = json.loads(self.text)
        for part, text in zip(self.parts, texts, strict=True):
            assert part.cell is not None
            cell = _cells(notebook)[part.cell - 1]
            whole = isinstance(cell["source"], str)
            cell["source"] = text if whole else _split(text)
        # As the notebook was written before, so that a diff
        # shows only what has changed.
        indent = re.search(r"\n(\s+)", self.text)
        made = json.dumps(
            notebook, indent=len(indent[1]) if indent else None, ensure_ascii=False
        )
        return made + "\n" * self.text.endswith("\n")


def show(path: pathlib.Path) -> str:
    """Returns a path as text that any terminal can print."""
    return printable.escape(str(path))


def find_files(paths: Sequence[pathlib.Path]) -> Iterator[pathlib.Path]:
    """Yields the files that are named, and the Python files of named folders.

    Raises:
        BadFileError: a path does not exist, or a folder has no Python file.
    """
    for path in paths:
        if path.is_dir():
            found = [p for p in sorted(path.rglob("*")) if _is_program(p, path)]
            if not found:
                raise BadFileError(f"{show(path)} has no Python files or notebooks.")
            yield from found
        elif path.exists():
            yield path
        else:
            raise BadFileError(f"{show(path)} does not exist.")


def read(path: pathlib.Path) -> ProgramFile:
    """Returns a file with the syntax trees of its parts.

    Raises:
        BadFileError: it is not Python, or not a notebook, or cannot be read.
    """
    try:
        contents = _read_bytes(path)
        if path.suffix == ".ipynb":
            text, encoding = contents.decode("utf-8"), "utf-8"
            return ProgramFile(path, text, encoding, _notebook_parts(text))
        encoding, _ = tokenize.detect_encoding(io.BytesIO(contents).readline)
        text = contents.decode(encoding)
        return ProgramFile(path, text, encoding, [_part(None, text)])
    except OSError as error:
        raise BadFileError(f"it cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, LookupError) as error:
        raise BadFileError(f"it is not text: {error}.") from None
    except SyntaxError as error:
        line = f" (line {error.lineno})" if error.lineno else ""
        raise BadFileError(f"it is not Python: {error.msg}{line}.") from None
    except (RecursionError, MemoryError):
        raise BadFileError("it is nested too deeply.") from None
    except ValueError as error:  # Zero bytes, or JSON that is none.
        raise BadFileError(f"it is not a Python program: {error}.") from None


def _read_bytes(path: pathlib.Path) -> bytes:
    """Returns the contents of a regular file; a pipe might never end or begin."""
    # Without waiting, as opening a pipe does until somebody writes to it.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise BadFileError(
                "it is no regular file, but a pipe or device. Write the program to a "
                "file and check that."
            )
        most = _MOST_NOTEBOOK if path.suffix == ".ipynb" else _MOST_CODE
        contents = file.read(most + 1)
    if len(contents) > most:
        raise BadFileError(f"it has more than {most:,} bytes, too many for a program.")
    return contents


def _is_program(path: pathlib.Path, folder: pathlib.Path) -> bool:
    within = path.relative_to(folder).parts
    hidden = any(p.startswith(".") or p == "__pycache__" for p in within)
    return path.suffix in _SUFFIXES and not hidden and path.is_file()


def _notebook_parts(text: str) -> list[CodePart]:
    parts = []
    for number, cell in enumerate(_cells(json.loads(text)), start=1):
        if cell.get("cell_type") == "code":
            source = cell.get("source", "")
            joined = source if isinstance(source, str) else "".join(source)
            if not joined.startswith("%%") or _PYTHON_CELL.match(joined):
                parts.append(_part(number, joined))
    return parts


def _cells(notebook: Any) -> list[dict[str, Any]]:
    """Returns the cells of a notebook of version 4 or 3."""
    try:
        if "worksheets" in notebook:
            raise ValueError("it is a notebook of version 3; open and save it anew")
        cells = list(notebook["cells"])
    except (KeyError, TypeError):
        raise ValueError("it has no list of cells") from None
    if not all(isinstance(c, dict) and _is_source(c.get("source", "")) for c in cells):
        raise ValueError("one of its cells is not a cell")
    return cells


def _is_source(source: object) -> bool:
    lines = [source] if isinstance(source, str) else source
    return isinstance(lines, list) and all(isinstance(line, str) for line in lines)


def _part(cell: int | None, text: str) -> CodePart:
    if len(text) > _MOST_CODE:
        raise BadFileError(
            f"cell {cell} has more than {_MOST_CODE:,} characters, too many for a "
            "program."
        )
    lines = _split(text)
    if cell is None:
        return CodePart(cell, lines, _parse(text))
    try:
        # As it is, if that is Python: a line may well begin with the operator %.
        return CodePart(cell, lines, _parse(text))
    except SyntaxError:
        pass
    try:
        return CodePart(cell, lines, _parse("".join(_replace_magic(lines))))
    except SyntaxError as error:
        error.msg = f"{error.msg}, in cell {cell}"
        raise


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Those of the program, not of the check.
        return ast.parse(text)


def _replace_magic(lines: Sequence[str]) -> Iterator[str]:
    """Yields the lines of a notebook with `pass` for those that are not Python."""
    goes_on = False
    for line in lines:
        if goes_on:
            # An empty line, so that the numbers of the others stay.
            yield "\n"
        elif _MAGIC.match(line):
            goes_on = True
            yield line[: len(line) - len(line.lstrip())] + "pass\n"
        else:
            yield _ASSIGNED_MAGIC.sub(r"\1None", line)
        goes_on = goes_on and line.rstrip("\r\n").endswith("\\")


def _split(text: str) -> list[str]:
    """Returns the lines of a text as Python counts them, with their ends."""
    return _LINE.findall(text)


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
