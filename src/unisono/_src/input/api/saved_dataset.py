"""Writes a dataset into a folder, and reads it again."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, final

from unisono._src.execution import specs
from unisono._src.foundation import errors
from unisono._src.input.plan import elements, nodes
from unisono._src.input.sources import files
from unisono._src.input.stages import element_files, grouping, mapping, mixing

_log = logging.getLogger("unisono")
_FORMAT, _OLD_FORMAT = "unisono-dataset-2", "unisono-dataset-1"
# The file that lists the files of the dataset; it is written last, so that a folder
# without it holds no dataset.
_INDEX = "dataset.json"
_SHARD, _PARTIAL = ".elements", ".partial"
# For this many seconds a file that no dataset lists may be one that another program is
# still writing; an older one is removed.
_IN_USE = 24 * 3600.0
COMPRESSIONS = (None, "", "NONE", "GZIP")
# How many seconds `load` waits for a dataset, and how often it looks.
PATIENCE = 600.0
_LOOK = 1.0


def check_compression(compression: object) -> str | None:
    """Returns None or "GZIP".

    Raises:
        ValueError: the compression is unknown.
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
    """Writes every element into the folder `path`.

    A dataset that was saved there before stays whole until the new one is.

    Args:
        node: the plan of the dataset.
        path: the folder.
        compression: None or "GZIP".
        shard_fn: returns the shard of an element; None writes one shard.

    Raises:
        OSError: the folder cannot be written.
    """
    spec = node.spec
    # Raises if it cannot be written, before a file is.
    element_files.spec_to_json(spec)
    is_told = nodes.tells_spec(node)
    with _name_dataset_in_errors(path):
        os.makedirs(path, exist_ok=True)
    # First the shards under new names, then the index in one replacement, and at
    # last the old files go: the folder has a whole dataset at every moment.
    folder = _Folder(path, compression)
    source = node.cursor()
    try:
        for element in source:
            number = 0
            if shard_fn is not None:
                given = mapping.call(shard_fn, element)
                number = grouping.integer_of(given, "shard_func")
            with _name_dataset_in_errors(path):
                folder.shard(number).write(element)
            if not is_told:
                # The spec is that of the first element; others may have other sizes.
                spec = mixing.join_specs(spec, elements.spec_of(element))
        with _name_dataset_in_errors(path):
            folder.finish(element_files.spec_to_json(spec))
    except BaseException:
        folder.discard()
        raise
    finally:
        source.close()
    folder.sweep()


@contextlib.contextmanager
def _name_dataset_in_errors(path: str) -> Iterator[None]:
    """Adds the path of the dataset to errors of the operating system."""
    try:
        yield
    except OSError as e:
        told = f"Cannot save a dataset at {path}: {e.strerror or e}"
        raise OSError(e.errno, told, e.filename) from e


@final
class _Folder:
    """The files of a dataset that is being written; `finish` makes them valid."""

    def __init__(self, path: str, compression: str | None) -> None:
        self._path, self._compression = path, compression
        # Makes names that no earlier dataset in this folder has.
        self._run = secrets.token_hex(8)
        self._old = _files_of(path)
        self._shards: dict[int, element_files.ElementWriter] = {}

    def shard(self, number: int) -> element_files.ElementWriter:
        """Returns the file of a shard, which is made when it is first needed."""
        if number not in self._shards:
            name = f"{self._run}-{number:05d}{_SHARD}"
            path = os.path.join(self._path, name)
            self._shards[number] = element_files.ElementWriter(path, self._compression)
        return self._shards[number]

    def finish(self, spec: object) -> None:
        """Ends the files, and puts them in the place of an earlier dataset at once."""
        shards = [s for _, s in sorted(self._shards.items())] or [self.shard(0)]
        for shard in shards:
            shard.finish()
        index = {
            "format": _FORMAT,
            "spec": spec,
            "compression": self._compression,
            "shards": [[os.path.basename(s.path), s.count] for s in shards],
        }
        index["crc32c"] = _checksum(index)
        aside = os.path.join(self._path, f"{self._run}{_PARTIAL}")
        with open(aside, "x", encoding="utf-8") as f:
            json.dump(index, f, indent=1)
        os.replace(aside, os.path.join(self._path, _INDEX))

    def sweep(self) -> None:
        """Removes files of earlier datasets that no one is writing any more."""
        keep = {os.path.basename(s.path) for s in self._shards.values()}
        for entry in os.scandir(self._path):
            if entry.name in keep or not entry.name.endswith((_SHARD, _PARTIAL)):
                continue
            with contextlib.suppress(OSError):
                age = time.time() - entry.stat().st_mtime
                if entry.name in self._old or age > _IN_USE:
                    os.unlink(entry.path)

    def discard(self) -> None:
        """Removes the files that were written."""
        for shard in self._shards.values():
            shard.discard()


def _files_of(path: str) -> list[str]:
    """Returns the files of the dataset that was saved at `path` before, if any."""
    try:
        return [name for name, _ in _read_index(path).shards]
    except (errors.NotFoundError, errors.DataLossError):
        return []


@final
class _Index(NamedTuple):
    """The content of a saved dataset's index.

    Attributes:
        spec: the specs of an element.
        compression: None or "GZIP".
        shards: name and number of elements of each file.
    """

    spec: Any
    compression: str | None
    shards: list[tuple[str, int]]


def _checksum(fields: dict[str, Any]) -> int:
    """Returns the checksum of an index, however its JSON is laid out."""
    return files.checksum(json.dumps(fields, sort_keys=True).encode())


def _read_index(path: str) -> _Index:
    """Returns the index of a saved dataset.

    Raises:
        NotFoundError: there is none.
        DataLossError: it is damaged.
    """
    name = os.path.join(path, _INDEX)
    try:
        with open(name, encoding="utf-8") as f:
            fields = json.load(f)
    except (FileNotFoundError, NotADirectoryError) as e:
        raise errors.NotFoundError(
            f"No dataset was saved at {path}: there is no {_INDEX}. Datasets that "
            "TensorFlow saved can be read by TensorFlow only."
        ) from e
    except (ValueError, RecursionError) as e:
        raise errors.DataLossError(f"{name} is damaged: {e}") from e
    form = fields.get("format") if isinstance(fields, dict) else None
    if form == _OLD_FORMAT:
        raise errors.DataLossError(
            f"The dataset at {path} was saved by an earlier release of unisono, "
            "without checksums, and cannot be read. Save the dataset again."
        )
    if form != _FORMAT:
        raise errors.DataLossError(
            f"{name} does not belong to a dataset that unisono saved."
        )
    try:
        return _parse_index(fields)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as e:
        raise errors.DataLossError(
            f"{name} is damaged: {e}. Save the dataset again."
        ) from e


def _parse_index(fields: dict[str, Any]) -> _Index:
    """Returns an index; any exception means that it is malformed."""
    if fields.keys() != {"format", "spec", "compression", "shards", "crc32c"}:
        raise ValueError("it is not complete")
    if fields.pop("crc32c") != _checksum(fields):
        raise ValueError("its checksum does not match its contents")
    shards = [(name, count) for name, count in fields["shards"]]
    for name, count in shards:
        # A file of another folder is none of this dataset.
        if os.path.basename(name) != name or not name.endswith(_SHARD):
            raise ValueError(f"a file has the odd name {name!r}")
        if type(count) is not int or not 0 <= count < 2**63:
            raise ValueError(f"{name} claims {count!r} elements")
    spec = element_files.spec_from_json(fields["spec"])
    return _Index(spec, check_compression(fields["compression"]), shards)


def load(
    path: str, spec: elements.Spec, compression: object, wait: bool
) -> list[element_files.SavedShard]:
    """Returns the shards of a saved dataset.

    Raises:
        NotFoundError: no dataset was saved at `path`, even after waiting.
        ValueError: it was saved with another compression.
        InvalidArgumentError: its elements do not fit `spec`.
    """
    index = _wait_for_index(path) if wait else _read_index(path)
    found = index.spec
    if spec is not None:
        _check_same(spec, found, path)
    if compression is not None and check_compression(compression) != index.compression:
        raise ValueError(
            f"The dataset at {path} was saved with compression="
            f"{index.compression!r}, received {compression!r}."
        )
    return [
        element_files.SavedShard(
            os.path.join(path, name), index.compression, count, spec or found
        )
        for name, count in index.shards
    ]


def _wait_for_index(path: str) -> _Index:
    """Returns the index of a saved dataset, waiting until it is there.

    Raises:
        NotFoundError: it was not there in time.
    """
    end = time.monotonic() + PATIENCE
    has_told = False
    while True:
        try:
            return _read_index(path)
        except errors.NotFoundError:
            if time.monotonic() > end:
                raise
        if not has_told:
            _log.info("Waiting up to %.0f s for a dataset at %s.", PATIENCE, path)
            has_told = True
        time.sleep(_LOOK)


def _check_same(given: object, found: object, path: str) -> None:
    """Raises unless saved elements fit the spec that the user gave."""
    here, there = list(elements.paths(given)), list(elements.paths(found))
    if not all(isinstance(s, specs.TensorSpec) for _, s in here):
        raise TypeError(f"element_spec must consist of TensorSpec, received {given!r}.")
    if [p for p, _ in here] != [p for p, _ in there] or not all(
        a.dtype == b.dtype and (b.shape.rank is None or a.fits(b.shape))
        for (_, a), (_, b) in zip(here, there, strict=True)
    ):
        raise errors.InvalidArgumentError(
            f"The dataset at {path} has elements of {found}, which do not fit the "
            f"given element_spec {given}."
        )
