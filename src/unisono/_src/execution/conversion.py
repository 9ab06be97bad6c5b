"""Decides when functions are converted by AutoGraph, which is loaded only then.

A function is traced as it is. If Python needs a value that only the running program
knows, or loops over `tf.range` or a traced array, the trace ends with a signal, and the
function is converted and traced again. See docs/decisions/0033.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import importlib
import logging
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar, final

from unisono._src.foundation import ambient, errors, jax_internals
from unisono._src.state import frames

_F = TypeVar("_F", bound=Callable[..., Any])
_R = TypeVar("_R")
_MARK = "_unisono_do_not_convert"
# Packages whose functions are not converted, besides Python's own.
_LIBRARIES = {
    *("unisono", "jax", "jaxlib", "numpy", "ml_dtypes", "scipy", "keras", "flax"),
    *("optax", "orbax", "chex", "equinox", "haiku", "absl", "etils", "grain"),
    *("tensorflow", "torch", "transformers", "pytest", "_pytest", "pluggy", "IPython"),
    *("ray", "tqdm", "wandb", "h5py", "pandas", "sklearn", "PIL", "coverage"),
}
# A step that a program repeats more often than this is told in the log.
_MANY_TURNS = 16
_log = logging.getLogger("unisono")


class NeedsConversion(errors.Signal):
    """A traced function has to be converted."""


@final
@dataclasses.dataclass
class Conversion:
    """Whether a function is converted.

    Attributes:
        is_allowed: whether it may be, as `function(autograph=…)` says.
        is_on: whether it is, because a trace has shown that it must.
    """

    is_allowed: bool = True
    is_on: bool = False

    def retry(self, trace: Callable[[], _R]) -> _R:
        """Return the result of a trace; convert and trace once more if need be."""
        watch()
        try:
            return trace()
        except NeedsConversion:
            self.is_on = True
            return trace()

    def apply(self, fn: _F) -> _F:
        """Return a function, converted if that is on."""
        return convert(fn) if self.is_on and self.is_allowed else fn

    def choose(self, fn: _F) -> _F:
        """Return the function that is traced, or runs on the host, at this moment."""
        if ambient.current().host is not None and not frames.frame().is_compiled:
            return self.apply(fn)
        return choose(fn) if self.is_allowed else fn


def choose(fn: _F) -> _F:
    """Return a function as it is, or converted in a program that needs that."""
    return convert(fn) if frames.outermost().is_converted else fn


def convert(fn: _F) -> _F:
    """Return a function with its statements converted; load AutoGraph if need be."""
    found: _F = importlib.import_module("unisono._src.autograph.runtime").convert(fn)
    return found


def mark(fn: Any) -> Any:
    """Return a function that is never converted."""
    try:
        setattr(fn, _MARK, True)
    except AttributeError:  # A method, or a function of C.

        @functools.wraps(fn)
        def call(*args: object, **kwargs: object) -> object:
            return fn(*args, **kwargs)

        return mark(call)
    return fn


def is_marked(fn: object) -> bool:
    """Whether a function must not be converted."""
    return getattr(fn, _MARK, False) is True


def module_of(names: dict[str, Any], code: types.CodeType) -> str:
    """Return the package that code belongs to; "" for an example of a docstring."""
    if code.co_filename.startswith("<doctest"):
        return ""
    return str(names.get("__name__") or "").partition(".")[0]


def is_library(names: dict[str, Any], code: types.CodeType) -> bool:
    """Whether code is a library's, not the user's.

    Args:
        names: the global names of the code.
        code: the code.
    """
    return is_library_name(module_of(names, code))


def is_library_name(root: str) -> bool:
    """Whether a package is a library, not the user's."""
    is_python = root in sys.stdlib_module_names and root != "__main__"
    return is_python or root in _LIBRARIES


# Noticing what needs conversion.


def request(frame: types.FrameType | None) -> None:
    """Raise `NeedsConversion` if a trace can be converted at a line of the user's.

    Args:
        frame: the Python frame whose code needs a value.
    """
    program = frames.outermost()
    if not program.is_compiled or program.is_converted or frame is None:
        return
    if not is_library(frame.f_globals, frame.f_code):
        raise NeedsConversion


def _caller(depth: int) -> types.FrameType | None:
    """Return the frame that asks for a value, past the methods of our own classes."""
    frame: types.FrameType | None = sys._getframe(depth + 1)  # noqa: SLF001
    while frame is not None and frame.f_code.co_name in _METHODS:
        frame = frame.f_back
    return frame


_METHODS = {"__bool__", "__int__", "__index__", "__iter__"}


def _opcode(frame: types.FrameType) -> str:
    return dis.opname[frame.f_code.co_code[frame.f_lasti]]


def check_loop(depth: int = 1) -> None:
    """Raise `NeedsConversion` if the result of the running call is looped over.

    Args:
        depth: how many frames are between this function and the user's.
    """
    program = frames.outermost()
    if not program.is_compiled or program.is_converted:
        return
    frame = sys._getframe(depth)  # noqa: SLF001
    while (
        frame.f_back is not None
        and module_of(frame.f_globals, frame.f_code) == "unisono"
    ):
        frame = frame.f_back
    code = frame.f_code.co_code
    # Entries of two bytes; those of Python's inline caches are skipped. In Python 3.11
    # a call may have been made by the entry before `CALL`.
    skipped = {"CACHE", "CALL"} if _opcode(frame) == "PRECALL" else {"CACHE"}
    following = frame.f_lasti + 2
    while following < len(code) and dis.opname[code[following]] in skipped:
        following += 2
    if following < len(code) and dis.opname[code[following]] == "GET_ITER":
        request(frame)


def note_step() -> None:
    """Say in the log that a Python loop of many steps becomes one long program."""
    program = frames.outermost()
    if not program.is_compiled:
        return
    frame: types.FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None and is_library(frame.f_globals, frame.f_code):
        frame = frame.f_back
    if frame is None:
        return
    place = (frame.f_code, frame.f_lineno)
    program.steps = {**program.steps, place: program.steps.get(place, 0) + 1}
    if program.steps[place] == _MANY_TURNS + 1:
        _log.warning(
            "%s, line %d: a step was traced more than %d times in one function. A loop "
            "of Python's is unrolled, and its program takes long to compile. Write "
            "`for _ in tf.range(n)`, which compiles one step.",
            frame.f_code.co_filename,
            frame.f_lineno,
            _MANY_TURNS,
        )


def _watch(name: str) -> None:
    """Let JAX tell when Python asks for something of a traced array."""
    kind = jax_internals.ShapedArray
    original = vars(kind)[name]

    def ask(aval: Any, *args: Any) -> Any:
        frame = _caller(1)
        if frame is not None and (name != "_iter" or _opcode(frame) == "GET_ITER"):
            request(frame)
        return original.__get__(aval, kind)(*args)

    setattr(kind, name, ask)


@functools.cache
def watch() -> None:
    """Watch from now on what Python asks of traced arrays."""
    for name in ("_bool", "_int", "_index", "_iter"):
        _watch(name)
