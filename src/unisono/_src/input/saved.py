"""`save` and `load`: a dataset as a folder."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import time
import uuid
from collections.abc import Callable
from typing import Any

from unisono._src import errors, specs
from unisono._src.input import (
    cachefiles,
    cursors,
    elements,
    grouping,
    layouts,
    mapping,
    nodes,
)

_LOG = logging.getLogger("unisono")
_FORMAT = "unisono-dataset-1"
# Tells which files belong to the dataset; written last.
_INDEX = "dataset.json"
COMPRESSIONS = (None, "", "NONE", "GZIP")
# So long a dataset that is not there yet is waited for, and so often looked for.
PATIENCE = 600.0
_LOOK = 1.0


def check_compression(compression: Any) -> str | None:
    """None or "GZIP".

    Raises:
        ValueError: it is something else.
    """
    if compression not in COMPRESSIONS:
        raise ValueError(
            f"Datasets are saved uncompressed or with GZIP, received "
            f"compression={compression!r}."
        )
    return "GZIP" if compression == "GZIP" else None


def save(
    node: nodes.Node,
    path: str,
    compression: str | None,
    shard_fn: Callable[..., Any] | None,
) -> None:
    """Write every element into the folder `path`; what was there counts till then."""
    spec = layouts.of_spec(node.spec)
    os.makedirs(path, exist_ok=True)
    old = _files_of(path)
    folder = _Folder(path, compression)
    source = node.cursor()
    try:
        for element in source:
            number = 0
            if shard_fn is not None:
                given = mapping.call(shard_fn, element)
                number = grouping.integer_of(given, "shard_func")
            folder.shard(number).write(element)
        folder.finish(spec)
    except BaseException:
        folder.discard()
        raise
    finally:
        source.close()
    for name in old:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(path, name))


class _Shard:
    def __init__(self, path: str, compression: str | None) -> None:
        self.path = path
        self.file = cachefiles.Writing(path, compression)
        self.count = 0

    def write(self, element: Any) -> None:
        self.file.write(element)
        self.count += 1

    def discard(self) -> None:
        self.file.close()
        os.unlink(self.path)


class _Folder:
    """The files of a dataset that is being written; they count when it is finished."""

    def __init__(self, path: str, compression: str | None) -> None:
        self._path, self._compression = path, compression
        # Names that no dataset has which was saved there before.
        self._run = uuid.uuid4().hex[:8]
        self._shards: dict[int, _Shard] = {}

    def shard(self, number: int) -> _Shard:
        if number not in self._shards:
            name = f"{self._run}-{number:05d}.elements"
            path = os.path.join(self._path, name)
            self._shards[number] = _Shard(path, self._compression)
        return self._shards[number]

    def finish(self, spec: Any) -> None:
        shards = [s for _, s in sorted(self._shards.items())] or [self.shard(0)]
        for shard in shards:
            shard.file.finish()
        index = {
            "format": _FORMAT,
            "spec": spec,
            "compression": self._compression,
            "shards": [[os.path.basename(s.path), s.count] for s in shards],
        }
        aside = os.path.join(self._path, f"{self._run}.partial")
        with open(aside, "w", encoding="utf-8") as f:
            json.dump(index, f, indent=1)
        os.replace(aside, os.path.join(self._path, _INDEX))

    def discard(self) -> None:
        for shard in self._shards.values():
            shard.discard()


def _files_of(path: str) -> list[str]:
    """The files of a dataset that was saved there before."""
    try:
        return [name for name, _ in _index(path)["shards"]]
    except (errors.NotFoundError, errors.DataLossError):
        return []


def _index(path: str) -> Any:
    name = os.path.join(path, _INDEX)
    try:
        with open(name, encoding="utf-8") as f:
            index = json.load(f)
    except FileNotFoundError as e:
        raise errors.NotFoundError(
            f"No dataset was saved at {path}: there is no {_INDEX}. Datasets that "
            "TensorFlow saved can be read by TensorFlow only."
        ) from e
    except ValueError as e:
        raise errors.DataLossError(f"{name} is damaged: {e}") from e
    if not isinstance(index, dict) or index.get("format") != _FORMAT:
        raise errors.DataLossError(f"{name} does not belong to a dataset.")
    return index


def load(path: str, spec: Any, compression: Any, wait: bool) -> list[SavedShard]:
    """The shards that were saved.

    Raises:
        NotFoundError: there are none, even after waiting.
        ValueError: they have another spec or compression.
    """
    index = _awaited(path) if wait else _index(path)
    found = layouts.to_spec(index["spec"])
    if spec is not None:
        _check_same(spec, found, path)
    if (
        compression is not None
        and check_compression(compression) != index["compression"]
    ):
        raise ValueError(
            f"The dataset at {path} was saved with compression="
            f"{index['compression']!r}, received {compression!r}."
        )
    return [
        SavedShard(os.path.join(path, name), index["compression"], count, spec or found)
        for name, count in index["shards"]
    ]


def _awaited(path: str) -> Any:
    end = time.monotonic() + PATIENCE
    has_told = False
    while True:
        try:
            return _index(path)
        except errors.NotFoundError:
            if time.monotonic() > end:
                raise
        if not has_told:
            _LOG.info("Waiting up to %.0f s for a dataset at %s.", PATIENCE, path)
            has_told = True
        time.sleep(_LOOK)


def _check_same(given: Any, found: Any, path: str) -> None:
    here, there = list(elements.paths(given)), list(elements.paths(found))
    if [p for p, _ in here] != [p for p, _ in there] or not all(
        a.dtype == b.dtype and (b.shape is None or a.fits(b.shape))
        for (_, a), (_, b) in zip(here, there, strict=True)
    ):
        raise ValueError(
            f"The dataset at {path} has elements of {found}, which do not fit the "
            f"given element_spec {given}."
        )


@dataclasses.dataclass(frozen=True, eq=False)
class SavedShard(nodes.Node):
    """The elements of one file of a saved dataset.

    Attributes:
        path: the file.
        compression: None or "GZIP".
        count: how many elements it has.
        signature: their spec.
    """

    path: str
    compression: str | None
    count: int
    signature: Any

    def cursor(self) -> cursors.Cursor:
        """From the file."""
        return cachefiles.Reading(self.path, self.compression, lambda: self.signature)

    @property
    def cardinality(self) -> int:
        """How many there are."""
        return self.count

    def _spec(self) -> Any:
        return self.signature

    def __str__(self) -> str:
        return f"Saved({self.path})"


@dataclasses.dataclass(frozen=True, eq=False)
class Shards(nodes.Node):
    """A dataset of datasets, one for each file."""

    datasets: tuple[Any, ...]

    def cursor(self) -> cursors.Cursor:
        """One after the other."""
        return cursors.Iterated(self.datasets.__iter__)

    @property
    def cardinality(self) -> int:
        """How many files there are."""
        return len(self.datasets)

    def _spec(self) -> Any:
        return specs.DatasetSpec(self.datasets[0].element_spec)
