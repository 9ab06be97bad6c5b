"""The places of a program that use TensorFlow, found in its syntax tree.

The tree is walked in the order in which Python would run it, bodies of functions after
the module. This module reads the statements, and `expressions` what is in them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import final

from unisono._src.cli.check import rows
from unisono._src.cli.check.expressions import ExpressionReader, Typing
from unisono._src.cli.check.scopes import (
    NONE,
    ReadingPlace,
    Scope,
    Use,
    Value,
    Values,
    all_arguments,
    attributes_of,
    instances,
)
from unisono._src.foundation.tensorflow_names import listing


def find_uses(trees: Iterable[ast.Module], typing: Typing) -> list[list[Use]]:
    """Returns the uses in each of some trees that share their names, in order.

    Args:
        trees: a file, or the cells of a notebook.
        typing: gives the class of what a call or an attribute gives.
    """
    trees = list(trees)
    returned: dict[str, Values] = {}
    for _ in range(2):  # The first time tells what the program's functions return.
        reader = _StatementReader(typing, returned)
        found = [reader.read(tree) for tree in trees]
    return found


@final
class _StatementReader:
    """Reads syntax trees, and collects the uses of TensorFlow in them.

    A statement is read by the method that is called after its class in `ast`, such as
    `_If`; its expressions are read by an `ExpressionReader`, which keeps the uses.

    Args:
        typing: see `find_uses`.
        returned: by function of the program, the values that it returns; filled in.
    """

    def __init__(self, typing: Typing, returned: dict[str, Values]) -> None:
        self._returned = returned
        self._later: list[
            tuple[ast.FunctionDef | ast.AsyncFunctionDef, ReadingPlace]
        ] = []
        self._module = Scope(None)
        place = ReadingPlace(self._module)
        self._reader = ExpressionReader(typing, returned, place)
        self._function = ""

    def read(self, tree: ast.Module) -> list[Use]:
        self._reader.uses = []
        self._reader.place = ReadingPlace(self._module)
        self._run(tree.body)
        # Bodies come after the module, as calls do, so that they see its last bindings.
        while self._later:
            function, place = self._later.pop(0)
            self._reader.place = place
            self._function = _key(function)
            self._run(function.body)
        self._function = ""
        return sorted(self._reader.uses, key=lambda use: _place(use.node))

    def _run(self, statements: Sequence[ast.stmt]) -> None:
        for node in statements:
            handle = getattr(self, f"_{type(node).__name__}", None)
            if handle is not None:
                handle(node)
            else:
                self._look_into(node)

    def _look_into(self, node: ast.AST) -> None:
        """Reads the expressions and statements below a node."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self._run([child])
            elif isinstance(child, ast.expr):
                self._reader.eval(child)
            else:
                self._look_into(child)

    def _branch(self, node: ast.AST) -> None:
        self._reader.place.branches += 1
        self._look_into(node)
        self._reader.place.branches -= 1

    def _If(self, node: ast.If) -> None:
        self._reader.tell_control("if", node, node.test)
        self._branch(node)

    def _While(self, node: ast.While) -> None:
        self._reader.tell_control("while", node, node.test)
        self._branch(node)

    def _Assert(self, node: ast.Assert) -> None:
        self._reader.tell_control("assert", node, node.test)
        self._look_into(node)

    def _For(self, node: ast.For | ast.AsyncFor) -> None:
        self._reader.tell_control("for", node, node.iter)
        self._reader.bind(node.target, NONE)
        self._branch(node)

    _AsyncFor = _For
    _Try = _TryStar = _Match = _branch

    def _Return(self, node: ast.Return) -> None:
        if node.value is not None:
            values = self._reader.eval(node.value)
            found = frozenset(v for v in values if v.kind == "object")
            before = self._returned.get(self._function, NONE)
            self._returned[self._function] = before | found

    def _With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            values = self._reader.eval(item.context_expr)
            if item.optional_vars is not None:
                self._reader.bind(item.optional_vars, values)
        self._run(node.body)

    _AsyncWith = _With

    def _Assign(self, node: ast.Assign) -> None:
        values = self._reader.eval(node.value)
        for target in node.targets:
            # `a, b = x, y` binds each name to its own value.
            # The uses were recorded above.
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                each = [self._reader.eval_quietly(value) for value in node.value.elts]
                if len(each) == len(target.elts):
                    for where, what in zip(target.elts, each, strict=True):
                        self._reader.bind(where, what)
                    continue
            self._reader.bind(target, values)

    def _AnnAssign(self, node: ast.AnnAssign) -> None:
        self._reader.eval(node.annotation)
        values = self._reader.eval(node.value) if node.value else NONE
        self._reader.bind(node.target, values)

    # Imports.

    def _Import(self, node: ast.Import) -> None:
        for alias in node.names:
            package, _, path = alias.name.partition(".")
            if package in rows.OTHER_PACKAGES:
                self._tell_package(alias, package, alias.name)
            if package not in ("tensorflow", "unisono"):
                self._reader.set_name(
                    self._reader.place.scope,
                    (alias.asname or alias.name).split(".")[0],
                    NONE,
                )
                continue
            if path and path != "compat.v2":
                self._reader.uses.append(Use(alias, alias.name, path, "import"))
            bound = alias.asname or package
            # `import tensorflow.keras` binds `tensorflow`; with `as`
            # it binds the module below.
            is_root = not alias.asname or path == "compat.v2"
            value = Value("" if is_root else path)
            self._reader.set_name(self._reader.place.scope, bound, frozenset({value}))

    def _ImportFrom(self, node: ast.ImportFrom) -> None:
        package, _, path = (node.module or "").partition(".")
        if node.level == 0 and package in rows.OTHER_PACKAGES:
            self._tell_package(node, package, node.module or "")
        if node.level or package not in ("tensorflow", "unisono"):
            for alias in node.names:
                self._reader.set_name(
                    self._reader.place.scope, alias.asname or alias.name, NONE
                )
            return
        for alias in node.names:
            self._import_name(alias, path)

    def _import_name(self, alias: ast.alias, path: str) -> None:
        if alias.name == "*":
            told = "The tree does not tell which names a star import brings."
            self._reader.has_star = True
            self._reader.uses.append(Use(alias, "import *", path, "unknown", told=told))
            return
        whole = listing.drop_v2(f"{path}.{alias.name}".lstrip("."))
        whole = "" if whole == "compat.v2" else whole
        if whole:
            self._reader.uses.append(Use(alias, alias.name, whole, "import"))
        bound = alias.asname or alias.name
        # Nothing is known about what `tensorflow.python` holds;
        # the import itself is told.
        is_public = not whole.startswith("python.") and whole != "python"
        values = frozenset({Value(whole)}) if is_public else NONE
        self._reader.set_name(self._reader.place.scope, bound, values)

    def _tell_package(self, node: ast.AST, package: str, written: str) -> None:
        self._reader.uses.append(Use(node, written, package, "package"))

    # Functions and classes.

    def _FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        compiled = self._reader.place.compiled
        for decorator in node.decorator_list:
            bare = decorator.func if isinstance(decorator, ast.Call) else decorator
            compiled |= Value("function") in self._reader.eval_quietly(bare)
            self._reader.eval(decorator)
        inner = Scope(self._reader.place.scope)
        arguments = node.args
        for default in (*arguments.defaults, *filter(None, arguments.kw_defaults)):
            self._reader.eval(default)
        for argument in all_arguments(arguments):
            inner.names[argument.arg] = self._annotation(argument.annotation)
        self._annotation(node.returns)
        local = frozenset({Value(_key(node), "local")})
        self._reader.set_name(self._reader.place.scope, node.name, local)
        place = self._reader.place
        # A function in a method sees the `self` of that method.
        me = place.scope if place.scope.is_class else place.me
        self._later.append((node, ReadingPlace(inner, me, compiled)))

    _AsyncFunctionDef = _FunctionDef

    def _annotation(self, node: ast.expr | None) -> Values:
        if node is None:
            return NONE
        return instances(self._reader.eval(node))

    def _ClassDef(self, node: ast.ClassDef) -> None:
        bases: Values = NONE
        for base in (*node.decorator_list, *node.bases):
            values = self._reader.eval(base)
            if base in node.bases:
                bases |= values
        for keyword in node.keywords:
            self._reader.eval(keyword.value)
        outer, me = self._reader.place.scope, self._reader.place.me
        self._reader.place.scope = Scope(outer, is_class=True)
        # What `self` is, besides the attributes that the class gives it.
        self._reader.place.scope.names["self"] = instances(bases)
        own = attributes_of(node)
        # Names of the class hide those of its bases, whatever their values are.
        for name in own:
            self._reader.place.scope.names[name] = NONE
        self._run(node.body)
        self._reader.place.scope, self._reader.place.me = outer, me
        derived = [
            Value(v.path, "derived", v.own | own)
            for v in bases
            if v.kind in ("path", "derived")
        ]
        self._reader.set_name(outer, node.name, frozenset(derived))


def _key(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Returns the key of a function of the program."""
    return f"{function.name} {id(function)}"


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 1), getattr(node, "end_col_offset", 0)
