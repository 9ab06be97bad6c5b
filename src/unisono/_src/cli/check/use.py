"""One place where a program uses TensorFlow."""

from __future__ import annotations

import ast
import dataclasses
from typing import final


@final
@dataclasses.dataclass(frozen=True)
class CallArguments:
    """Holds the arguments of a call.

    Attributes:
        positional: how many have no name; None if that is open.
        keywords: the names of the others that are written out.
    """

    positional: int | None
    keywords: tuple[str, ...]


@final
@dataclasses.dataclass(frozen=True)
class Use:
    """Holds one place where a program uses TensorFlow.

    Attributes:
        node: the expression or statement, for its place.
        written: what the program says there, such as ``tf.nn.relu``.
        path: TensorFlow's path; for the other kinds, what is used.
        kind: ``"path"``; ``"object"`` for a member of an object; ``"import"`` for a
            name that is imported; ``"control"`` for a statement on an array;
            ``"package"`` for another package; ``"unknown"`` if it cannot be told.
        call: the arguments, if it is called.
        told: for an unknown use, why it is one; for a statement, what else to tell.
    """

    node: ast.AST
    written: str
    path: str
    kind: str
    call: CallArguments | None = None
    told: str = ""


def arguments(node: ast.Call) -> CallArguments:
    """Returns the arguments of a call."""
    is_open = any(isinstance(a, ast.Starred) for a in node.args)
    keywords = tuple(k.arg for k in node.keywords if k.arg is not None)
    return CallArguments(None if is_open else len(node.args), keywords)
