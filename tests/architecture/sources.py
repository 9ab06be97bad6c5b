"""Reads the package's source files and syntax trees, for the tests of its layout."""

import ast
import dataclasses
import functools
import pathlib
import tomllib

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "unisono"


@dataclasses.dataclass(frozen=True)
class Source:
    """Holds one file of the package."""

    path: pathlib.Path

    @property
    def name(self):
        """The path relative to the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def is_facade(self):
        """Whether the file is a public module, which may only re-export names."""
        return "_src" not in self.path.relative_to(PACKAGE).parts

    @functools.cached_property
    def text(self):
        """The file's text."""
        return self.path.read_text(encoding="utf-8")

    @functools.cached_property
    def tree(self):
        """The file's syntax tree."""
        return ast.parse(self.text, filename=self.name)


@functools.cache
def all_sources():
    """Returns every Python file of the package, sorted by path."""
    return tuple(Source(path) for path in sorted(PACKAGE.rglob("*.py")))


def functions_of(tree):
    """Yields every function and method of a syntax tree, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def count_lines(function):
    """Returns the number of lines of a function without its docstring."""
    total = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        total -= first.end_lineno - first.lineno + 1
    return total


def count_code(source):
    """Returns a module's lines, its docstrings left out."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    lines = len(source.text.splitlines())
    for node in ast.walk(source.tree):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            text = node.body[0]
            lines -= (text.end_lineno or text.lineno) - text.lineno + 1
    return lines


def imported_packages(tree):
    """Yields (line, top-level package) for each import in a syntax tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            package = "unisono" if node.level else node.module.partition(".")[0]
            yield node.lineno, package


def heights():
    """Returns the height of each room, counted from the lowest layer."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    found = {}
    for prefix, container in (("", "unisono._src"), ("input/", "unisono._src.input")):
        (rooms,) = (
            c["layers"] for c in contracts if c.get("containers") == [container]
        )
        found |= {prefix + name: i for i, name in enumerate(reversed(rooms))}
    return found


def room_of(module, other):
    """Returns the room of a module.

    If both modules are in `input`, it is the room inside `input`.
    """
    first, second, *_ = (*pathlib.PurePath(module).parts, "")
    is_inside = first == "input" and other.startswith("input/")
    return f"input/{second}" if is_inside else first


def imports_for_types(tree):
    """Yields (module, name) for each `from` import that only type checkers read."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith(
            "TYPE_CHECKING"
        ):
            for inner in ast.walk(ast.Module(node.body, [])):
                if isinstance(inner, ast.ImportFrom) and inner.module:
                    for alias in inner.names:
                        yield inner.module, alias.asname or alias.name
