"""The places of a program that use TensorFlow, found in its syntax tree.

The tree is walked in the order in which Python would run it, bodies of functions after
the module. A name stands for a set of values: what TensorFlow has at a path, an object
of one of its classes, or a method of such an object. Nothing is run, and where the tree
does not tell what a name is, the name stands for nothing.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Sequence
from typing import final

from unisono._src.cli.check import rows, use
from unisono._src.cli.check.scopes import (
    NONE,
    ReadingPlace,
    Scope,
    Value,
    Values,
    all_arguments,
    attributes_of,
    instances,
)
from unisono._src.cli.check.use import CallArguments, Use
from unisono._src.foundation.tensorflow_names import listing

# Returns the path of the class of what a path gives, called (True) or not, or None.
Typing = Callable[[str, bool], str | None]


def find_uses(trees: Iterable[ast.Module], typing: Typing) -> list[list[Use]]:
    """Returns the uses in each of some trees that share their names, in order.

    Args:
        trees: a file, or the cells of a notebook.
        typing: gives the class of what a call or an attribute gives.
    """
    trees = list(trees)
    returned: dict[str, Values] = {}
    for _ in range(2):  # The first time tells what the program's functions return.
        reader = _UseReader(typing, returned)
        found = [reader.read(tree) for tree in trees]
    return found


@final
class _UseReader:
    """Reads syntax trees, and collects the uses of TensorFlow in them.

    A statement is read by the method that is called after its class in `ast`, such as
    `_If`; an expression by the method that `_EXPRESSIONS` names for its class.

    Args:
        typing: see `find_uses`.
        returned: by function of the program, the values that it returns; filled in.
    """

    def __init__(self, typing: Typing, returned: dict[str, Values]) -> None:
        self._typing, self._returned = typing, returned
        self._uses: list[Use] = []
        self._later: list[
            tuple[ast.FunctionDef | ast.AsyncFunctionDef, ReadingPlace]
        ] = []
        self._module = Scope(None)
        self._place = ReadingPlace(self._module)
        self._has_star = False
        self._function = ""

    def read(self, tree: ast.Module) -> list[Use]:
        self._uses = []
        self._place = ReadingPlace(self._module)
        self._run(tree.body)
        while self._later:
            function, place = self._later.pop(0)
            self._place = place
            self._function = _key(function)
            self._run(function.body)
        self._function = ""
        return sorted(self._uses, key=lambda use: _place(use.node))

    # Statements.

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
                self._eval(child)
            else:
                self._look_into(child)

    def _branch(self, node: ast.AST) -> None:
        self._place.branches += 1
        self._look_into(node)
        self._place.branches -= 1

    def _If(self, node: ast.If) -> None:
        self._tell_control("if", node, node.test)
        self._branch(node)

    def _While(self, node: ast.While) -> None:
        self._tell_control("while", node, node.test)
        self._branch(node)

    def _Assert(self, node: ast.Assert) -> None:
        self._tell_control("assert", node, node.test)
        self._look_into(node)

    def _For(self, node: ast.For | ast.AsyncFor) -> None:
        self._tell_control("for", node, node.iter)
        self._bind(node.target, NONE)
        self._branch(node)

    _AsyncFor = _For
    _Try = _TryStar = _Match = _branch

    def _tell_control(self, form: str, node: ast.AST, value: ast.expr) -> None:
        if self._place.compiled:
            recorded = len(self._uses)
            values = self._eval(value)
            del self._uses[recorded:]  # They are recorded when the statement is read.
            if Value("Tensor", "object") in values:
                self._uses.append(Use(node, form, form, "control"))

    def _Return(self, node: ast.Return) -> None:
        if node.value is not None:
            values = self._eval(node.value)
            found = frozenset(v for v in values if v.kind == "object")
            before = self._returned.get(self._function, NONE)
            self._returned[self._function] = before | found

    def _With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            values = self._eval(item.context_expr)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, values)
        self._run(node.body)

    _AsyncWith = _With

    def _Assign(self, node: ast.Assign) -> None:
        values = self._eval(node.value)
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                each = [self._eval_quietly(value) for value in node.value.elts]
                if len(each) == len(target.elts):
                    for where, what in zip(target.elts, each, strict=True):
                        self._bind(where, what)
                    continue
            self._bind(target, values)

    def _AnnAssign(self, node: ast.AnnAssign) -> None:
        self._eval(node.annotation)
        values = self._eval(node.value) if node.value else NONE
        self._bind(node.target, values)

    def _eval_quietly(self, node: ast.expr) -> Values:
        recorded = len(self._uses)
        values = self._eval(node)
        del self._uses[recorded:]
        return values

    def _bind(self, target: ast.expr, values: Values) -> None:
        if isinstance(target, ast.Name):
            self._set(self._place.scope, target.id, values)
        elif isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self._bind(each, NONE)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, NONE)
        elif isinstance(target, ast.Attribute) and self._is_self(target.value):
            assert self._place.me is not None
            self._set(self._place.me, target.attr, values)
        else:
            self._eval(target)

    def _set(self, scope: Scope, name: str, values: Values) -> None:
        if self._place.branches:
            values = values | scope.names.get(name, NONE)
        scope.names[name] = values

    def _is_self(self, node: ast.expr) -> bool:
        is_self = isinstance(node, ast.Name) and node.id == "self"
        return is_self and self._place.me is not None

    # Imports.

    def _Import(self, node: ast.Import) -> None:
        for alias in node.names:
            package, _, path = alias.name.partition(".")
            if package in rows.OTHER_PACKAGES:
                self._tell_package(alias, package, alias.name)
            if package not in ("tensorflow", "unisono"):
                self._set(
                    self._place.scope, (alias.asname or alias.name).split(".")[0], NONE
                )
                continue
            if path and path != "compat.v2":
                self._uses.append(Use(alias, alias.name, path, "import"))
            bound = alias.asname or package
            is_root = not alias.asname or path == "compat.v2"
            value = Value("" if is_root else path)
            self._set(self._place.scope, bound, frozenset({value}))

    def _ImportFrom(self, node: ast.ImportFrom) -> None:
        package, _, path = (node.module or "").partition(".")
        if node.level == 0 and package in rows.OTHER_PACKAGES:
            self._tell_package(node, package, node.module or "")
        if node.level or package not in ("tensorflow", "unisono"):
            for alias in node.names:
                self._set(self._place.scope, alias.asname or alias.name, NONE)
            return
        for alias in node.names:
            self._import_name(alias, path)

    def _import_name(self, alias: ast.alias, path: str) -> None:
        if alias.name == "*":
            told = "The tree does not tell which names a star import brings."
            self._has_star = True
            self._uses.append(Use(alias, "import *", path, "unknown", told=told))
            return
        whole = listing.drop_v2(f"{path}.{alias.name}".lstrip("."))
        whole = "" if whole == "compat.v2" else whole
        if whole:
            self._uses.append(Use(alias, alias.name, whole, "import"))
        bound = alias.asname or alias.name
        is_public = not whole.startswith("python.") and whole != "python"
        values = frozenset({Value(whole)}) if is_public else NONE
        self._set(self._place.scope, bound, values)

    def _tell_package(self, node: ast.AST, package: str, written: str) -> None:
        self._uses.append(Use(node, written, package, "package"))

    # Functions and classes.

    def _FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        compiled = self._place.compiled
        for decorator in node.decorator_list:
            bare = decorator.func if isinstance(decorator, ast.Call) else decorator
            compiled |= Value("function") in self._eval_quietly(bare)
            self._eval(decorator)
        inner = Scope(self._place.scope)
        arguments = node.args
        for default in (*arguments.defaults, *filter(None, arguments.kw_defaults)):
            self._eval(default)
        for argument in all_arguments(arguments):
            inner.names[argument.arg] = self._annotation(argument.annotation)
        self._annotation(node.returns)
        local = frozenset({Value(_key(node), "local")})
        self._set(self._place.scope, node.name, local)
        me = self._place.scope if self._place.scope.is_class else self._place.me
        self._later.append((node, ReadingPlace(inner, me, compiled)))

    _AsyncFunctionDef = _FunctionDef

    def _annotation(self, node: ast.expr | None) -> Values:
        if node is None:
            return NONE
        return instances(self._eval(node))

    def _ClassDef(self, node: ast.ClassDef) -> None:
        bases: Values = NONE
        for base in (*node.decorator_list, *node.bases):
            values = self._eval(base)
            if base in node.bases:
                bases |= values
        for keyword in node.keywords:
            self._eval(keyword.value)
        outer, me = self._place.scope, self._place.me
        self._place.scope = Scope(outer, is_class=True)
        # What `self` is, besides the attributes that the class gives it.
        self._place.scope.names["self"] = instances(bases)
        own = attributes_of(node)
        for name in own:
            self._place.scope.names[name] = NONE
        self._run(node.body)
        self._place.scope, self._place.me = outer, me
        derived = [
            Value(v.path, "derived", v.own | own)
            for v in bases
            if v.kind in ("path", "derived")
        ]
        self._set(outer, node.name, frozenset(derived))

    # Expressions.

    def _eval(self, node: ast.expr) -> Values:
        """Returns the values of an expression, and records the uses in it."""
        method = _EXPRESSIONS.get(type(node))
        if method is not None:
            values: Values = getattr(self, method)(node)
            return values
        self._look_into(node)
        return NONE

    def _name(self, node: ast.Name) -> Values:
        if not isinstance(node.ctx, ast.Load):
            return NONE
        values = self._place.scope.find(node.id)
        if values is None:
            is_ours = self._has_star and not hasattr(builtins, node.id)
            if is_ours and listing.kind(node.id):
                told = "It may come from the star import."
                self._uses.append(Use(node, node.id, node.id, "unknown", told=told))
            return NONE
        self._record_paths(node, values, node.id, None)
        return values

    def _record_paths(
        self, node: ast.AST, values: Values, written: str, call: CallArguments | None
    ) -> None:
        paths = {value.path for value in values if value.kind == "path"}
        for path in sorted(paths):
            if path:
                self._uses.append(Use(node, written, path, "path", call))
            else:
                told = "The module itself is passed on; what is done with it is open."
                self._uses.append(Use(node, written, "", "unknown", told=told))

    def _attribute(
        self, node: ast.Attribute, call: CallArguments | None = None
    ) -> Values:
        """Reads ``a.b.c`` as a whole: the path that it stands for is one use."""
        chain = [node]
        while isinstance(chain[-1].value, ast.Attribute):
            chain.append(chain[-1].value)
        root = chain[-1].value
        links = chain[::-1]
        if isinstance(root, ast.Name):
            values, written = self._root(root, links), root.id
        else:
            values, written = self._eval(root), "(...)"
        if self._is_self(root) and links[0].attr in self._self_scope().names:
            values = self._self_scope().names[links[0].attr]
            written = f"{written}.{links.pop(0).attr}"
            if not links:
                self._record_paths(node, values, written, call)
                return values
        for link in links:
            written = f"{written}.{link.attr}"
            values = self._step(link, values, written, call if link is node else None)
        self._record_paths(node, values, written, call)
        return values

    def _self_scope(self) -> Scope:
        assert self._place.me is not None
        return self._place.me

    def _root(self, root: ast.Name, links: list[ast.Attribute]) -> Values:
        if self._is_self(root):
            return self._self_scope().names.get("self", NONE)
        found = self._place.scope.find(root.id)
        if found is None:
            self._name(root)
        return found or NONE

    def _step(
        self,
        link: ast.Attribute,
        values: Values,
        written: str,
        call: CallArguments | None,
    ) -> Values:
        """Returns the values of one more attribute, and records members of objects."""
        made = set()
        for value in values:
            path = f"{value.path}.{link.attr}".lstrip(".")
            if value.kind == "path":
                made.add(Value(path))
            elif value.kind == "object" and link.attr not in value.own:
                self._uses.append(Use(link, written, path, "object", call))
                made.add(Value(path, "method"))
                of = None if call else self._typing(path, False)
                if of is not None:
                    made.add(Value(of, "object"))
        return frozenset(made)

    def _call(self, node: ast.Call) -> Values:
        call = use.arguments(node)
        asked = self._getattr_values(node)
        if asked is not None:
            return asked
        if isinstance(node.func, ast.Attribute):
            values = self._attribute(node.func, call)
        elif isinstance(node.func, ast.Name):
            values = self._place.scope.find(node.func.id) or NONE
            self._record_paths(node.func, values, node.func.id, call)
            if self._place.scope.find(node.func.id) is None:
                self._name(node.func)
        else:
            values = self._eval(node.func)
        given = [self._eval(a) for a in (*node.args, *(k.value for k in node.keywords))]
        if isinstance(node.func, ast.Name) and node.func.id == "iter" and given:
            return self._results(_iterators(given[0]), call)
        return self._results(values, call)

    def _results(self, values: Values, call: CallArguments) -> Values:
        """Returns the values that a call of values gives."""
        made = set(instances(frozenset(v for v in values if v.kind == "derived")))
        for value in values:
            if value.kind == "local":
                made |= self._returned.get(value.path, NONE)
            elif value.kind in ("path", "method"):
                of = self._typing(value.path, True)
                # What a checkpoint is made of are its attributes.
                own = call.keywords if of == "train.Checkpoint" else ()
                if of is not None:
                    made.add(Value(of, "object", frozenset(own)))
        return frozenset(made)

    def _getattr_values(self, node: ast.Call) -> Values | None:
        """Returns the values of ``getattr(tf.nn, "relu")``; None for another call."""
        is_getattr = isinstance(node.func, ast.Name) and node.func.id == "getattr"
        if not is_getattr or len(node.args) < 2:
            return None
        holder, name = node.args[:2]
        values = {v for v in self._eval_quietly(holder) if v.kind in ("path", "object")}
        if not values:
            return None
        for argument in node.args[2:]:
            self._eval(argument)
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            written = f"getattr(..., {name.value!r})"
            paths = frozenset(
                Value(f"{v.path}.{name.value}".lstrip(".")) for v in values
            )
            self._record_paths(node, paths, written, None)
            return paths
        self._eval(name)
        told = "The name is made when the program runs."
        path = min(v.path for v in values)
        self._uses.append(Use(node, "getattr(...)", path, "unknown", told=told))
        return NONE

    def _operation(self, node: ast.expr) -> Values:
        """Returns an array if one of the operands is one."""
        found: Values = NONE
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                found |= self._eval(child)
        arrays = {Value("Tensor", "object"), Value("Variable", "object")}
        return frozenset({Value("Tensor", "object")}) if found & arrays else NONE

    def _compare(self, node: ast.Compare) -> Values:
        found = self._operation(node)
        identity = ast.Is | ast.IsNot | ast.In | ast.NotIn
        return NONE if any(isinstance(op, identity) for op in node.ops) else found

    def _choice(self, node: ast.IfExp) -> Values:
        self._tell_control("if", node, node.test)
        self._eval(node.test)
        return self._eval(node.body) | self._eval(node.orelse)

    def _named_expression(self, node: ast.NamedExpr) -> Values:
        values = self._eval(node.value)
        self._bind(node.target, values)
        return values

    def _lambda(self, node: ast.Lambda) -> Values:
        outer = self._place.scope
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self._eval(default)
        self._place.scope = Scope(outer)
        for argument in all_arguments(node.args):
            self._place.scope.names[argument.arg] = NONE
        self._eval(node.body)
        self._place.scope = outer
        return NONE

    def _comprehension(self, node: ast.expr) -> Values:
        outer = self._place.scope
        self._place.scope = Scope(outer)
        for made in getattr(node, "generators", ()):
            self._eval(made.iter)
            self._bind(made.target, NONE)
            for test in made.ifs:
                self._eval(test)
        for part in ("key", "value", "elt"):
            if hasattr(node, part):
                self._eval(getattr(node, part))
        self._place.scope = outer
        return NONE


# The methods that read expressions of a kind.
_EXPRESSIONS: dict[type[ast.AST], str] = {
    ast.Attribute: "_attribute",
    ast.BinOp: "_operation",
    ast.BoolOp: "_operation",
    ast.Call: "_call",
    ast.Compare: "_compare",
    ast.DictComp: "_comprehension",
    ast.GeneratorExp: "_comprehension",
    ast.IfExp: "_choice",
    ast.Lambda: "_lambda",
    ast.ListComp: "_comprehension",
    ast.Name: "_name",
    ast.NamedExpr: "_named_expression",
    ast.SetComp: "_comprehension",
    ast.Subscript: "_operation",
    ast.UnaryOp: "_operation",
}


def _key(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Returns the key of a function of the program."""
    return f"{function.name} {id(function)}"


def _iterators(values: Values) -> Values:
    """Returns the methods that `iter` calls."""
    objects = (value for value in values if value.kind == "object")
    return frozenset(Value(f"{v.path}.__iter__", "method") for v in objects)


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 1), getattr(node, "end_col_offset", 0)
