"""Finds the names that statements assign, and those that later statements read."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import final

Names = frozenset[str]
NONE: Names = frozenset()
# A block of these has names of its own.
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
# Statements after which a name has a new value, whatever it was.
_ASSIGNMENTS = (
    *(ast.Assign, ast.AnnAssign, ast.Delete, ast.Import, ast.ImportFrom),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
)


@final
@dataclasses.dataclass
class Lives:
    """The names that are read after a statement, and at the start of its block.

    Attributes:
        after: the names whose values statements behind this one read.
        inside: of a loop, the names that a turn reads before it assigns them, or may
            leave as they are.
    """

    after: Names = NONE
    inside: Names = NONE


def walk_block(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yields nodes and those below them, but not what is inside of functions."""
    for node in nodes:
        yield node
        if not isinstance(node, SCOPES):
            yield from walk_block(ast.iter_child_nodes(node))


def find_assigned(body: Sequence[ast.AST]) -> list[str]:
    """Returns the names that statements assign, in their order.

    An attribute of a name, ``self.x``, and an entry with a constant key, ``d["x"]``,
    are names as well, unless the block assigns the name that they begin with.
    """
    plain: dict[str, None] = {}
    parts: dict[str, str] = {}
    for node in walk_block(body):
        plain.update(dict.fromkeys(_names_made(node)))
        text = _text_of_part(node)
        if text:
            parts[text] = text.partition(".")[0].partition("[")[0]
    return [*plain, *(t for t, base in parts.items() if base not in plain)]


def _names_made(node: object) -> list[str]:
    """Returns the names that one node assigns."""
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.alias):
        return [(node.asname or node.name).partition(".")[0]]
    if isinstance(node, (ast.MatchAs, ast.MatchStar, ast.ExceptHandler)):
        return [node.name] if node.name else []
    return [node.rest] if isinstance(node, ast.MatchMapping) and node.rest else []


def _text_of_part(node: ast.AST) -> str:
    """Returns the text of an attribute or entry that is assigned, or ""."""
    if not isinstance(node, (ast.Attribute, ast.Subscript)):
        return ""
    if isinstance(node.ctx, ast.Load) or not _is_simple(node):
        return ""
    return ast.unparse(node)


def _is_simple(node: ast.AST) -> bool:
    """Returns whether an expression is a name with attributes and constant keys."""
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
        return False
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return _is_simple(node.value)
    return isinstance(node, ast.Name)


def find_read(node: ast.AST | None) -> Names:
    """Returns the names that an expression or statement reads, also in functions."""
    if node is None:
        return NONE
    found = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return frozenset(n.id for n in found if not isinstance(n.ctx, ast.Store))


def find_captured(body: Sequence[ast.AST]) -> Names:
    """Returns the names that functions inside of a block read, whenever they run."""
    inner = [n for n in walk_block(body) if isinstance(n, SCOPES)]
    return frozenset[str]().union(*map(find_read, inner))


@final
class Liveness:
    """Tells for each branch and loop of a function which names are read later.

    Attributes:
        found: the `Lives` of each `if`, `while` and `for`, by the statement.
    """

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        self.found: dict[ast.AST, Lives] = {}
        self._block(body, NONE)

    def _block(self, body: Sequence[ast.stmt], after: Names) -> Names:
        """Returns the names that are read before they are assigned from here on."""
        for node in reversed(body):
            after = self._statement(node, after)
        return after

    def _statement(self, node: ast.stmt, after: Names) -> Names:
        if isinstance(node, ast.If):
            self.found[node] = Lives(after)
            inner = self._block(node.body, after) | self._block(node.orelse, after)
            return inner | find_read(node.test)
        if isinstance(node, (ast.While, ast.For)):
            return self._loop(node, after)
        if isinstance(node, (ast.Return, ast.Raise)):
            return find_read(node)
        if isinstance(node, ast.With):
            made = frozenset(
                find_assigned([i.optional_vars for i in node.items if i.optional_vars])
            )
            reads = [find_read(i.context_expr) for i in node.items]
            return (self._block(node.body, after) - made).union(*reads)
        if hasattr(node, "body") and not isinstance(node, SCOPES):
            return self._other_block(node, after)
        if isinstance(node, ast.Match):
            return self._other_block(node, after)
        gone = NONE
        if isinstance(node, _ASSIGNMENTS):
            gone = frozenset(n for n in find_assigned([node]) if n.isidentifier())
        extra = NONE
        if isinstance(node, ast.AugAssign):
            extra = frozenset(find_assigned([node]))
        return (after - gone) | find_read(node) | extra

    def _loop(self, node: ast.For | ast.While, after: Names) -> Names:
        test = node.test if isinstance(node, ast.While) else getattr(node, "more", None)
        made = NONE
        if isinstance(node, ast.For):
            made = frozenset(find_assigned([node.target]))
        around = after | find_read(test)
        # What a turn reads, the turn before it must leave.
        inside = NONE
        for _ in range(2):
            inside = self._block(node.body, around | inside) - made
        self.found[node] = Lives(after, inside)
        return (
            around
            | inside
            | (find_read(node.iter) if isinstance(node, ast.For) else NONE)
        )

    def _other_block(self, node: ast.stmt, after: Names) -> Names:
        """Looks into `with`, `try` and `match`, after any part of which others run."""
        reached = after | find_read(node)
        blocks = [
            getattr(node, name, None) or [] for name in ("body", "orelse", "finalbody")
        ]
        for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
            blocks.append(part.body)
        for block in blocks:
            self._block(block, reached)
        return reached
