"""Finds the syntax tree of a function, and makes a function of a syntax tree."""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import linecache
import types
from typing import Any

from unisono._src.autograph import jumps, rewriting

_FUTURE = functools.reduce(
    int.__or__,
    (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names),
)
# The syntax trees of files, with the lines that they were made of.
_trees: dict[str, tuple[list[str], ast.Module]] = {}


def convert_code(fn: types.FunctionType) -> types.CodeType:
    """Returns the code of a function with its statements rewritten.

    Raises:
        UnsupportedSyntax: there is no source, or it cannot be converted.
    """
    code = fn.__code__
    node = copy.deepcopy(_find_node(fn))
    if isinstance(node, ast.Lambda):
        node = rewriting.as_function(node, "ag__lambda")
    node.decorator_list, node.returns = [], None
    args = node.args
    args.defaults, args.kw_defaults = _placeholders(args)
    for arg in ast.walk(args):
        if isinstance(arg, ast.arg):
            arg.annotation = None
    rewriting.rewrite(node, _owner_of(fn), next(iter(code.co_varnames), None))
    outer = ast.parse(
        f"def ag__factory({', '.join(('ag__', *code.co_freevars))}): pass"
    )
    factory: Any = outer.body[0]
    factory.body = [node]
    ast.copy_location(factory, node)
    ast.fix_missing_locations(outer)
    try:
        made = compile(outer, code.co_filename, "exec", code.co_flags & _FUTURE, True)
    except SyntaxError:
        raise jumps.UnsupportedSyntax("a name that blocks cannot share") from None
    found = _inner_code(_inner_code(made, "ag__factory"), node.name)
    return found.replace(co_name=code.co_name, co_qualname=code.co_qualname)


def _inner_code(code: types.CodeType, name: str) -> types.CodeType:
    """Returns the code of a function that other code makes."""
    codes = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return next(c for c in codes if c.co_name == name)


def _placeholders(args: ast.arguments) -> tuple[list[ast.expr], list[Any]]:
    """Returns defaults that are replaced by those of the function."""
    nothing = ast.Constant(None)
    return [nothing] * len(args.defaults), [d and nothing for d in args.kw_defaults]


def _owner_of(fn: types.FunctionType) -> str:
    """Returns the name of the class that a function is a method of, or ""."""
    *outer, _ = fn.__code__.co_qualname.split(".")
    return outer[-1] if outer and outer[-1] != "<locals>" else ""


def make_function(
    fn: types.FunctionType, code: types.CodeType, runtime: object
) -> types.FunctionType:
    """Returns a function with other code, and all else of the function.

    Args:
        fn: the function.
        code: its code, as `convert_code` returns it.
        runtime: what the code knows under the name ``ag__``.
    """
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    cells["ag__"] = types.CellType(runtime)
    closure = tuple(cells[name] for name in code.co_freevars)
    made = types.FunctionType(
        code, fn.__globals__, fn.__name__, fn.__defaults__, closure
    )
    made.__kwdefaults__ = fn.__kwdefaults__
    made.__annotations__ = fn.__annotations__
    made.__doc__, made.__module__ = fn.__doc__, fn.__module__
    made.__qualname__ = fn.__qualname__
    vars(made).update(vars(fn))
    return made


# Finding the tree.


def _find_node(fn: types.FunctionType) -> Any:
    """Returns the node of a function in the tree of its file.

    Raises:
        UnsupportedSyntax: there is no source, or it is not that of the function.
    """
    code = fn.__code__
    lines = linecache.getlines(code.co_filename, fn.__globals__)
    found = [n for n in ast.walk(_tree_of(code.co_filename, lines)) if _fits(n, code)]
    if len(found) > 1:
        found = [n for n in found if _contains(n, code)]
    if len(found) != 1:
        raise jumps.UnsupportedSyntax("no source")
    return found[0]


def _tree_of(name: str, lines: list[str]) -> ast.Module:
    known = _trees.get(name)
    if known is None or known[0] != lines:
        try:
            known = _trees[name] = (lines, ast.parse("".join(lines)))
        except (SyntaxError, ValueError):
            raise jumps.UnsupportedSyntax("no source") from None
    return known[1]


def _fits(node: object, code: types.CodeType) -> bool:
    """Whether a node may be the one that a code was compiled from."""
    if isinstance(node, ast.Lambda):
        is_named = code.co_name == "<lambda>" and node.lineno == code.co_firstlineno
    elif isinstance(node, ast.FunctionDef):
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        is_named = node.name == code.co_name and first == code.co_firstlineno
    else:
        return False
    args = node.args
    names = [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    count = code.co_argcount + code.co_kwonlyargcount
    return is_named and names == list(code.co_varnames[:count])


def _contains(node: Any, code: types.CodeType) -> bool:
    """Whether the instructions of a code are those of a node, by their columns."""
    places = [p for p in code.co_positions() if None not in p and p[2] != p[3]]
    start = (
        (node.body.lineno, node.body.col_offset)
        if isinstance(node, ast.Lambda)
        else (node.lineno, node.col_offset)
    )
    end = (node.end_lineno, node.end_col_offset)
    return all(start <= (p[0], p[2]) and (p[1], p[3]) <= end for p in places)
