"""Converts functions of the user's, each once; leaves those of libraries alone."""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any, ClassVar, final

from unisono._src.autograph import jumps, source_code
from unisono._src.execution import conversion

# By their code, what conversion has made of functions; None where it cannot.
_codes: dict[types.CodeType, types.CodeType | None] = {}
# Code that is the result of a conversion, also of functions inside of others.
_converted: set[types.CodeType] = set()
_functions: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


@final
class _Names:
    """What converted code calls; the module `runtime` says so when it is loaded."""

    runtime: ClassVar[object] = None


def use_runtime(runtime: object) -> None:
    """Sets what converted code finds under the name ``ag__``."""
    _Names.runtime = runtime


def convert(fn: object) -> Any:
    """Returns a function with its statements converted; `fn` itself if it has none.

    A function stays as it is if it is a library's, has no source, is a generator, or is
    marked by `do_not_convert`.

    Args:
        fn: a function, method, `functools.partial` or object that can be called.
    """
    if isinstance(fn, types.FunctionType):
        return _convert_function(fn)
    if isinstance(fn, types.MethodType):
        made = convert(fn.__func__)
        return fn if made is fn.__func__ else types.MethodType(made, fn.__self__)
    if type(fn) is functools.partial:
        made = convert(fn.func)
        if made is fn.func:
            return fn
        return functools.partial(made, *fn.args, **fn.keywords)
    call = _find_call(type(fn))
    if isinstance(fn, type) or not isinstance(call, types.FunctionType):
        return fn
    made = convert(call)
    return fn if made is call else types.MethodType(made, fn)


def _find_call(kind: type) -> Any:
    """Returns the function by which objects of a class are called, if there is one."""
    return next(
        (vars(c)["__call__"] for c in kind.__mro__ if "__call__" in vars(c)), None
    )


def _convert_function(fn: types.FunctionType) -> Any:
    code = fn.__code__
    if code in _converted or conversion.is_library(fn.__globals__, code):
        return fn
    if conversion.is_marked(fn):
        return fn
    known = _functions.get(fn)
    if known is not None:
        return known
    if code not in _codes:
        try:
            _codes[code] = source_code.convert_code(fn)
            _note(_codes[code])
        except jumps.UnsupportedSyntax:
            _codes[code] = None
    new = _codes[code]
    made = fn if new is None else source_code.make_function(fn, new, _Names.runtime)
    if made is not fn:
        made = _functions.setdefault(fn, made)
    return made


def _note(code: Any) -> None:
    """Notes that code, and code inside of it, is converted."""
    _converted.add(code)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            _note(inner)
