"""`print`: values in TensorFlow's format, at once or while a compiled step runs."""

from __future__ import annotations

import pathlib
import pprint
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO, TypeAlias, final

import jax
import numpy as np

from unisono._src.execution import program_checks
from unisono._src.foundation import host_numbers, nest
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.input.plan import elements
from unisono._src.ops import tensors
from unisono._src.state import frames
from unisono._src.values import jax_traces

__all__ = ["print"]

_Stream: TypeAlias = TextIO | str | Callable[[str], object]
# The place of an array in a text, between zero bytes, which texts do not have.
_SLOT = re.compile("\0(\\d+)\0")
_FILE = "file://"
_OF_HOST = (
    host_numbers.HostArray,
    host_numbers.HostBool,
    host_numbers.HostText,
    np.generic,
)


@final
class _Text:
    """Stands for an array among the printed values.

    Args:
        text: the text of the array, or the slot of one that is not known yet.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


@everyday_name(
    "print",
    difference=(
        "In a compiled step on several devices the order of the lines is not defined."
    ),
)
def print(
    *inputs: object,
    output_stream: _Stream | None = None,
    end: str = "\n",
    sep: str = " ",
    summarize: int = 3,
    name: str | None = None,
) -> None:
    """Prints values in TensorFlow's format; in a compiled step, each time it runs.

    Each replica prints its own values. A compiled step that prints is slower, because
    each call waits until the step has run. If JAX has several devices, the order of the
    lines of a compiled step is not defined.

    Args:
        *inputs: strings, arrays, and nested structures of them.
        output_stream: ``sys.stderr`` (the default), ``sys.stdout``, a function of the
            package `logging`, or ``"file://"`` followed by the path of a file, to which
            the text is appended.
        end: the text after the last value.
        sep: the text between two values.
        summarize: how many elements to show at both ends of each axis; -1 for all.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        ValueError: `output_stream` is none of these.

    >>> import sys, jax.numpy as jnp
    >>> print("x is", jnp.arange(10), [jnp.float32(0.5), 2], output_stream=sys.stdout)
    x is [0 1 2 ... 7 8 9] [0.5, 2]
    """
    write = _writer(output_stream)
    if isinstance(summarize, bool) or not isinstance(summarize, int):
        raise TypeError(f"Expected int for argument 'summarize' not {summarize!r}.")
    arrays: list[jax.Array] = []

    def leaf(x: object) -> object:
        if isinstance(x, _OF_HOST):
            return _Text(_format_array(elements.as_array(x), summarize))
        if not tensors.is_array(x):
            return x
        arrays.append(frames.strip_gradient(tensors.tensor(x)))
        return _Text(f"\0{len(arrays) - 1}\0")

    items = [nest.map_structure(leaf, x) for x in inputs]
    # As text now: lists may change before a compiled step runs.
    texts = [x if isinstance(x, str) else pprint.pformat(x) for x in items]

    def show(*values: jax.Array) -> None:
        def fill(found: re.Match[str]) -> str:
            return _format_array(np.asarray(values[int(found[1])]), summarize)

        write(sep.join(_SLOT.sub(fill, text) for text in texts) + end)

    if any(isinstance(x, jax.core.Tracer) for x in arrays):
        program_checks.tell_cost("print")
        jax.debug.callback(show, *arrays, ordered=_is_ordered())
    elif frames.frame().is_compiled:
        # Nothing that the program computes, but it is printed each time it runs.
        jax.debug.callback(lambda: show(*arrays), ordered=_is_ordered())
    else:
        show(*arrays)


def _is_ordered() -> bool:
    """Returns whether JAX can keep the order of a program's prints.

    It can in a program for one device, outside `jax.vmap` and gradients.
    """
    frame, here = frames.frame(), jax_traces.current()
    return jax.device_count() == 1 and any(here is t for t in frame.traces)


def _writer(stream: Any) -> Callable[[str], object]:
    """Returns a function that writes a text to a stream."""
    if isinstance(stream, str) and stream.startswith(_FILE):
        path = pathlib.Path(stream.removeprefix(_FILE))

        def append(text: str) -> None:
            with path.open("a", encoding="utf-8") as file:
                file.write(text)

        return append
    if stream is not None and not hasattr(stream, "write"):
        if callable(stream):
            return lambda text: stream(text.rstrip("\n"))
        raise ValueError(
            f"Unsupported output stream, logging level, or file: {stream!r}. Write "
            "sys.stdout, sys.stderr, a function such as logging.info, or "
            "'file://<filepath>'."
        )

    def write(text: str) -> None:
        # Looked up when it is printed: programs redirect `sys.stderr`.
        target = sys.stderr if stream is None else stream
        target.write(text)
        target.flush()

    return write


def _format_array(array: np.ndarray, summarize: int = 3) -> str:
    r"""Returns an array as TensorFlow prints it.

    Args:
        array: the array.
        summarize: how many elements are shown at both ends of each axis; -1 for all.

    >>> _format_array(np.arange(8.0).reshape(4, 2), summarize=1)
    '[[0 1]\n ...\n [6 7]]'
    """
    if not array.ndim:
        return _format_element(array[()])
    return _format_axis(array, 0, array.ndim, summarize)


def _format_axis(array: Any, depth: int, axes: int, ends: int) -> str:
    if depth == axes:
        return _format_element(array)
    gap = " "
    if depth < axes - 1:
        gap = "\n" * (axes - depth - 1) + " " * (depth + 1)
    count = len(array)
    rows: Sequence[int] = range(count)
    if ends >= 0 and count > 2 * ends:
        rows = [*range(ends), -1, *range(count - ends, count)]
    shown = (
        "..." if i < 0 else _format_axis(array[i], depth + 1, axes, ends) for i in rows
    )
    return f"[{gap.join(shown)}]"


def _format_element(x: Any) -> str:
    if isinstance(x, (bytes, str)):
        text = x.decode("utf-8", "replace") if isinstance(x, bytes) else x
        for mark, escaped in (("\\", r"\\"), ('"', r"\""), ("\n", r"\n")):
            text = text.replace(mark, escaped)
        return f'"{text}"'
    if isinstance(x, np.bool_):
        # Alone it is a word, and in an array a digit.
        return str(int(x))
    kind = np.asarray(x).dtype
    if not np.issubdtype(kind, np.integer) and kind.kind != "c":
        return _format_float(x, kind)
    return str(x)


def _format_float(x: Any, kind: np.dtype) -> str:
    """Returns the shorter of two forms of a float that means the same number."""
    # So many digits always survive the way to text, and so many always suffice.
    few, many = (15, 17) if kind == np.float64 else (6, 9)
    number = float(x)
    text = f"{number:.{few}g}"
    wide = np.float64 if kind == np.float64 else np.float32
    is_same = wide(text) == wide(number) or number != number
    return text if is_same else f"{number:.{many}g}"
