"""The values that a program's expressions may have, and the uses of TensorFlow there.

A name stands for a set of values: what TensorFlow has at a path, an object of one of
its classes, or a method of such an object. Nothing is run, and where the tree does not
tell what a name is, the name stands for nothing.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import final

from unisono._src.cli.check import rows, scopes
from unisono._src.cli.check.program_text import ModuleFinder
from unisono._src.cli.check.scopes import (
    NONE,
    OPEN,
    TENSOR,
    CallArguments,
    ProgramFacts,
    ReadingPlace,
    Scope,
    Use,
    Value,
    Values,
    all_arguments,
    instances,
)
from unisono._src.foundation.tensorflow_names import listing

# Returns the path of the class of what a path gives, called (True) or not, or None.
Typing = Callable[[str, bool], str | None]

# Names by which programs call TensorFlow, where nothing tells what they are.
TENSORFLOW_NAMES = {"tf": "", "tensorflow": "", "tf2": "", "tf1": "compat.v1"}
_MOST_VALUES = 30
# A range whose end is an array.
OF_ARRAY = Value("range", "of array")
_SHAPE = Value("Tensor.shape", "method")
# Methods of datasets that call a function, in Python.
_DATASET_METHODS = frozenset(
    ("map", "filter", "flat_map", "interleave", "scan", "from_generator", "take_while")
)
# Functions that call one on the host, also from a compiled function.
_HOST_CALLS = frozenset(
    ("debug_callback", "io_callback", "numpy_function", "pure_callback", "py_function")
)
_COMPILES = frozenset((Value("function"), Value("keras.layers.Lambda")))
# Functions that a module may be given to, and that do nothing with it.
_ASKS = frozenset(("bool", "hasattr", "id", "isinstance", "print", "repr", "type"))


@final
class ExpressionReader:
    """Tells the values of expressions, and collects the uses of TensorFlow in them.

    An expression is read by the method that `_METHODS` names for its class in `ast`.

    Args:
        typing: gives the class of what a call or an attribute gives.
        facts: what is known about the program.
        place: where the reading begins.
        finder: finds the program's own modules.

    Attributes:
        place: where the expressions stand; whoever reads statements moves it.
        uses: what has been found.
        stars: the modules of TensorFlow that the program has star imports of, so that
            a name that nothing binds may be one of theirs.
        foreign_stars: the star imports of modules that cannot be read.
    """

    def __init__(
        self,
        typing: Typing,
        facts: ProgramFacts,
        place: ReadingPlace,
        finder: ModuleFinder,
    ) -> None:
        self._typing, self._facts, self._finder = typing, facts, finder
        self.place = place
        self.uses: list[Use] = []
        self.stars: list[str] = []
        self.foreign_stars: list[ast.alias] = []

    def eval(self, node: ast.expr) -> Values:
        """Returns the values of an expression, and records the uses in it."""
        method = _METHODS.get(type(node))
        if method is not None:
            values: Values = getattr(self, method)(node)
            return values
        self._look_into(node)
        return NONE

    def _look_into(self, node: ast.AST) -> None:
        """Reads the expressions below a node."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.eval(child)
            else:
                self._look_into(child)

    def eval_quietly(self, node: ast.expr) -> Values:
        """Returns the values of an expression, and records no uses."""
        recorded = len(self.uses)
        values = self.eval(node)
        del self.uses[recorded:]
        return values

    def bind(self, target: ast.expr, values: Values) -> None:
        """Gives the target of an assignment its values."""
        if isinstance(target, ast.Name):
            self.set_name(self.place.scope, target.id, values)
        elif isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self.bind(each, NONE)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, NONE)
        elif isinstance(target, ast.Attribute) and self._is_self(target.value):
            self._facts.own.add(target.attr)
            self.set_name(self._self_scope(), target.attr, values)
        else:
            self.eval(target)

    def set_name(self, scope: Scope, name: str, values: Values) -> None:
        """Gives a name its values; in a branch it may also keep those it had."""
        before = scope.names.get(name, NONE)
        # The branch may not be taken. No program chooses between more values, but a
        # long text that was put together may have them.
        if self.place.branches and len(before) < _MOST_VALUES:
            values = values | before
        scope.names[name] = values

    def _is_self(self, node: ast.expr) -> bool:
        is_self = isinstance(node, ast.Name) and node.id == "self"
        return is_self and self.place.me is not None

    def note(
        self,
        node: ast.AST,
        written: str,
        path: str,
        kind: str,
        call: CallArguments | None = None,
        told: str = "",
        may_be_own: bool = False,
    ) -> None:
        """Records a use."""
        place = "hosted" if self.place.hosted else ""
        where = "compiled" if self.place.compiled else place
        self.uses.append(Use(node, written, path, kind, call, told, where, may_be_own))

    def tell_control(self, form: str, node: ast.AST, values: Values) -> None:
        """Records an `if`, `while`, `for` or `assert` on an array in a function.

        Args:
            form: the word of these.
            node: the statement or expression.
            values: what it asks or goes through.
        """
        if self.place.compiled and TENSOR in values:
            path = form + self.place.reach
            if self.place.tapes and not _is_bounded(node, values):
                path = "loop in a tape"
            self.note(node, form, path, "form")

    def _name(self, node: ast.Name) -> Values:
        if not isinstance(node.ctx, ast.Load):
            return NONE
        values = self.place.scope.find(node.id)
        if values is None:
            return self._unbound(node)
        self._record_paths(node, values, node.id, None)
        return values

    def _unbound(self, node: ast.Name) -> Values:
        """Returns the values of a name that may come from a star import."""
        if hasattr(builtins, node.id):
            return NONE
        for star in self.stars:
            path = f"{star}.{node.id}".lstrip(".")
            # Keras' names are not listed; its source tells its classes.
            is_listed = listing.kind(path) not in (None, "name")
            if is_listed or self._typing(path, True) is not None:
                told = "It may come from the star import."
                self.note(node, node.id, path, "unknown", told=told)
                return NONE
        if node.id not in TENSORFLOW_NAMES or not self.foreign_stars:
            return NONE
        for alias in self.foreign_stars:
            told = f"`{node.id}` may come from it. {rows.TAKEN_FOR_TENSORFLOW}"
            self.note(alias, "import *", "", "unknown", told=told)
        scope = self.place.scope
        while scope.above is not None:
            scope = scope.above
        values = frozenset({Value(TENSORFLOW_NAMES[node.id])})
        scope.names[node.id] = values
        return values

    def _record_paths(
        self, node: ast.AST, values: Values, written: str, call: CallArguments | None
    ) -> None:
        paths = {value.path for value in values if value.kind == "path"}
        for path in sorted(paths - {""}):
            self.note(node, written, path, "path", call)

    def _pass_on(self, node: ast.expr) -> Values:
        """Reads an expression whose value goes where it cannot be followed."""
        values = self.eval(node)
        if Value("") in values:
            told = "The module itself is passed on; what is done with it is open."
            self.note(node, ast.unparse(node), "", "unknown", told=told)
        return values

    def _container(self, node: ast.expr) -> Values:
        found: Values = NONE
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                found |= _functions(self._pass_on(child))
        return found

    def _attribute(
        self, node: ast.Attribute, call: CallArguments | None = None
    ) -> Values:
        """Reads ``a.b.c`` as a whole: the path that it stands for is one use."""
        if isinstance(node.ctx, ast.Store):
            self._facts.own.add(node.attr)
        # The links from the end to the root; the root is no attribute.
        chain = [node]
        while isinstance(chain[-1].value, ast.Attribute):
            chain.append(chain[-1].value)
        root = chain[-1].value
        links = chain[::-1]
        if isinstance(root, ast.Name):
            values, written = self._root(root, links), root.id
        else:
            values, written = self.eval(root), "(...)"
        # An attribute that the program has set on `self` stands for what was assigned.
        if self._is_self(root) and links[0].attr in self._self_scope().names:
            values = self._self_scope().names[links[0].attr]
            written = f"{written}.{links.pop(0).attr}"
        for link in links:
            if _is_of_every_object(link.attr, values):
                break  # Such as `__name__`: what has it is what is used.
            written = f"{written}.{link.attr}"
            # Only the last link is called.
            values = self._step(link, values, written, call if link is node else None)
        else:
            self._record_paths(node, values, written, call)
            return values
        self._record_paths(link.value, values, written, None)
        return NONE

    def _self_scope(self) -> Scope:
        assert self.place.me is not None
        return self.place.me

    def _root(self, root: ast.Name, links: list[ast.Attribute]) -> Values:
        if self._is_self(root):
            return self._self_scope().names.get("self", NONE)
        found = self.place.scope.find(root.id)
        return self._unbound(root) if found is None else found

    def _step(
        self,
        link: ast.Attribute,
        values: Values,
        written: str,
        call: CallArguments | None,
    ) -> Values:
        """Returns the values of one more attribute, and records members of objects."""
        made: set[Value] = set()
        for value in values:
            path = f"{value.path}.{link.attr}".lstrip(".")
            if value.kind == "path":
                made.add(Value(path))
            elif value.kind == "module":
                made |= self.module_name(value.path, link.attr) or NONE
            elif value.kind == "output" and link.attr == "shape":
                made.add(_SHAPE)
            elif value.kind == "method" and value.path in rows.NUMPY_MEMBERS:
                self.note(link, written, path, "object", call)
            elif value.kind == "object" and link.attr not in value.own:
                own = OPEN in value.own or link.attr in self._facts.own
                self.note(link, written, path, "object", call, may_be_own=own)
                made.add(Value(path, "method"))
                # A property gives an object; what a call gives is told by `_results`.
                of = None if call else self._typing(path, False)
                if of is not None:
                    made.add(Value(of, "object"))
        return frozenset(made)

    def module_name(self, file: str, name: str) -> Values | None:
        """Returns the values of a name of the program's module; None if it has none."""
        scope = self._facts.modules.get(file)
        if scope is not None and name in scope.names:
            return scope.names[name]
        below = self._finder.find(file, name, 1)
        return None if below is None else frozenset({Value(below, "module")})

    def _call(self, node: ast.Call) -> Values:
        call = scopes.arguments(node)
        asked = self._getattr_values(node, call)
        if asked is not None:
            return asked
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if isinstance(node.func, ast.Attribute):
            values = self._attribute(node.func, call)
        elif isinstance(node.func, ast.Name):
            found = self.place.scope.find(node.func.id)
            values = self._unbound(node.func) if found is None else found
            self._record_paths(node.func, values, node.func.id, call)
        else:
            values = self.eval(node.func)
        # Arguments are read after the function, as Python evaluates them.
        given = [self._argument(a, name) for a in node.args]
        given += [self._argument(k.value, name) for k in node.keywords]
        self._follow(values, given, name)
        if Value("range") in values and any(TENSOR in each for each in given):
            return frozenset({TENSOR, OF_ARRAY})
        if name == "iter" and isinstance(node.func, ast.Name) and given:
            return self._results(_iterators(given[0]), call)
        return self._results(values, call)

    def _argument(self, node: ast.expr, called: str) -> Values:
        """Reads an argument of what is called so."""
        if called in _ASKS:
            return self.eval(node)
        if not isinstance(node, ast.Lambda) or called not in _DATASET_METHODS:
            return self._pass_on(node)
        before, self.place.hosted = self.place.hosted, True
        values = self.eval(node)
        self.place.hosted = before
        return values

    def _follow(self, values: Values, given: list[Values], name: str) -> None:
        """Notes which of the program's functions are called, and by whom."""
        called = {value.path for value in values if value.kind == "local"}
        passed = {v.path for each in given for v in each if v.kind == "local"}
        # Keras compiles what it is given: losses, metrics, and layers of a function.
        if name == "compile" or not _COMPILES.isdisjoint(values):
            self._facts.compiled |= passed
        if name in _DATASET_METHODS:
            self._facts.hosted |= passed
        elif name not in _HOST_CALLS:
            called |= passed
        self._facts.calls.setdefault(self.place.function, set()).update(called)

    def _results(self, values: Values, call: CallArguments) -> Values:
        """Returns the values that a call of values gives."""
        made = set(instances(frozenset(v for v in values if v.kind == "derived")))
        for value in values:
            if value.kind == "local":
                made |= self._facts.returned.get(value.path, NONE)
            elif value.path == "keras.Input" or _is_layer(value):
                made.add(Value("", "output"))
            elif value.kind in ("path", "method"):
                if self.place.compiled and value.path in rows.KNOWN_SIZES:
                    continue  # It gives NumPy's numbers there.
                of = self._typing(value.path, True)
                # What a checkpoint is made of are its attributes.
                own = call.keywords if of == "train.Checkpoint" else ()
                if of is not None:
                    made.add(Value(of, "object", frozenset(own)))
                elif value.path.startswith("keras.layers."):  # Such as `add`.
                    made.add(Value("", "output"))
        return frozenset(made)

    def _getattr_values(self, node: ast.Call, call: CallArguments) -> Values | None:
        """Returns the values of ``getattr(tf.nn, "relu")``; None for another call."""
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        package, _, path = call.text("name", 0).removeprefix("'").partition(".")
        if called in ("import_module", "__import__") and package in rows.PACKAGES:
            return frozenset({Value(path)})
        is_getattr = isinstance(node.func, ast.Name) and called == "getattr"
        if not is_getattr or len(node.args) < 2:
            return None
        holder, name = node.args[:2]
        recorded = len(self.uses)
        values = {v for v in self.eval(holder) if v.kind in ("path", "object")}
        if values:
            del self.uses[recorded:]  # What is got from it is the use.
        for argument in node.args[2:]:
            self.eval(argument)
        if not values:
            self.eval(name)
            return NONE
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            written = f"getattr(..., {name.value!r})"
            paths = frozenset(
                Value(f"{v.path}.{name.value}".lstrip(".")) for v in values
            )
            self._record_paths(node, paths, written, None)
            return paths
        self.eval(name)
        told = "The name is made when the program runs."
        path = min(v.path for v in values)
        self.note(node, "getattr(...)", path, "unknown", told=told)
        return NONE

    def _operation(self, node: ast.expr) -> Values:
        """Returns an array if one of the operands is one."""
        found: Values = NONE
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                found |= self.eval(child)
        return _array_of(found)

    def _binary(self, node: ast.BinOp) -> Values:
        left, right = self.eval(node.left), self.eval(node.right)
        of_list = isinstance(node.right, ast.List) and _SHAPE in left
        if of_list or (isinstance(node.left, ast.List) and _SHAPE in right):
            self.note(node, "shape and list", "shape and list", "form")
        return _array_of(left | right)

    def _subscript(self, node: ast.Subscript) -> Values:
        values = self.eval(node.value)
        found = values | self.eval(node.slice)
        # A part of a shape is a tuple, too.
        is_part = _SHAPE in values and isinstance(node.slice, ast.Slice)
        return frozenset({_SHAPE}) if is_part else _array_of(found)

    def _compare(self, node: ast.Compare) -> Values:
        found = self._operation(node)
        # These give a Python bool, also of arrays.
        identity = ast.Is | ast.IsNot | ast.In | ast.NotIn
        return NONE if any(isinstance(op, identity) for op in node.ops) else found

    def _choice(self, node: ast.IfExp) -> Values:
        self.tell_control("if", node, self.eval(node.test))
        return self.eval(node.body) | self.eval(node.orelse)

    def _named_expression(self, node: ast.NamedExpr) -> Values:
        values = self.eval(node.value)
        self.bind(node.target, values)
        return values

    def _lambda(self, node: ast.Lambda) -> Values:
        outer = self.place.scope
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.eval(default)
        self.place.scope = Scope(outer)
        for argument in all_arguments(node.args):
            self.place.scope.names[argument.arg] = NONE
        self.eval(node.body)
        self.place.scope = outer
        return NONE

    def _comprehension(self, node: ast.expr) -> Values:
        outer = self.place.scope
        self.place.scope = Scope(outer)
        # The sources come first: they bind the names that the element uses.
        for made in getattr(node, "generators", ()):
            self.bind(made.target, elements(self.eval(made.iter)))
            for test in made.ifs:
                self.eval(test)
        found: Values = NONE
        for part in ("key", "value", "elt"):
            if hasattr(node, part):
                found |= _functions(self.eval(getattr(node, part)))
        self.place.scope = outer
        return found


# The methods that read expressions of a kind.
_METHODS: dict[type[ast.AST], str] = {
    ast.Attribute: "_attribute",
    ast.BinOp: "_binary",
    ast.BoolOp: "_operation",
    ast.Call: "_call",
    ast.Compare: "_compare",
    ast.Dict: "_container",
    ast.DictComp: "_comprehension",
    ast.GeneratorExp: "_comprehension",
    ast.IfExp: "_choice",
    ast.Lambda: "_lambda",
    ast.List: "_container",
    ast.ListComp: "_comprehension",
    ast.Name: "_name",
    ast.NamedExpr: "_named_expression",
    ast.SetComp: "_comprehension",
    ast.Subscript: "_subscript",
    ast.Tuple: "_container",
    ast.UnaryOp: "_operation",
}


def _is_bounded(node: ast.AST, values: Values) -> bool:
    """Returns whether the number of a loop's turns has a limit, or it is no loop."""
    if isinstance(node, ast.For) and OF_ARRAY not in values:
        return True
    if not isinstance(node, ast.For | ast.While):
        return True
    first = getattr(node.body[0], "value", None)
    name = getattr(getattr(first, "func", None), "attr", "")
    return name == "set_loop_options"


def elements(values: Values) -> Values:
    """Returns the values that a loop over values gives."""
    return frozenset({TENSOR}) if TENSOR in values else NONE


def _is_layer(value: Value) -> bool:
    """Returns whether a value is a layer or model, which can be called."""
    models = ("keras.Model", "keras.Sequential", "keras.models.")
    return value.kind == "object" and value.path.startswith(("keras.layers.", *models))


def _functions(values: Values) -> Values:
    """Returns the program's functions, which whoever gets a list of them may call."""
    return frozenset(value for value in values if value.kind == "local")


def _array_of(operands: Values) -> Values:
    """Returns an array if one of the operands is one."""
    is_array = TENSOR in operands or Value("Variable", "object") in operands
    return frozenset({TENSOR}) if is_array else NONE


def _is_of_every_object(name: str, values: Values) -> bool:
    """Returns whether an attribute is one of Python's, and not one of TensorFlow's."""
    if not (name.startswith("__") and name.endswith("__")):
        return False
    paths = [f"{v.path}.{name}".lstrip(".") for v in values if v.kind == "path"]
    return not any(p in rows.DIFFERENCES or listing.kind(p) for p in paths)


def _iterators(values: Values) -> Values:
    """Returns the methods that `iter` calls."""
    objects = (value for value in values if value.kind == "object")
    return frozenset(Value(f"{v.path}.__iter__", "method") for v in objects)
