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
from unisono._src.cli.check.scopes import (
    NONE,
    CallArguments,
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


@final
class ExpressionReader:
    """Tells the values of expressions, and collects the uses of TensorFlow in them.

    An expression is read by the method that `_METHODS` names for its class in `ast`.

    Args:
        typing: gives the class of what a call or an attribute gives.
        returned: by function of the program, the values that it returns.
        place: where the reading begins.

    Attributes:
        place: where the expressions stand; whoever reads statements moves it.
        uses: what has been found.
        has_star: whether the program has a star import of TensorFlow, so that a name
            that nothing binds may be TensorFlow's.
    """

    def __init__(
        self, typing: Typing, returned: dict[str, Values], place: ReadingPlace
    ) -> None:
        self._typing, self._returned = typing, returned
        self.place = place
        self.uses: list[Use] = []
        self.has_star = False

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
            assert self.place.me is not None
            self.set_name(self.place.me, target.attr, values)
        else:
            self.eval(target)

    def set_name(self, scope: Scope, name: str, values: Values) -> None:
        """Gives a name its values; in a branch it may also keep those it had."""
        # The branch may not be taken.
        if self.place.branches:
            values = values | scope.names.get(name, NONE)
        scope.names[name] = values

    def _is_self(self, node: ast.expr) -> bool:
        is_self = isinstance(node, ast.Name) and node.id == "self"
        return is_self and self.place.me is not None

    def tell_control(self, form: str, node: ast.AST, value: ast.expr) -> None:
        """Records an `if`, `while`, `for` or `assert` on an array in a function.

        Args:
            form: the word of these.
            node: the statement or expression.
            value: what it asks or goes through. The uses in it are recorded when the
                statement is read.
        """
        tensor = Value("Tensor", "object")
        if self.place.compiled and tensor in self.eval_quietly(value):
            told = rows.TAKES_ELEMENTS if _takes_elements(node) else ""
            self.uses.append(Use(node, form, form, "control", told=told))

    def _name(self, node: ast.Name) -> Values:
        if not isinstance(node.ctx, ast.Load):
            return NONE
        values = self.place.scope.find(node.id)
        if values is None:
            is_ours = self.has_star and not hasattr(builtins, node.id)
            if is_ours and listing.kind(node.id):
                told = "It may come from the star import."
                self.uses.append(Use(node, node.id, node.id, "unknown", told=told))
            return NONE
        self._record_paths(node, values, node.id, None)
        return values

    def _record_paths(
        self, node: ast.AST, values: Values, written: str, call: CallArguments | None
    ) -> None:
        paths = {value.path for value in values if value.kind == "path"}
        for path in sorted(paths):
            if path:
                self.uses.append(Use(node, written, path, "path", call))
            else:
                told = "The module itself is passed on; what is done with it is open."
                self.uses.append(Use(node, written, "", "unknown", told=told))

    def _attribute(
        self, node: ast.Attribute, call: CallArguments | None = None
    ) -> Values:
        """Reads ``a.b.c`` as a whole: the path that it stands for is one use."""
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
            if not links:
                self._record_paths(node, values, written, call)
                return values
        for link in links:
            written = f"{written}.{link.attr}"
            # Only the last link is called.
            values = self._step(link, values, written, call if link is node else None)
        self._record_paths(node, values, written, call)
        return values

    def _self_scope(self) -> Scope:
        assert self.place.me is not None
        return self.place.me

    def _root(self, root: ast.Name, links: list[ast.Attribute]) -> Values:
        if self._is_self(root):
            return self._self_scope().names.get("self", NONE)
        found = self.place.scope.find(root.id)
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
                self.uses.append(Use(link, written, path, "object", call))
                made.add(Value(path, "method"))
                # A property gives an object; what a call gives is told by `_results`.
                of = None if call else self._typing(path, False)
                if of is not None:
                    made.add(Value(of, "object"))
        return frozenset(made)

    def _call(self, node: ast.Call) -> Values:
        call = scopes.arguments(node)
        asked = self._getattr_values(node)
        if asked is not None:
            return asked
        if isinstance(node.func, ast.Attribute):
            values = self._attribute(node.func, call)
        elif isinstance(node.func, ast.Name):
            values = self.place.scope.find(node.func.id) or NONE
            self._record_paths(node.func, values, node.func.id, call)
            if self.place.scope.find(node.func.id) is None:
                self._name(node.func)
        else:
            values = self.eval(node.func)
        # Arguments are read after the function, as Python evaluates them.
        given = [self.eval(a) for a in (*node.args, *(k.value for k in node.keywords))]
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
        values = {v for v in self.eval_quietly(holder) if v.kind in ("path", "object")}
        if not values:
            return None
        for argument in node.args[2:]:
            self.eval(argument)
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
        self.uses.append(Use(node, "getattr(...)", path, "unknown", told=told))
        return NONE

    def _operation(self, node: ast.expr) -> Values:
        """Returns an array if one of the operands is one."""
        found: Values = NONE
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                found |= self.eval(child)
        arrays = {Value("Tensor", "object"), Value("Variable", "object")}
        return frozenset({Value("Tensor", "object")}) if found & arrays else NONE

    def _compare(self, node: ast.Compare) -> Values:
        found = self._operation(node)
        # These give a Python bool, also of arrays.
        identity = ast.Is | ast.IsNot | ast.In | ast.NotIn
        return NONE if any(isinstance(op, identity) for op in node.ops) else found

    def _choice(self, node: ast.IfExp) -> Values:
        self.tell_control("if", node, node.test)
        self.eval(node.test)
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
            self.eval(made.iter)
            self.bind(made.target, NONE)
            for test in made.ifs:
                self.eval(test)
        for part in ("key", "value", "elt"):
            if hasattr(node, part):
                self.eval(getattr(node, part))
        self.place.scope = outer
        return NONE


# The methods that read expressions of a kind.
_METHODS: dict[type[ast.AST], str] = {
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


def _takes_elements(node: ast.AST) -> bool:
    """Returns whether a statement asks an iterator for its next element."""
    called = (n.func for n in ast.walk(node) if isinstance(n, ast.Call))
    asks = ("next", "get_next", "get_next_as_optional")
    return any(getattr(f, "id", getattr(f, "attr", "")) in asks for f in called)


def _iterators(values: Values) -> Values:
    """Returns the methods that `iter` calls."""
    objects = (value for value in values if value.kind == "object")
    return frozenset(Value(f"{v.path}.__iter__", "method") for v in objects)
