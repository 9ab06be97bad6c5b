"""Describes a plan line by line, so that workers can find where theirs differ.

The lines have what decides which elements come in which order: stages, sizes, names of
files and functions, and a part of the arrays. They leave out seeds, which worker 0
gives to all, and what may differ between machines: threads, caches, and the folder that
all files are in.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from unisono._src.execution import specs
from unisono._src.input.loaders import data_sources, hugging_face
from unisono._src.input.plan import elements, first_elements, nodes
from unisono._src.input.sources import arrays, iterables
from unisono._src.input.stages import (
    caching,
    dataset_options,
    element_files,
    file_listing,
    prefetch,
)

# What they do does not change which elements come, nor their order.
_LEFT_OUT = (
    prefetch.Prefetch,
    dataset_options.WithOptions,
    caching.Cache,
    caching.FileCache,
)
# The same of fields: how many threads or processes run a function, and the state of
# random orders, which workers share. And what a source holds, which has its own lines.
_FIELDS_LEFT_OUT = frozenset(
    {"parallel", "run", "order", "is_pass", "source"}
    | {"arrays", "element", "files", "path", "items"}
)
# The rows of an array that have a line of their own.
_ROWS = 16
# Of a longer list of texts, so many are looked at.
_TEXTS = 100_000
_PLAIN = (bool, int, float, complex, str, bytes, np.dtype, enum.Enum, specs.TypeSpec)


def lines_of(node: nodes.Node, has_own_files: bool = False) -> list[str]:
    """Returns the lines of a plan, from its sources to its end.

    Args:
        node: the end of the plan.
        has_own_files: whether each worker reads files of its own. How many it has open
            at a time does not matter to the others then.
    """
    left_out = _FIELDS_LEFT_OUT | ({"cycle"} if has_own_files else set())
    found: list[str] = []
    for n in reversed(list(nodes.walk(node))):
        if not isinstance(n, _LEFT_OUT):
            found.append(_describe(n, left_out))
            found.extend(_describe_contents(n))
    return found


def _describe(node: nodes.Node, left_out: Set[str]) -> str:
    """Returns the kind of a node and its arguments, without some of them."""
    told = [
        f"{field.name}={_text(getattr(node, field.name))}"
        for field in dataclasses.fields(node)
        if field.name not in left_out and not _holds_nodes(getattr(node, field.name))
    ]
    kinds = (iterables.Loader, hugging_face.HuggingFaceTable, data_sources.DataSource)
    if isinstance(node, kinds):
        told.append(f"{node}, length={node.cardinality}")
    return f"{type(node).__name__}({', '.join(told)})"


def _holds_nodes(value: Any) -> bool:
    is_many = isinstance(value, tuple) and bool(value)
    return isinstance(value[0] if is_many else value, nodes.Node)


def _text(value: object) -> str:
    """Returns an argument as text that is the same on every worker."""
    if hasattr(value, "__array__"):
        return first_elements.describe(value, first_elements.checksum(value))
    if value is None or isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{k!r}: {_text(v)}' for k, v in value.items())}}}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_text, value))})"
    kind = type(value)
    is_ours = kind.__module__.startswith("unisono._src.input.")
    if is_ours and "__str__" in vars(kind):
        # Such a text is the same in every process; a user's may have an address.
        return str(value)
    return _name_function(value) if callable(value) else type(value).__name__


def _name_function(fn: object) -> str:
    """Returns the name of a function, and the line of its file where it begins."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = getattr(fn, "__func__", fn)
    name = getattr(fn, "__qualname__", type(fn).__qualname__)
    code = getattr(fn, "__code__", None)
    if code is None:
        return str(name)
    return f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


def _describe_contents(node: nodes.Node) -> Iterator[str]:
    """Yields lines about what a source holds; of large arrays, about a part."""
    if isinstance(node, file_listing.FILES):
        yield from _describe_texts(node.files, "file")
    elif isinstance(node, element_files.SavedShard):
        yield f"file: {os.path.basename(node.path)!r}"
    elif isinstance(node, element_files.Shards):
        names = file_listing.names_of(node)
        yield from _describe_texts(names.names if names else (), "file")
    elif isinstance(node, arrays.Slices):
        yield from _describe_arrays(node.arrays)
    elif isinstance(node, arrays.Tensors):
        yield f"element: {_text(node.element)}"
    elif isinstance(node, data_sources.DataSource):
        # It was read for the spec as well.
        row = nodes.first_element(node)
        yield f"row 0: {first_elements.describe(row, first_elements.checksum(row))}"
    elif isinstance(node, hugging_face.HuggingFaceTable):
        order = hugging_face.sample_order(node)
        yield from (f"row {i}: number {n} of the table" for i, n in order)


def _describe_arrays(given: object) -> Iterator[str]:
    """Yields lines about arrays whose rows are elements."""
    for path, leaf in elements.paths(given):
        array, name = elements.as_array(leaf), f" of {path}" if path else ""
        yield f"array{name}: {array.dtype}, shape {array.shape}"
        if array.dtype.kind == "O" and array.ndim == 1:
            yield from _describe_texts(array.tolist(), f"row{name}")
            continue
        for i, row in enumerate(array[:_ROWS]):
            yield f"row {i}{name}: {_text(row)}"
        mark = first_elements.checksum(array)
        yield f"rows{name}, a sample of all: checksum {mark:08x}"


def _describe_texts(texts: Sequence[Any], what: str) -> Iterator[str]:
    """Yields a line for each text, without the folder that all of them are in."""
    step = 1 + len(texts) // _TEXTS
    chosen = [os.fsdecode(x) if isinstance(x, (str, bytes)) else repr(x)
              for x in texts[::step]]  # fmt: skip
    # Workers may see the same files in different places. Not `commonpath`: the texts
    # need not be paths.
    folder = os.path.commonprefix(chosen).rpartition(os.sep)[0]  # noqa: RUF071
    start = len(folder) + 1 if folder else 0
    yield f"{what}s: {len(texts)}"
    for i, text in enumerate(chosen):
        yield f"{what} {i * step}: {text[start:]!r}"
