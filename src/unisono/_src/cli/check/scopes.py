"""The meanings of a program's names, and the places where it uses TensorFlow."""

from __future__ import annotations

import ast
import dataclasses
from typing import final


@final
@dataclasses.dataclass(frozen=True)
# For `tf.nn.relu` the path is "nn.relu". A program's own class that derives from
# `tf.Module` is a derived value of the path "Module"; an object of it, an object of
# that path, with the members that the class defines itself in `own`.
class Value:
    """Holds a value that an expression may have.

    Attributes:
        path: TensorFlow's path, without ``tf.``; of an object, that of its class.
        kind: ``"path"``, ``"object"``, or ``"method"`` of an object; ``"derived"`` for
            a class of the program with this base, ``"local"`` for its functions.
        own: the members that a derived class defines itself.
    """

    path: str
    kind: str = "path"
    own: frozenset[str] = frozenset()


Values = frozenset[Value]
NONE: Values = frozenset()


@final
class Scope:
    """Holds the names of a module, function or class, and its outer scope.

    Args:
        above: the scope around it, if there is one.
        is_class: whether it is that of a class, which functions in it do not see.
    """

    def __init__(self, above: Scope | None, is_class: bool = False) -> None:
        self.names: dict[str, Values] = {}
        self.above, self.is_class = above, is_class

    def find(self, name: str) -> Values | None:
        """Returns the values of a name, or None if it is not bound."""
        scope: Scope | None = self
        while scope is not None:
            # As in Python, functions do not see the names of the class around them.
            if name in scope.names and (scope is self or not scope.is_class):
                return scope.names[name]
            scope = scope.above
        return None


@final
@dataclasses.dataclass
class ReadingPlace:
    """Holds the context of the statements that are being read.

    Attributes:
        scope: the names.
        me: the class around a method, as a scope of the attributes of `self`.
        compiled: whether they are in a function that is compiled.
        branches: in how many branches and loops they are.
    """

    scope: Scope
    me: Scope | None = None
    compiled: bool = False
    branches: int = 0


def instances(classes: Values) -> Values:
    """Returns the values that stand for objects of classes."""
    return frozenset(
        Value(value.path, "object", value.own)
        for value in classes
        if value.kind in ("path", "derived")
    )


def all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    """Returns the arguments of a function, in no order."""
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return found + [a for a in (arguments.vararg, arguments.kwarg) if a]


def attributes_of(cls: ast.ClassDef) -> frozenset[str]:
    """Returns the attributes that a class defines in its body or sets on `self`."""
    names = set()
    for node in cls.body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names |= {t.id for t in targets if isinstance(t, ast.Name)}
    for inner in ast.walk(cls):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(inner.name)
        elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            # Of any object, to be safe: what is the program's own is not judged.
            names.add(inner.attr)
    return frozenset(names)


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
