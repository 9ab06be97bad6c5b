"""Finds the files that a plan reads, as far as it tells before it runs."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, final

from unisono._src.input.plan import elements, nodes
from unisono._src.input.sources import arrays, files, grain_sources
from unisono._src.input.stages import (
    argument_checks,
    element_files,
    mixing,
    selecting,
    shuffling,
)

FILES = (files.Files, grain_sources.Parquet, grain_sources.ArrayRecord)
# Longer lists of names are not written out.
_LONGEST = 100_000


@final
@dataclasses.dataclass(frozen=True)
class FileNames:
    """The elements of a dataset of file names.

    Attributes:
        names: the names in order; those of one pass if they repeat without end.
        is_shuffled: whether they are read in a random order instead.
        is_endless: whether they repeat without end.
    """

    names: tuple[str, ...]
    is_shuffled: bool = False
    is_endless: bool = False


@final
@dataclasses.dataclass(frozen=True)
class FileList:
    """The files that a plan reads.

    Attributes:
        files: the paths.
        is_shuffled: whether some are read in a random order.
        unnamed: the nodes whose files are known only when they run.
    """

    files: tuple[str, ...]
    is_shuffled: bool
    unnamed: tuple[mixing.Interleave, ...]


def find_files(node: nodes.Node) -> FileList:
    """Returns the files of every source in a plan."""
    found: list[str] = []
    unnamed: list[mixing.Interleave] = []
    is_shuffled = False
    for n in nodes.walk(node):
        if isinstance(n, mixing.Interleave):
            told = _names_opened_by(n)
            if told is None:
                unnamed.append(n)
                continue
            # A name that comes again and again is still one file.
            found += dict.fromkeys(told.names)
            is_shuffled |= told.is_shuffled
        else:
            found += _paths(n)
    return FileList(tuple(found), is_shuffled, tuple(unnamed))


def _paths(node: nodes.Node) -> tuple[str, ...]:
    if isinstance(node, FILES):
        return node.files
    return (node.path,) if isinstance(node, element_files.SavedShard) else ()


def sample_plan(node: mixing.Interleave) -> nodes.Node | None:
    """Returns the plan of one of the interleaved datasets; None if unknown."""
    if names_of(node.parent) is None:
        return None
    try:
        return node.sample()
    except Exception:
        # If the user's function fails, iterating raises the error, where it belongs;
        # a description only says less.
        return None


def _names_opened_by(node: mixing.Interleave) -> FileNames | None:
    """Returns the names that a function opens one by one; None if it does not."""
    told, inner = names_of(node.parent), sample_plan(node)
    if told is None or inner is None:
        return None
    paths = [path for n in nodes.walk(inner) for path in _paths(n)]
    return told if len(paths) == 1 and paths[0] in told.names else None


def names_of(node: nodes.Node) -> FileNames | None:
    """Returns the file names that are the elements of a plan; None if unknown."""
    if isinstance(node, (arrays.Slices, arrays.Tensors, element_files.Shards)):
        return _list_names(node)
    if isinstance(node, mixing.Concatenate):
        return _join([names_of(n) for n in node.inputs])
    if not isinstance(node, nodes.Selecting):
        return None
    inner = names_of(node.parent)
    if inner is None:
        return None
    if isinstance(node, shuffling.Shuffle):
        return dataclasses.replace(inner, is_shuffled=True)
    if isinstance(node, nodes.AllElements):
        return inner
    if isinstance(node, selecting.Repeat):
        return _repeat(inner, node.count)
    return _select(inner, node)


def _list_names(node: Any) -> FileNames | None:
    """Returns the names that a source of texts or saved shards holds, if it does."""
    if isinstance(node, element_files.Shards):
        paths = [
            p for d in node.items for p in _paths(argument_checks.plan(d, "shards"))
        ]
        return FileNames(tuple(paths)) if len(paths) == len(node.items) else None
    given = node.arrays if isinstance(node, arrays.Slices) else node.element
    if elements.is_structure(given):
        return None
    array = elements.as_array(given)
    wanted = 1 if isinstance(node, arrays.Slices) else 0
    if array.dtype.kind != "O" or array.ndim != wanted or array.size > _LONGEST:
        return None
    return FileNames(tuple(files.path_of(name) for name in array.ravel()))


def _join(parts: list[FileNames | None]) -> FileNames | None:
    known = [p for p in parts if p is not None and not p.is_endless]
    if len(known) < len(parts):
        return None
    names = tuple(name for p in known for name in p.names)
    return FileNames(names, any(p.is_shuffled for p in known))


def _repeat(inner: FileNames, count: int) -> FileNames | None:
    if count < 0 or inner.is_endless:
        return dataclasses.replace(inner, is_endless=count != 0)
    if len(inner.names) * count > _LONGEST:
        return None
    return dataclasses.replace(inner, names=inner.names * count)


def _select(inner: FileNames, node: nodes.Node) -> FileNames | None:
    """Returns the names that `take`, `skip` or `shard` keeps; None if unknown."""
    total = len(inner.names)
    if isinstance(node, selecting.Take) and (
        node.count < 0 or (node.count >= total and not inner.is_endless)
    ):
        return inner
    # Which names are chosen depends on the order, unless there are none.
    if inner.is_shuffled or not total:
        return inner if not total else None
    order = _numbers(node, total, inner.is_endless)
    if order is None:
        return None
    is_endless = inner.is_endless and not isinstance(node, selecting.Take)
    return FileNames(tuple(inner.names[i % total] for i in order), False, is_endless)


def _numbers(node: nodes.Node, total: int, is_endless: bool) -> range | None:
    """Returns the numbers of the chosen elements; those of one round if endless."""
    if isinstance(node, selecting.Take):
        end = min(node.count, _LONGEST)
        return range(end) if is_endless else range(min(end, total))
    if isinstance(node, selecting.Skip):
        begin = node.count if node.count >= 0 else total
        if is_endless:
            return range(begin, begin + total) if node.count >= 0 else range(0)
        return range(begin, total)
    if isinstance(node, selecting.Shard) and node.shards > 0:
        # After so many rounds through the names the shard begins with the first again.
        rounds = total // math.gcd(total, node.shards)
        end = node.index + rounds * node.shards if is_endless else total
        return range(node.index, end, node.shards)
    return None
