"""Replaces `return`, `break` and `continue` inside of branches and loops by flags.

A branch that ends with one of them takes the statements behind it into the other
branch, so that most functions need no flag at all.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Sequence
from typing import Any, final

from unisono._src.autograph import assigned_names, templates

RETURNED = "ag__returned"
RESULT = "ag__result"
# What the names of flags begin with.
FLAGS = (RETURNED, "ag__left_", "ag__skipped_")


class UnsupportedSyntax(Exception):
    """A function has a statement that is not converted."""


@final
@dataclasses.dataclass
class _LoopFlags:
    """The flags of the loop that a statement is in."""

    left: str
    skipped: str


@final
@dataclasses.dataclass
class _Lowered:
    """Statements without jumps.

    Attributes:
        body: the statements.
        flags: the flags that one of them may have set.
        always: whether one of them certainly has.
    """

    body: list[ast.stmt]
    flags: frozenset[str] = frozenset()
    always: bool = False


def lower(node: ast.FunctionDef) -> None:
    """Removes the jumps of a function that are inside of branches and loops.

    Raises:
        UnsupportedSyntax: there is one in a `finally`.
    """
    last = node.body[-1]
    lowering = _Lowering(_has_inner_return(node.body))
    if lowering.returns and not isinstance(last, ast.Return):
        node.body += templates.statements("return None", last)
    found = lowering.block(node.body, None)
    if not lowering.returns:
        node.body = found.body
        return
    start = templates.statements(f"{RETURNED} = False", node)
    end = templates.statements(f"return {RESULT}", last)
    node.body = [*start, *found.body, *end]


def _has_inner_return(body: Sequence[ast.stmt]) -> bool:
    """Whether a branch or loop of the block has a `return`."""
    blocks = (ast.If, ast.While, ast.For)
    outer = (n for n in assigned_names.walk_block(body) if isinstance(n, blocks))
    return any(
        isinstance(n, ast.Return)
        for block in outer
        for n in assigned_names.walk_block([block])
    )


def _guard(
    body: list[ast.stmt], flags: frozenset[str], like: ast.AST
) -> list[ast.stmt]:
    """Returns statements that run if no flag is set."""
    if not flags or not body:
        return body
    test = templates.expression(_none_of(flags), like)
    return [templates.place(ast.If(test, body, []), body[0])]


def _none_of(flags: frozenset[str]) -> str:
    return " and ".join(f"not {flag}" for flag in sorted(flags))


@final
class _Lowering:
    """Lowers the blocks of one function.

    Args:
        returns: whether `return` becomes a flag.
    """

    def __init__(self, returns: bool) -> None:
        self.returns = returns
        self._count = 0

    def block(self, body: Sequence[Any], loop: _LoopFlags | None) -> _Lowered:
        """Returns the statements of a block without jumps."""
        made: list[ast.stmt] = []
        for i, node in enumerate(body):
            rest = body[i + 1 :]
            jump = self._jump(node, loop)
            if jump is not None:
                return _Lowered([*made, *jump.body], jump.flags, True)
            if isinstance(node, ast.If):
                found, done = self._branch(node, rest, loop)
            else:
                found, done = self._other(node, loop), False
            made += found.body
            if done:
                return _Lowered(made, found.flags, found.always)
            if found.flags:
                after = self.block(rest, loop)
                guarded = _guard(after.body, found.flags, node)
                flags = found.flags | after.flags
                return _Lowered([*made, *guarded], flags, after.always and bool(rest))
        return _Lowered(made)

    def _jump(self, node: object, loop: _LoopFlags | None) -> _Lowered | None:
        """Returns what stands for a jump; None for other statements."""
        if isinstance(node, ast.Return) and self.returns:
            value = node.value or templates.place(ast.Constant(None), node)
            text = f"{RETURNED} = True\n{RESULT} = value"
            made = templates.statements(text, node, value=value)
            return _Lowered(made, frozenset([RETURNED]))
        if isinstance(node, (ast.Break, ast.Continue)) and loop is not None:
            flag = loop.left if isinstance(node, ast.Break) else loop.skipped
            made = templates.statements(f"{flag} = True", node)
            return _Lowered(made, frozenset([flag]))
        return None

    def _branch(
        self, node: ast.If, rest: Sequence[Any], loop: _LoopFlags | None
    ) -> tuple[_Lowered, bool]:
        """Returns an `if` without jumps, and whether it has taken in all of `rest`."""
        body = self.block(node.body, loop)
        # The statements behind run in the branch that does not jump.
        other = self.block([*node.orelse, *(rest if body.always else [])], loop)
        flags = body.flags | other.flags
        always, done = body.always and other.always, body.always or other.always
        if other.always and not body.always:
            after = self.block(rest, loop)
            body.body = body.body + _guard(after.body, body.flags, node)
            flags, always = flags | after.flags, after.always
        node.body = body.body or templates.statements("pass", node)
        node.orelse = other.body
        return _Lowered([node], flags, always), done

    def _other(self, node: Any, loop: _LoopFlags | None) -> _Lowered:
        """Returns a statement that is neither a jump nor an `if`."""
        if isinstance(node, (ast.While, ast.For)):
            return self._loop(node)
        blocks = [node, *getattr(node, "handlers", []), *getattr(node, "cases", [])]
        if isinstance(node, assigned_names.SCOPES):
            blocks = []
        flags: frozenset[str] = frozenset()
        for part in blocks:
            if isinstance(getattr(part, "body", None), list):
                found = self.block(part.body, loop)
                part.body, flags = found.body, flags | found.flags
        if getattr(node, "orelse", None):
            found = self.block(node.orelse, loop)
            node.orelse = _guard(found.body, flags, node)
            flags |= found.flags
        if getattr(node, "finalbody", None) and self.block(node.finalbody, loop).flags:
            raise UnsupportedSyntax("a jump inside `finally`")
        return _Lowered([node], flags)

    def _loop(self, node: Any) -> _Lowered:
        """Returns a loop without jumps; its test asks for the flags instead."""
        self._count += 1
        own = _LoopFlags(f"ag__left_{self._count}", f"ag__skipped_{self._count}")
        found = self.block(node.body, own)
        orelse, node.orelse = node.orelse, []
        ends = found.flags - {own.skipped}
        before: list[ast.stmt] = []
        if own.skipped in found.flags:
            reset = templates.statements(f"{own.skipped} = False", node)
            found.body = [*reset, *found.body]
        if own.left in ends:
            before = templates.statements(f"{own.left} = False", node)
        node.body = found.body
        if ends:
            _add_test(node, ends)
        outer = ends - {own.left}
        # `else` runs unless the loop was left.
        after = self.block(orelse, None)
        if after.flags - {RETURNED}:
            raise UnsupportedSyntax("break or continue inside `else` of a loop")
        behind = _guard(after.body, ends, node) if orelse else []
        return _Lowered([*before, node, *behind], outer | after.flags)


def _add_test(node: Any, flags: frozenset[str]) -> None:
    """Lets a loop go on only while no flag is set."""
    more = templates.expression(_none_of(flags), node)
    if isinstance(node, ast.For):
        node.more = more  # type: ignore[attr-defined]
    else:
        test = [more, node.test]
        node.test = templates.place(ast.BoolOp(ast.And(), test), node.test)
