"""Rewrites the statements of a function as calls that look at values first.

Each `if`, `while`, `for`, `and`, `or`, `not`, conditional expression, `assert` and call
becomes a call of `runtime`, under the name ``ag__``. Blocks become functions inside the
function, which share its names; every node keeps the user's line.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, final

from unisono._src.autograph import assigned_names, jumps, templates

# Calls that look at the frame that they are made in stay as they are.
_FRAME_CALLS = {"breakpoint", "dir", "eval", "exec", "globals", "locals", "vars"}
_OPTIONS = "set_loop_options"


def rewrite(node: ast.FunctionDef, owner: str, first: str | None) -> None:
    """Rewrites a function in place.

    Args:
        node: the function.
        owner: the class that it is a method of, or "".
        first: the name of the method's first argument, for `super()`.

    Raises:
        UnsupportedSyntax: the function has statements that are not converted.
    """
    for one in assigned_names.walk_block(node.body):
        if isinstance(one, (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor)):
            raise jumps.UnsupportedSyntax("a generator or coroutine")
    jumps.lower(node)
    _Rewriting(node, owner, first).run()


def as_function(node: ast.Lambda, name: str) -> ast.FunctionDef:
    """Returns a lambda as a function with a statement."""
    body: list[ast.stmt] = [templates.place(ast.Return(node.body), node.body)]
    made = templates.statements(f"def {name}(): pass", node)[0]
    assert isinstance(made, ast.FunctionDef)
    made.args, made.body = node.args, body
    return made


@final
class _Rewriting(ast.NodeTransformer):
    """Rewrites one function, and the functions inside of it by others of its kind."""

    def __init__(self, node: ast.FunctionDef, owner: str, first: str | None) -> None:
        self._node, self._owner, self._first = node, owner, first
        self._lives = assigned_names.Liveness(node.body).found
        self._captured = assigned_names.find_captured(node.body)
        self._symbols: dict[str, str] = {}
        # Names of blocks that `nonlocal` must find in the function.
        self._shared: dict[str, None] = {}
        args = node.args
        given = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg]
        self._parameters = {a.arg for a in (*given, args.kwarg) if a is not None}
        inside = list(assigned_names.walk_block(node.body))
        self._global = {
            n for one in inside if isinstance(one, ast.Global) for n in one.names
        }
        self._outer = {
            n for one in inside if isinstance(one, ast.Nonlocal) for n in one.names
        }
        self._names = 0

    def run(self) -> None:
        """Rewrites the body, and puts before it what its blocks share."""
        node = self._node
        body = self._visit_block(node.body)
        declared = [n for n in body if isinstance(n, (ast.Global, ast.Nonlocal))]
        rest = [n for n in body if not isinstance(n, (ast.Global, ast.Nonlocal))]
        node.body = [*declared, *self._start(), *rest]

    def _start(self) -> list[ast.stmt]:
        """Returns the statements that make names known to all blocks."""
        like, made = self._node.body[0], list[ast.stmt]()
        free = self._parameters | self._global | self._outer
        for name in self._shared:
            if name not in free:
                # An assignment, by which `nonlocal` finds the name.
                made += templates.statements(f"{name} = None\ndel {name}", like)
        for text, symbol in self._symbols.items():
            put = f"{symbol}_put"
            say = self._declare([text] if text.isidentifier() else [])
            made += templates.statements(
                f"def {put}(ag__new):\n"
                f"    {say or 'pass'}\n"
                f"    {text} = ag__new\n"
                f"    if ag__new is ag__.UNDEFINED:\n        del {text}\n"
                f"{symbol} = ag__.Symbol({text!r}, lambda: {text}, {put})",
                like,
            )
        return made

    def _declare(self, names: Iterable[str]) -> str:
        """Returns the statement by which a block assigns names of the function."""
        plain = [n for n in names if n.isidentifier()]
        for name in plain:
            self._shared[name] = None
        parts = [
            ("global", [n for n in plain if n in self._global]),
            ("nonlocal", [n for n in plain if n not in self._global]),
        ]
        return "; ".join(f"{word} {', '.join(n)}" for word, n in parts if n)

    def _visit_block(self, body: Sequence[Any]) -> list[Any]:
        made: list[Any] = []
        for node in body:
            new = self.visit(node)
            made += new if isinstance(new, list) else [new]
        return made

    # Statements.

    def _make_block(
        self, name: str, body: Sequence[Any], like: object, before: Sequence[Any] = ()
    ) -> ast.stmt:
        """Returns a function of the statements of a block."""
        names = assigned_names.find_assigned([*before, *body])
        arguments = "ag__item" if before else ""
        say = self._declare(names)
        made = templates.statements(
            f"def {name}({arguments}):\n    {say or 'pass'}", like
        )
        block = made[0]
        assert isinstance(block, ast.FunctionDef)
        block.body = [*block.body, *before, *self._visit_block(body)]
        return block

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"ag__{kind}_{self._names}"

    def _state_of(self, node: Any, body: Sequence[Any]) -> tuple[str, str]:
        """Returns what a block may assign: symbols, and a letter for each.

        The letter is ``i`` for a name that a turn of the loop reads first, ``o`` for
        one that is read only afterwards, ``c`` for one that a function inside reads,
        and ``-`` for the others.
        """
        lives = self._lives[node]
        found, letters = [], ""
        for text in assigned_names.find_assigned(body):
            symbol = self._symbols.setdefault(text, f"ag__symbol_{len(self._symbols)}")
            found.append(symbol)
            if text in lives.inside or not text.isidentifier():
                letters += "i"
            elif text in lives.after:
                letters += "o"
            else:
                letters += "c" if text in self._captured else "-"
        return f"({', '.join(found)}{',' if found else ''})", letters

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        """Returns an `if` as a call."""
        symbols, letters = self._state_of(node, [*node.body, *node.orelse])
        yes, no = self._name("if_body"), self._name("else_body")
        body = self._make_block(yes, node.body, node.body[0])
        other = self._make_block(no, node.orelse, (node.orelse or node.body)[0])
        call = templates.statements(
            f"ag__.if_stmt(test, {yes}, {no}, {symbols}, {letters!r})",
            node.test,
            test=self.visit(node.test),
        )
        return [body, other, *call]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        """Returns a `while` as a call."""
        symbols, letters = self._state_of(node, node.body)
        options, node.body = self._take_options(node.body)
        name, test = self._name("loop_body"), self._name("loop_test")
        body = self._make_block(name, node.body, node.body[0])
        more = templates.statements(
            f"def {test}(): return value", node.test, value=self.visit(node.test)
        )
        call = templates.statements(
            f"ag__.while_stmt({test}, {name}, {symbols}, {letters!r}, options)",
            node.test,
            options=options,
        )
        return [body, *more, *call]

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        """Returns a `for` as a call."""
        symbols, letters = self._state_of(node, [node.target, *node.body])
        options, node.body = self._take_options(node.body)
        name, test = self._name("loop_body"), self._name("loop_test")
        item = templates.expression("ag__item", node.target)
        take = templates.place(ast.Assign([node.target], item), node.target)
        body = self._make_block(name, node.body, node.body[0], [take])
        more: list[ast.stmt] = []
        if getattr(node, "more", None) is not None:
            value = self.visit(node.more)  # type: ignore[attr-defined]
            text = f"def {test}(): return value"
            more = templates.statements(text, node, value=value)
        call = templates.statements(
            f"ag__.for_stmt(items, {test if more else None}, {name}, {symbols}, "
            f"{letters!r}, options)",
            node.iter,
            items=self._iterated(node.iter),
            options=options,
        )
        return [body, *more, *call]

    def _iterated(self, node: ast.expr) -> ast.expr:
        """Returns what a `for` takes its items from; a `range` stays one."""
        made = self.visit(node)
        if isinstance(node, ast.Call) and isinstance(made.func, ast.Attribute):
            made.func.attr = "iterate" if made.func.attr == "call" else made.func.attr
        found: ast.expr = made
        return found

    def _take_options(self, body: list[Any]) -> tuple[ast.expr, list[Any]]:
        """Returns the options that the first statement of a loop sets, and the rest."""
        first = body[0]
        call = first.value if isinstance(first, ast.Expr) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(_OPTIONS):
            rest = body[1:] or templates.statements("pass", first)
            call.func = templates.expression("dict", call)
            return templates.expression("lambda: value", call, value=call), rest
        return templates.expression("dict", first), body

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Returns an assignment without its type, which a shared name cannot have."""
        if node.value is None:
            return templates.place(ast.Pass(), node)
        made = ast.Assign([self.visit(node.target)], self.visit(node.value))
        return templates.place(made, node)

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        """Returns an `assert` as a call."""
        message = node.msg or templates.expression(repr(ast.unparse(node.test)), node)
        if _has_walrus(node):
            return [node]
        return templates.statements(
            "ag__.assert_stmt(lambda: test, lambda: message)",
            node,
            test=self.visit(node.test),
            message=self.visit(message),
        )

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Rewrites a function inside the function."""
        node.decorator_list = [self.visit(d) for d in node.decorator_list]
        told = " ".join(map(ast.unparse, node.decorator_list))
        self._visit_defaults(node.args)
        if "do_not_convert" not in told and "autograph=False" not in told:
            with contextlib.suppress(jumps.UnsupportedSyntax):
                rewrite(node, self._owner, self._first)
        return node

    def _visit_defaults(self, args: ast.arguments) -> None:
        args.defaults = [self.visit(d) for d in args.defaults]
        args.kw_defaults = [d and self.visit(d) for d in args.kw_defaults]

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """Rewrites the expression of a lambda."""
        self._visit_defaults(node.args)
        node.body = self.visit(node.body)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Leaves a class inside the function as it is."""
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """Leaves a coroutine inside the function as it is."""
        return node

    # Expressions.

    def _visit_lazily(self, node: Any) -> ast.expr:
        return templates.expression("lambda: value", node, value=self.visit(node))

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        """Returns ``a and b`` as a call."""
        if _has_walrus(node):
            return self.generic_visit(node)
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        made: Any = templates.expression(f"ag__.{name}()", node)
        made.args = [self._visit_lazily(value) for value in node.values]
        return made

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Returns ``not a`` as a call."""
        if not isinstance(node.op, ast.Not):
            return self.generic_visit(node)
        value = self.visit(node.operand)
        return templates.expression("ag__.not_(value)", node, value=value)

    def visit_Compare(self, node: ast.Compare) -> Any:
        """Returns ``a < b < c`` as a call."""
        inner = node.comparators[:-1]
        if len(node.ops) == 1 or _has_walrus(node):
            return self.generic_visit(node)
        if not all(isinstance(n, (ast.Name, ast.Constant)) for n in inner):
            return self._compare_once(node)
        sides = [node.left, *node.comparators]
        pairs = zip(sides, node.ops, sides[1:], strict=False)
        values: list[ast.expr] = [ast.Compare(a, [op], [b]) for a, op, b in pairs]
        return self.visit(templates.place(ast.BoolOp(ast.And(), values), node))

    def _compare_once(self, node: ast.Compare) -> ast.AST:
        """Returns ``a < f(x) < c`` as a call that evaluates ``f(x)`` once."""
        if len(node.ops) != 2:
            return self.generic_visit(node)
        middle, last = node.comparators
        low, high = (templates.expression(f"ag__{n}", node) for n in ("low", "high"))
        first: Any = ast.Compare(low, [node.ops[0]], [high])
        second: Any = ast.Compare(high, [node.ops[1]], [self.visit(last)])
        return templates.expression(
            "(lambda ag__low, ag__high: ag__.and_(lambda: one, lambda: two))(a, b)",
            node,
            one=templates.place(first, node),
            two=templates.place(second, node),
            a=self.visit(node.left),
            b=self.visit(middle),
        )

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        """Returns ``a if test else b`` as a call."""
        if _has_walrus(node):
            return self.generic_visit(node)
        made: Any = templates.expression("ag__.if_exp()", node)
        parts = map(self._visit_lazily, (node.body, node.orelse))
        made.args = [self.visit(node.test), *parts]
        return made

    def visit_Call(self, node: ast.Call) -> Any:
        """Returns a call as one that converts the function first."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "super" and not node.args and self._first is not None:
            text = f"super(__class__, {self._first})"
            return templates.expression(text, node)
        if name in _FRAME_CALLS or name == "super":
            return self.generic_visit(node)
        self.generic_visit(node)
        made: Any = templates.expression("ag__.call()", node)
        made.args, made.keywords = [node.func, *node.args], node.keywords
        return made

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Gives a private attribute the name that it has outside of its class."""
        self.generic_visit(node)
        node.attr = self._mangled(node.attr)
        return node

    def _mangled(self, name: str) -> str:
        is_private = name.startswith("__") and not name.endswith("__")
        owner = self._owner.lstrip("_")
        return f"_{owner}{name}" if is_private and owner else name


def _has_walrus(node: ast.AST) -> bool:
    """Whether an expression assigns a name, which a lambda would keep for itself."""
    return any(isinstance(n, ast.NamedExpr) for n in ast.walk(node))
