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
            a class of the program with this base, which is "" if it has none of
            TensorFlow's; ``"local"`` for its functions, ``"module"`` for its files;
            ``"output"`` for what a layer gives, of which only the shape is known.
        own: the members that a derived class defines itself, and `OPEN` if it has a
            base that is not known.
    """

    path: str
    kind: str = "path"
    own: frozenset[str] = frozenset()


Values = frozenset[Value]
NONE: Values = frozenset()
OPEN = "*"
TENSOR = Value("Tensor", "object")


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
        # What a module lists in `__all__`; None if it has none that can be read.
        self.public: frozenset[str] | None = None

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
        function: the key of the function around them; "" in the module.
        compiled: whether they are in a function that is compiled.
        hosted: whether they are in a function that a dataset calls.
        reach: ``" in Keras"`` in a method that Keras calls, which AutoGraph does not
            reach from `fit`; "" elsewhere.
        branches: in how many branches and loops they are.
        tapes: in how many blocks of gradient tapes they are.
    """

    scope: Scope
    me: Scope | None = None
    function: str = ""
    compiled: bool = False
    hosted: bool = False
    reach: str = ""
    branches: int = 0
    tapes: int = 0


@final
@dataclasses.dataclass
class ProgramFacts:
    """Holds what the files of a program tell about each other; reading fills it in.

    Attributes:
        returned: by function, the values that it returns.
        calls: by function, those that it calls or passes on.
        compiled: the functions that are compiled.
        hosted: the functions that datasets call.
        own: the attributes that the program sets on any object.
        modules: by file, the names of the module.
    """

    returned: dict[str, Values] = dataclasses.field(default_factory=dict)
    calls: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    compiled: set[str] = dataclasses.field(default_factory=set)
    hosted: set[str] = dataclasses.field(default_factory=set)
    own: set[str] = dataclasses.field(default_factory=set)
    modules: dict[str, Scope] = dataclasses.field(default_factory=dict)

    def follow_calls(self) -> None:
        """Adds what they call to the compiled functions and to the hosted ones."""
        for group in (self.compiled, self.hosted):
            waiting = list(group)
            while waiting:
                for callee in self.calls.get(waiting.pop(), ()):
                    if callee not in group:
                        group.add(callee)
                        waiting.append(callee)


def instances(classes: Values) -> Values:
    """Returns the values that stand for objects of classes."""
    return frozenset(
        Value(value.path, "object", value.own)
        for value in classes
        if value.path and value.kind in ("path", "derived")
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
        texts: by place or name what is written for those that are a word or a literal:
            ``"float32"`` for ``tf.float32``, ``"'a.h5"`` for a text that ends so.
    """

    positional: int | None
    keywords: tuple[str, ...]
    texts: tuple[tuple[int | str, str], ...] = ()

    def has(self, name: str, place: int) -> bool:
        """Whether an argument is given, by its name or at its place."""
        return name in self.keywords or (self.positional or 0) > place

    def text(self, name: str, place: int) -> str:
        """Returns what is written for an argument, or "" if that is not known."""
        return next((text for key, text in self.texts if key in (name, place)), "")


@final
@dataclasses.dataclass(frozen=True)
class Use:
    """Holds one place where a program uses TensorFlow.

    Attributes:
        node: the expression or statement, for its place.
        written: what the program says there, such as ``tf.nn.relu``.
        path: TensorFlow's path; for the other kinds, what is used.
        kind: ``"path"``; ``"object"`` for a member of an object; ``"import"`` for a
            name that is imported; ``"form"`` for a statement or operator on an array,
            and for an order of lines; ``"package"`` for another package;
            ``"unknown"`` if it cannot be told.
        call: the arguments, if it is called.
        told: for an unknown use, why it is one.
        where: ``"compiled"`` in a function that is compiled, ``"hosted"`` in one that a
            dataset calls.
        may_be_own: whether a member may be the program's own.
    """

    node: ast.AST
    written: str
    path: str
    kind: str
    call: CallArguments | None = None
    told: str = ""
    where: str = ""
    may_be_own: bool = False


def arguments(node: ast.Call) -> CallArguments:
    """Returns the arguments of a call."""
    is_open = any(isinstance(a, ast.Starred) for a in node.args)
    keywords = tuple(k.arg for k in node.keywords if k.arg is not None)
    given: list[tuple[int | str, ast.expr]] = [] if is_open else [*enumerate(node.args)]
    given += [(k.arg, k.value) for k in node.keywords if k.arg is not None]
    texts = tuple((key, text) for key, each in given if (text := _text(each)))
    return CallArguments(None if is_open else len(node.args), keywords, texts)


def _text(node: ast.expr) -> str:
    """Returns what an argument says, as in `CallArguments.texts`; "" if it is open."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and not isinstance(node.value, str):
        return repr(node.value)
    end = _find_end(node)
    # Only the end counts, and a tree may hold megabytes of text.
    return "" if end is None else f"'{end[-80:]}"


def _find_end(node: ast.expr) -> str | None:
    """Returns the last written part of a text that the program puts together."""
    while True:
        parts: list[ast.expr] = []
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.JoinedStr):
            parts = node.values
        elif isinstance(node, ast.BinOp):
            # "a" + "b" and pathlib's folder / "b" end in "b"; "a.h5" % x ends in ".h5".
            parts = [node.left] if isinstance(node.op, ast.Mod) else [node.right]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            parts = [node.func.value] if name == "format" else []
            parts = node.args if name in ("join", "joinpath") else parts
        if not parts:
            return None
        node = parts[-1]
