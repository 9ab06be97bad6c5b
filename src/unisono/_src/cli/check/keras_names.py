"""The names of the installed Keras, read from its source without importing it."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.util
import pathlib
from collections.abc import Iterator, Mapping
from typing import final

# TensorFlow's Keras has more names than Keras; they are in a package of Keras.
_ROOTS = ("keras", "keras._tf_keras.keras")


@final
@dataclasses.dataclass(frozen=True)
class Definition:
    """Holds where Keras defines a class or function, and the syntax of it."""

    module: str
    node: ast.ClassDef | ast.FunctionDef


@final
@dataclasses.dataclass(frozen=True)
class Members:
    """Holds the members of a class.

    Attributes:
        names: its attributes and methods.
        classes: the names of the class and of all that it derives from.
        methods: its methods, also `__init__`.
    """

    names: frozenset[str]
    classes: frozenset[str]
    methods: Mapping[str, ast.FunctionDef]


@final
class Keras:
    """Finds names of an installed Keras.

    Args:
        folder: the folder of the package `keras`.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._names = functools.cache(self._read_names)
        self.members = functools.cache(self._find_members)

    @staticmethod
    def find_installed() -> Keras | None:
        """Returns the Keras that Python would import, or None."""
        spec = importlib.util.find_spec("keras")
        if spec is None or not spec.submodule_search_locations:
            return None
        return Keras(pathlib.Path(spec.submodule_search_locations[0]))

    def has(self, path: str) -> bool:
        """Whether Keras has a name or module, given as ``keras.layers.Dense``."""
        return self._locate(path) is not None or self._file(path) is not None

    def find(self, path: str) -> Definition | None:
        """Returns the class or function of a public name, or None if it is neither."""
        located = self._locate(path)
        return None if located is None else self.follow(*located)

    def _locate(self, path: str) -> tuple[str, str] | None:
        """Returns the module that has a public name, and the name in it."""
        above, _, name = path.rpartition(".")
        below = above.removeprefix("keras")
        # What TensorFlow added to `backend` needs TensorFlow.
        for root in _ROOTS[: 1 if below == ".backend" else 2]:
            if not above:
                return ("keras", "")
            if name in self._names(root + below):
                return (root + below, name)
        return None

    def follow(self, module: str, name: str, steps: int = 12) -> Definition | None:
        """Returns the class or function that a module's name stands for."""
        found = self._names(module).get(name)
        if isinstance(found, ast.ClassDef | ast.FunctionDef):
            return Definition(module, found)
        # The number of steps bounds a circle of imports.
        if found is None or steps == 0:
            return None
        return self.follow(*found, steps - 1)

    def _find_members(self, definition: Definition) -> Members:
        assert isinstance(definition.node, ast.ClassDef)
        names, classes = set(_own_names(definition.node)), {definition.node.name}
        functions = [n for n in definition.node.body if isinstance(n, ast.FunctionDef)]
        methods = {function.name: function for function in functions}
        for base in definition.node.bases:
            found = self._find_base(definition.module, base)
            if found is not None:
                above = self.members(found)
                names |= above.names
                classes |= above.classes
                methods = {**above.methods, **methods}
        return Members(frozenset(names), frozenset(classes), methods)

    def find_accepted(self, definition: Definition) -> frozenset[str] | None:
        """Returns the arguments that a class or function takes; None if any.

        A class whose `__init__` passes further ones to `super` takes those of its base.
        """
        node, module = definition.node, definition.module
        function = node
        if isinstance(node, ast.ClassDef):
            own = [n for n in node.body if isinstance(n, ast.FunctionDef)]
            made = [n for n in own if n.name == "__init__"]
            if not made:
                return self._find_accepted_by_base(node, module)
            function = made[0]
        assert isinstance(function, ast.FunctionDef)
        names, passed = find_parameters(function)
        # The constructor of the base says what it takes. Another function may do
        # anything with the arguments.
        if set(passed) == {"super().__init__"} and isinstance(node, ast.ClassDef):
            above = self._find_accepted_by_base(node, module)
            return None if above is None else names | above
        return None if passed else names

    def _find_accepted_by_base(
        self, node: ast.ClassDef, module: str
    ) -> frozenset[str] | None:
        found = (self._find_base(module, base) for base in node.bases)
        bases = [base for base in found if base is not None]
        return self.find_accepted(bases[0]) if bases else None

    def _find_base(self, module: str, base: ast.expr) -> Definition | None:
        holder, _, name = ast.unparse(base).rpartition(".")
        if holder:
            target = self._names(module).get(holder)
            if not isinstance(target, tuple):
                return None
            module = ".".join(target)
        found = self.follow(module, name)
        return found if found and isinstance(found.node, ast.ClassDef) else None

    def _file(self, module: str) -> pathlib.Path | None:
        path = self._folder.joinpath(*module.split(".")[1:])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        return file if file.is_file() else None

    def _read_names(
        self, module: str
    ) -> dict[str, tuple[str, str] | ast.ClassDef | ast.FunctionDef | None]:
        """Returns the definition or import of a module's names; None for values."""
        file = self._file(module)
        if file is None:
            return {}
        names: dict[str, tuple[str, str] | ast.ClassDef | ast.FunctionDef | None] = {}
        for node in _statements(ast.parse(file.read_text(encoding="utf-8")).body):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names[node.name] = node
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    # Module and name, which `follow` goes on with.
                    names[alias.asname or alias.name] = (node.module or "", alias.name)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    names[ast.unparse(target)] = None
        return names


def find_parameters(function: ast.FunctionDef) -> tuple[frozenset[str], list[str]]:
    """Returns the arguments of a function, and who gets its ``**kwargs``.

    The names are those of the arguments, and of ``kwargs.pop("name")`` in the body.
    """
    args = function.args
    names = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
    passed: list[str] = []
    if args.kwarg is None:
        return frozenset(names), passed
    others = args.kwarg.arg
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in (f"{others}.pop", f"{others}.get") and node.args:
            names.add(getattr(node.args[0], "value", ""))
        if any(k.arg is None and ast.unparse(k.value) == others for k in node.keywords):
            passed.append(called)
    return frozenset(names), passed


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements of a module; of branches by backend, those for JAX."""
    for node in body:
        if isinstance(node, ast.If):
            of_other = "backend()" in ast.unparse(node.test)
            # Other branches, such as for a version of Python,
            # count as taken on both sides.
            if not of_other or "jax" in ast.unparse(node.test):
                yield from _statements(node.body)
            yield from _statements(node.orelse)
        elif isinstance(node, ast.Try):
            yield from _statements(node.body)
        else:
            yield node


def _own_names(cls: ast.ClassDef) -> Iterator[str]:
    """Yields the names that a class itself defines, also those set on `self`."""
    for node in cls.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (ast.unparse(target) for target in node.targets)
        elif isinstance(node, ast.AnnAssign):
            yield ast.unparse(node.target)
    for inner in ast.walk(cls):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            yield from [inner.attr] if ast.unparse(inner.value) == "self" else []
