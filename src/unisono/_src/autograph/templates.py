"""Makes syntax trees from text, at the place of the user's statement."""

from __future__ import annotations

import ast
from typing import Any, TypeVar, final

_N = TypeVar("_N", bound=ast.AST)
# The nodes that have a place in the source.
_PLACED = (
    *(ast.stmt, ast.expr, ast.arg, ast.keyword, ast.alias),
    *(ast.excepthandler, ast.pattern),
)


@final
class _Fill(ast.NodeTransformer):
    """Puts nodes in the place of names."""

    def __init__(self, nodes: dict[str, Any]) -> None:
        self._nodes = nodes

    def visit_Name(self, node: ast.Name) -> Any:
        """Returns the node for a name."""
        return self._nodes.get(node.id, node)


def place(node: _N, like: Any) -> _N:
    """Returns a node whose parts without a place get that of another node."""
    stack: list[Any] = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, _PLACED) and not hasattr(one, "lineno"):
            ast.copy_location(one, like)
        stack.extend(ast.iter_child_nodes(one))
    return node


def _clear(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
            vars(node).pop(name, None)


def statements(text: str, like: object, **nodes: object) -> list[ast.stmt]:
    """Returns the statements of a text, with some names replaced by nodes.

    Args:
        text: the statements.
        like: the node whose line they get.
        **nodes: what stands for names in the text.
    """
    tree = ast.parse(text)
    _clear(tree)
    made = _Fill(nodes).visit(tree)
    return [place(node, like) for node in made.body]


def expression(text: str, like: object, **nodes: object) -> ast.expr:
    """Returns the expression of a text, as `statements` does."""
    tree = ast.parse(text, mode="eval")
    _clear(tree)
    body: ast.expr = _Fill(nodes).visit(tree).body
    return place(body, like)
