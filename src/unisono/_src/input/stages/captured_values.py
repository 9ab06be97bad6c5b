"""Functions with the values of the code around them, as they were when it gave them.

TensorFlow traces the function of a `map` where the program gives it. Here it is called
later, when elements are read: the variable of a loop, or a name that was assigned again
meanwhile, would have another value by then.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar, cast, final

_T = TypeVar("_T", bound=Callable[..., Any])


def keep_values(fn: _T) -> _T:
    """Returns a function that has the values of now for the names around it.

    A function that assigns one of these names stays as it is, and so does what a module
    has under its name: that is the same for all, and other processes find it so.

    >>> functions = [keep_values(lambda: n) for n in range(3)]
    >>> [function() for function in functions]
    [0, 1, 2]
    """
    if type(fn) is not types.FunctionType:
        return fn
    home = sys.modules.get(fn.__module__)
    if getattr(home, fn.__qualname__, None) is fn:
        return fn
    reads, writes = _names_in(fn.__code__)
    if writes:
        return fn
    made = types.FunctionType(
        fn.__code__,
        _GlobalNames(fn.__globals__, reads),
        fn.__name__,
        fn.__defaults__,
        tuple(map(_copy_cell, fn.__closure__ or ())),
    )
    made.__kwdefaults__ = fn.__kwdefaults__
    functools.update_wrapper(made, fn)
    del made.__dict__["__wrapped__"]  # It is the same code.
    return cast("_T", made)


def _names_in(code: types.CodeType) -> tuple[set[str], set[str]]:
    """Returns the names around code that it, or a function in it, reads and assigns."""
    reads, writes = {*code.co_names}, set[str]()
    for step in dis.get_instructions(code):
        if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF"):
            writes.add(step.argval)
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            inner = _names_in(part)
            reads, writes = reads | inner[0], writes | inner[1]
    return reads, writes - {*code.co_cellvars}


@final
class _GlobalNames(dict[str, Any]):
    """The global names that a function uses, with the values that they have now.

    Names that are defined later are looked up later.
    """

    def __init__(self, given: dict[str, Any], used: set[str]) -> None:
        super().__init__({n: given[n] for n in {*used, "__name__"} if n in given})
        self._given = given

    def __missing__(self, name: str) -> Any:
        return self._given[name]

    def __contains__(self, name: object) -> bool:
        return name in self._given


def _copy_cell(cell: types.CellType) -> types.CellType:
    try:
        return types.CellType(cell.cell_contents)
    except ValueError:  # The name has no value yet.
        return cell
