"""The places of a program that use TensorFlow, found in its syntax tree.

The tree is walked in the order in which Python would run it, bodies of functions after
the module. This module reads the statements, and `expressions` what is in them.
"""

from __future__ import annotations

import ast
import collections
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import final

from unisono._src.cli.check import rows
from unisono._src.cli.check.expressions import (
    TENSORFLOW_NAMES,
    ExpressionReader,
    Typing,
    elements,
)
from unisono._src.cli.check.program_text import ModuleFinder
from unisono._src.cli.check.scopes import (
    NONE,
    OPEN,
    ProgramFacts,
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

# Methods of Keras' classes that are compiled by whoever calls them.
_COMPILED_BY_KERAS = frozenset(("call", "predict_step", "test_step", "train_step"))


def find_uses(trees: Iterable[ast.Module], typing: Typing) -> list[list[Use]]:
    """Returns the uses in each of some trees that share their names, in order.

    Args:
        trees: a file, or the cells of a notebook.
        typing: gives the class of what a call or an attribute gives.
    """
    found = find_program_uses({"": list(trees)}, typing, ModuleFinder([]))[""]
    if found is None:
        raise RecursionError
    return found


def find_program_uses(
    files: Mapping[str, Sequence[ast.Module]], typing: Typing, finder: ModuleFinder
) -> dict[str, list[list[Use]] | None]:
    """Returns the uses in each tree of some files; None for one nested too deeply.

    Args:
        files: the trees of each file; a file comes after those that it imports.
        typing: as for `find_uses`.
        finder: finds the files that imports mean.
    """
    facts = ProgramFacts()
    found: dict[str, list[list[Use]] | None] = {}
    # The first time tells what the program's functions return, and who calls them.
    for _ in range(2):
        for file, trees in files.items():
            reader = _StatementReader(typing, facts, file, finder)
            try:
                found[file] = [reader.read(tree) for tree in trees]
            except RecursionError:
                found[file] = None
            facts.modules[file] = reader.module
        facts.follow_calls()
    return found


@final
class _StatementReader:
    """Reads syntax trees, and collects the uses of TensorFlow in them.

    A statement is read by the method that is called after its class in `ast`, such as
    `_If`; its expressions are read by an `ExpressionReader`, which keeps the uses.

    Args:
        typing: see `find_uses`.
        facts: what is known about the program; filled in.
        file: the key of the file.
        finder: see `find_program_uses`.

    Attributes:
        module: the names of the module.
    """

    def __init__(
        self, typing: Typing, facts: ProgramFacts, file: str, finder: ModuleFinder
    ) -> None:
        self._facts, self._file, self._finder = facts, file, finder
        self._later: collections.deque[
            tuple[ast.FunctionDef | ast.AsyncFunctionDef, ReadingPlace]
        ] = collections.deque()
        self.module = Scope(None)
        self._reader = ExpressionReader(
            typing, facts, ReadingPlace(self.module), finder
        )
        # The first import of Keras, until one of TensorFlow has been read.
        self._keras_first: ast.AST | None = None
        self._has_tensorflow = False

    def read(self, tree: ast.Module) -> list[Use]:
        self._reader.uses = []
        self._reader.place = ReadingPlace(self.module)
        self._run(tree.body)
        # Bodies come after the module, as calls do, so that they see its last bindings.
        while self._later:
            function, self._reader.place = self._later.popleft()
            self._run(function.body)
        return sorted(self._reader.uses, key=lambda use: place_of(use.node))

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

    def _run_branches(self, node: ast.While | ast.For | ast.AsyncFor) -> None:
        self._reader.place.branches += 1
        self._run(node.body)
        self._run(node.orelse)
        self._reader.place.branches -= 1

    def _If(self, node: ast.If) -> None:
        self._reader.tell_control("if", node, self._reader.eval(node.test))
        scope = self._reader.place.scope
        # Where the program asks for the class of a value, it is what the tree says, or
        # an object of that class.
        asked = {name: scope.find(name) for name in _asked_names(node.test)}
        scope.names |= dict.fromkeys(asked, NONE)
        self._reader.place.branches += 1
        self._run(node.body)
        for name, values in asked.items():
            scope.names[name] |= values or NONE
        self._run(node.orelse)
        self._reader.place.branches -= 1

    def _While(self, node: ast.While) -> None:
        self._reader.tell_control("while", node, self._reader.eval(node.test))
        self._run_branches(node)

    def _Assert(self, node: ast.Assert) -> None:
        self._reader.tell_control("assert", node, self._reader.eval(node.test))
        if node.msg is not None:
            self._reader.eval(node.msg)

    def _For(self, node: ast.For | ast.AsyncFor) -> None:
        values = self._reader.eval(node.iter)
        self._reader.tell_control("for", node, values)
        self._reader.bind(node.target, elements(values))
        self._run_branches(node)

    _AsyncFor = _For
    _Try = _TryStar = _Match = _branch

    def _Return(self, node: ast.Return) -> None:
        if node.value is not None:
            values = self._reader.eval(node.value)
            found = frozenset(
                v for v in values if v.kind in ("local", "object", "path")
            )
            function, returned = self._reader.place.function, self._facts.returned
            returned[function] = returned.get(function, NONE) | found

    def _With(self, node: ast.With | ast.AsyncWith) -> None:
        place, tapes = self._reader.place, 0
        for item in node.items:
            values = self._reader.eval(item.context_expr)
            tapes += Value("GradientTape", "object") in values
            if item.optional_vars is not None:
                self._reader.bind(item.optional_vars, values)
        place.tapes += tapes
        self._run(node.body)
        place.tapes -= tapes

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
            if isinstance(node.value, ast.Call) and not values:
                self._tell_call_for_tensorflow(target)

            if isinstance(target, ast.Name) and target.id == "__all__":
                self._reader.place.scope.public = _texts(node.value)

    def _AugAssign(self, node: ast.AugAssign) -> None:
        self._look_into(node)
        if isinstance(node.target, ast.Name) and node.target.id == "__all__":
            self._reader.place.scope.public = None

    def _tell_call_for_tensorflow(self, target: ast.expr) -> None:
        """Tells names such as `tf` that a function returns which cannot be read."""
        names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        for name in names:
            if isinstance(name, ast.Name) and name.id in TENSORFLOW_NAMES:
                told = f"The tree does not tell what it is. {rows.TAKEN_FOR_TENSORFLOW}"
                self._reader.note(name, name.id, "", "unknown", told=told)
                values = frozenset({Value(TENSORFLOW_NAMES[name.id])})
                self._reader.bind(name, values)

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
            if package not in rows.PACKAGES:
                self._import_other(alias, package)
                continue
            self._note_tensorflow()
            if path and path != "compat.v2":
                self._reader.note(alias, alias.name, path, "import")
            # `import tensorflow.keras` binds `tensorflow`; with `as`
            # it binds the module below.
            is_root = not alias.asname or path == "compat.v2"
            self._bind_import(alias.asname or package, Value("" if is_root else path))

    def _import_other(self, alias: ast.alias, package: str) -> None:
        """Binds a module of Keras, of the program, or of somebody else."""
        bound = alias.asname or package
        # Without `as` the outermost package is bound.
        module = alias.name if alias.asname else package
        own = self._finder.find(self._file, module, 0)
        if own is not None:
            self._note_own(own)
            self._bind_import(bound, Value(own, "module"))
        elif package == "keras":
            self._note_keras(alias)
            self._bind_import(bound, Value(module))
        else:
            self._reader.set_name(self._reader.place.scope, bound, NONE)

    def _bind_import(self, name: str, value: Value) -> None:
        self._reader.set_name(self._reader.place.scope, name, frozenset({value}))

    def _note_tensorflow(self) -> None:
        if not self._has_tensorflow and self._keras_first is not None:
            self._reader.note(self._keras_first, "keras", "keras first", "form")
        self._has_tensorflow = True

    def _note_keras(self, node: ast.AST) -> None:
        # Only the module's own lines have an order.
        if self._reader.place.scope is self.module and not self._has_tensorflow:
            self._keras_first = self._keras_first or node

    def _note_own(self, file: str) -> None:
        """Notes a module of the program: one that is read may import TensorFlow."""
        if file in self._facts.modules:
            self._note_tensorflow()

    def _ImportFrom(self, node: ast.ImportFrom) -> None:
        package, _, path = (node.module or "").partition(".")
        if node.level == 0 and package in rows.PACKAGES:
            self._note_tensorflow()
            for alias in node.names:
                self._import_name(alias, path)
            return
        if node.level == 0 and package in rows.OTHER_PACKAGES:
            self._tell_package(node, package, node.module or "")
        own = self._finder.find(self._file, node.module or "", node.level)
        if own is not None:
            self._note_own(own)
        elif node.level == 0 and package == "keras":
            self._note_keras(node)
            for alias in node.names:
                self._import_keras(alias, node.module or "")
            return
        for alias in node.names:
            if own is None:
                self._import_foreign(alias, node)
            elif alias.name == "*":
                self._import_all(own)
            else:
                values = self._reader.module_name(own, alias.name)
                self._import_own(alias, values or NONE)

    def _import_keras(self, alias: ast.alias, module: str) -> None:
        if alias.name == "*":
            self._reader.stars.append(module)
        elif alias.name in TENSORFLOW_NAMES:
            self._import_own(alias, NONE)
        else:
            whole = f"{module}.{alias.name}"
            self._reader.note(alias, alias.name, whole, "import")
            self._bind_import(alias.asname or alias.name, Value(whole))

    def _import_all(self, file: str) -> None:
        """Binds what a star import of one of the program's modules brings."""
        scope = self._facts.modules.get(file)
        if scope is None:
            return
        for name, values in scope.names.items():
            is_public = not name.startswith("_")
            if is_public if scope.public is None else name in scope.public:
                self._reader.set_name(self._reader.place.scope, name, values)

    def _import_foreign(self, alias: ast.alias, node: ast.ImportFrom) -> None:
        """Binds a name of a module that cannot be read."""
        package = (node.module or "").partition(".")[0]
        if alias.name == "*":
            if node.level or package not in sys.stdlib_module_names:
                self._reader.foreign_stars.append(alias)
            return
        # A folder that is given without an `__init__` is a module, too.
        module = f"{node.module or ''}.{alias.name}".lstrip(".")
        below = self._finder.find(self._file, module, node.level)
        known = NONE if below is None else frozenset({Value(below, "module")})
        self._import_own(alias, known)

    def _import_own(self, alias: ast.alias, values: Values) -> None:
        if not values and alias.name in TENSORFLOW_NAMES:
            told = f"The tree does not tell what it is. {rows.TAKEN_FOR_TENSORFLOW}"
            self._reader.note(alias, alias.name, "", "unknown", told=told)
            values = frozenset({Value(TENSORFLOW_NAMES[alias.name])})
        bound = alias.asname or alias.name
        self._reader.set_name(self._reader.place.scope, bound, values)

    def _import_name(self, alias: ast.alias, path: str) -> None:
        if alias.name == "*":
            told = "The tree does not tell which names a star import brings."
            self._reader.stars.append(path)
            self._reader.note(alias, "import *", path, "unknown", told=told)
            return
        whole = listing.drop_v2(f"{path}.{alias.name}".lstrip("."))
        whole = "" if whole == "compat.v2" else whole
        if whole:
            self._reader.note(alias, alias.name, whole, "import")
        bound = alias.asname or alias.name
        # Nothing is known about what `tensorflow.python` holds;
        # the import itself is told.
        is_public = not whole.startswith("python.") and whole != "python"
        values = frozenset({Value(whole)}) if is_public else NONE
        self._reader.set_name(self._reader.place.scope, bound, values)

    def _tell_package(self, node: ast.AST, package: str, written: str) -> None:
        self._reader.note(node, written, package, "package")

    # Functions and classes.

    def _FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        place, key = self._reader.place, _key(node)
        is_converted = place.compiled
        for decorator in node.decorator_list:
            is_converted |= self._compiles(decorator)
            self._reader.eval(decorator)
        is_compiled = is_converted or key in self._facts.compiled
        inner = Scope(place.scope)
        arguments = node.args
        for default in (*arguments.defaults, *filter(None, arguments.kw_defaults)):
            self._reader.eval(default)
        for argument in all_arguments(arguments):
            inner.names[argument.arg] = self._annotation(argument.annotation)
        self._annotation(node.returns)
        local = frozenset({Value(key, "local")})
        self._reader.set_name(place.scope, node.name, local)
        # A function in a method sees the `self` of that method.
        me = place.scope if place.scope.is_class else place.me
        reach = place.reach
        if place.scope.is_class and node.name in _COMPILED_BY_KERAS:
            bases = place.scope.names["self"]
            of_keras = any(base.path.startswith("keras.") for base in bases)
            reach = " in Keras" if of_keras and not is_converted else reach
            is_compiled |= of_keras
        if is_compiled:
            self._facts.compiled.add(key)
        is_hosted = place.hosted or key in self._facts.hosted
        body = ReadingPlace(inner, me, key, is_compiled, is_hosted, reach)
        self._later.append((node, body))

    def _compiles(self, decorator: ast.expr) -> bool:
        """Whether it is ``tf.function``, called or in ``functools.partial`` or not."""
        called = [decorator]
        if isinstance(decorator, ast.Call):
            called = [decorator.func, *decorator.args[:1]]
        quietly = self._reader.eval_quietly
        return any(Value("function") in quietly(each) for each in called)

    _AsyncFunctionDef = _FunctionDef

    def _annotation(self, node: ast.expr | None) -> Values:
        if node is None:
            return NONE
        return instances(self._reader.eval(node))

    def _ClassDef(self, node: ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self._reader.eval(decorator)
        bases: Values = NONE
        own = attributes_of(node)
        for base in node.bases:
            values = self._reader.eval(base)
            bases |= values
            if not values and getattr(base, "id", "") not in ("object", "Exception"):
                own |= {OPEN}
        for keyword in node.keywords:
            self._reader.eval(keyword.value)
        own |= frozenset(name for base in bases for name in base.own)
        outer = self._reader.place.scope
        scope = self._reader.place.scope = Scope(outer, is_class=True)
        # Names of the class hide those of its bases, whatever their values are.
        for name in own - {OPEN}:
            scope.names[name] = NONE
        # What `self` is, besides the attributes that the class gives it.
        made = [
            Value(v.path, "derived", own)
            for v in bases
            if v.kind in ("path", "derived") and v.path
        ]
        scope.names["self"] = instances(frozenset(made))
        self._run(node.body)
        self._reader.place.scope = outer
        derived = frozenset(made or [Value("", "derived", own)])
        self._reader.set_name(outer, node.name, derived)


def _key(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Returns the key of a function of the program."""
    return f"{function.name} {id(function)}"


def _asked_names(test: ast.expr) -> Iterator[str]:
    """Yields the names whose classes a condition asks for."""
    tests = test.values if isinstance(test, ast.BoolOp) else [test]
    for each in tests:
        called = getattr(getattr(each, "func", None), "id", "")
        asked = [*getattr(each, "args", ()), None][0]
        if called == "isinstance" and isinstance(asked, ast.Name):
            yield asked.id


def _texts(node: ast.expr) -> frozenset[str] | None:
    """Returns the texts of a list of texts; None for anything else."""
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    values = [getattr(each, "value", None) for each in node.elts]
    texts = frozenset(value for value in values if isinstance(value, str))
    return texts if len(texts) == len({*values}) else None


def place_of(node: ast.AST) -> tuple[int, int]:
    """Returns the line of a use, and the column where it ends."""
    # A chain of attributes begins lines before the name that is meant, its last one.
    line = "end_lineno" if isinstance(node, ast.Attribute) else "lineno"
    return getattr(node, line, 1), getattr(node, "end_col_offset", 0)


def column_of(node: ast.AST) -> int:
    """Returns the column where a use begins in its line, from 1."""
    if isinstance(node, ast.Attribute) and node.lineno != node.end_lineno:
        return (node.end_col_offset or 0) - len(node.attr.encode()) + 1
    return int(getattr(node, "col_offset", 0)) + 1
