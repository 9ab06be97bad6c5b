"""The manifest of a checkpoint: its contents, and a checksum of every file.

The file has three lines: the SHA-256 of the rest; a small header, which is enough to
order checkpoints; and the body. A manifest may come from a stranger, so every field is
checked before it is used (docs/decisions/0011).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from typing import Any, final

from unisono._src.foundation import errors
from unisono._src.saving.format import array_types, plain_data, signed_text

NAME = "capsule.json"
ARRAYS = "arrays"
# Version 1 had no packs.
VERSION, READABLE_VERSIONS = 2, (1, 2)
FORMAT = "unisono checkpoint"
_MAX_HEADER_BYTES = 4096
# Times are nanoseconds in 64 bits, which last until the year 2262.
_MAX_TIME = 2**63

# The exceptions of reading fields that are missing or of other types than expected.
_MALFORMED = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError,
    RecursionError,
)  # fmt: skip

# The kinds of values.
VARIABLE, ARRAY, KEY = "variable", "array", "random key"
PLAIN, STATE = "plain", "state"
_ARRAY_KINDS = (VARIABLE, ARRAY, KEY)
_KINDS = (*_ARRAY_KINDS, PLAIN, STATE)


@final
@dataclasses.dataclass(frozen=True)
class Entry:
    """One value of a checkpoint.

    Attributes:
        kind: VARIABLE, ARRAY, KEY, PLAIN for plain data, or STATE for the result of an
            object's `get_state`.
        shape: the shape of an array.
        dtype: the name of an array's element type.
        file: the array's name among the stored arrays, or that of the pack which holds
            it; empty if it has no elements.
        at: where an array begins in its pack, in bytes; None if it has none.
        pack_bytes: the size of that pack.
        impl: the name of a random key's generator.
        value: plain data or state, encoded.
        is_by_worker: whether `value` is a list with one value for each worker, because
            the workers that saved had different ones.
    """

    kind: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    file: str = ""
    impl: str = ""
    value: Any = None
    is_by_worker: bool = False
    at: int | None = None
    pack_bytes: int = 0

    @property
    def place(self) -> str:
        """A name for where the array is stored, which no other array has."""
        return self.file if self.at is None else f"{self.file}@{self.at}"

    @property
    def has_array(self) -> bool:
        """Whether the value is stored as an array."""
        return self.kind in _ARRAY_KINDS

    @functools.cached_property
    def nbytes(self) -> int:
        """The size of the array, or of the data as JSON."""
        if not self.has_array:
            return len(json.dumps(self.value))
        return array_types.count(self.shape) * array_types.parse(self.dtype).itemsize

    def data(self) -> Any:
        """Returns plain data or state, decoded; a list by worker if `is_by_worker`."""
        return plain_data.decode(self.value)


@final
@dataclasses.dataclass(frozen=True)
class ObjectNode:
    """One object of the saved graph.

    Attributes:
        children: the numbers of the objects that it holds, by name.
        key: the key of its own value, or None.
    """

    children: dict[str, int]
    key: str | None = None


@final
@dataclasses.dataclass(frozen=True)
class File:
    """The size and the CRC-32 of one file."""

    size: int
    crc32: int


@final
@dataclasses.dataclass(frozen=True)
class Header:
    """The part of a manifest by which checkpoints are ordered.

    Attributes:
        saved_at: nanoseconds since 1970, later than every checkpoint that was in the
            directory before.
        is_step: whether `save` made the checkpoint, so that it can be the latest of
            its directory. A checkpoint from `write` cannot.
        number: the number at the end of its name, or None.
        job: the name of the process that saved it; empty if it is not known.
    """

    saved_at: int
    is_step: bool
    number: int | None = None
    job: str = ""


@final
@dataclasses.dataclass(frozen=True)
class Manifest:
    """The contents of a checkpoint.

    Attributes:
        header: when and how it was saved.
        nodes: the graph of objects; the root is number 0.
        entries: the values, by key.
        files: size and checksum of every file, by relative path.
        closures: of parameter servers, the numbers of the closures whose changes are in
            the values and may come again: by the program that saved, and by server.
        digest: the SHA-256 of the manifest's file; empty before it is written.
    """

    header: Header
    nodes: tuple[ObjectNode, ...]
    entries: dict[str, Entry]
    files: dict[str, File]
    closures: dict[str, dict[str, list[int]]] = dataclasses.field(default_factory=dict)
    digest: str = ""


def write(directory: pathlib.Path, manifest: Manifest) -> None:
    """Writes the manifest of a checkpoint and flushes it to the disk.

    Raises:
        SaveError: the plain data of the checkpoint is too large.
    """
    header = {"format": FORMAT, "version": VERSION}
    header |= dataclasses.asdict(manifest.header)
    body: dict[str, Any] = {
        "nodes": [
            {"children": n.children} | ({} if n.key is None else {"key": n.key})
            for n in manifest.nodes
        ],
        "entries": {k: _entry_fields(e) for k, e in manifest.entries.items()},
        "files": {k: [f.size, f.crc32] for k, f in manifest.files.items()},
    }
    if manifest.closures:
        body["closures"] = manifest.closures
    rest = b"\n".join(json.dumps(x, allow_nan=False).encode() for x in (header, body))
    signed_text.write(directory / NAME, rest)


def _entry_fields(entry: Entry) -> dict[str, Any]:
    if not entry.has_array:
        fields = {"kind": entry.kind, "value": entry.value}
        return fields | ({"by_worker": True} if entry.is_by_worker else {})
    fields = {
        "kind": entry.kind,
        "shape": list(entry.shape),
        "dtype": entry.dtype,
        "file": entry.file,
    }
    if entry.at is not None:
        fields["at"] = entry.at
    return fields | ({"impl": entry.impl} if entry.impl else {})


def _parse_header(path: pathlib.Path, line: bytes) -> Header:
    """Returns the header in the second line of a manifest.

    Raises:
        DataLossError: it is malformed, or of another version of the format.
    """
    found = signed_text.parse_json(path, line)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise signed_text.damage_error(path, "it is not a manifest")
    version = found.get("version")
    if type(version) is not int or version not in READABLE_VERSIONS:
        raise errors.DataLossError(
            f"{path} has version {version!r} of the format; this release of unisono "
            f"reads versions {READABLE_VERSIONS[0]} to {READABLE_VERSIONS[-1]}."
        )
    fields = Header(
        found.get("saved_at"),  # type: ignore[arg-type]
        found.get("is_step"),  # type: ignore[arg-type]
        found.get("number"),
        found.get("job", ""),
    )
    is_numbered = fields.number is None or type(fields.number) is int
    is_dated = type(fields.saved_at) is int and 0 <= fields.saved_at < _MAX_TIME
    is_flagged = type(fields.is_step) is bool and type(fields.job) is str
    if not (is_numbered and is_dated and is_flagged):
        raise signed_text.damage_error(path, "its header is malformed")
    return fields


def read_header(directory: pathlib.Path) -> Header:
    """Returns the header of a checkpoint, without verifying the manifest.

    Raises:
        DataLossError: the header is malformed.
        OSError: there is no manifest.
    """
    path = directory / NAME
    with open(path, "rb") as file:
        # The first line is the digest, which only a reader of the whole can compare.
        file.readline(_MAX_HEADER_BYTES)
        return _parse_header(path, file.readline(_MAX_HEADER_BYTES))


def read(directory: pathlib.Path) -> Manifest:
    """Returns the manifest of a checkpoint, checked; no other file is read.

    Raises:
        DataLossError: the file is damaged, or is not a manifest.
        NotFoundError: there is no committed checkpoint.
    """
    path = directory / NAME
    try:
        digest, rest = signed_text.read(path)
    except FileNotFoundError:
        raise errors.NotFoundError(_missing_message(directory)) from None
    header, _, body = rest.partition(b"\n")
    fields = signed_text.parse_json(path, body)
    try:
        return _parse_body(_parse_header(path, header), fields, digest)
    except errors.DataLossError:
        raise
    except _MALFORMED as error:
        raise signed_text.damage_error(path, error or "it is malformed") from error


def _missing_message(directory: pathlib.Path) -> str:
    if directory.is_dir():
        return (
            f"{directory} holds no checkpoint of its own: it has no {NAME}. Give the "
            "path that `save` or `write` returned, such as "
            f"{directory / 'ckpt-1'}; latest_checkpoint finds the newest one."
        )
    return (
        f"There is no checkpoint {directory}. Please double-check the path; the number "
        "that `save` puts at its end may be missing, as the '-1' of 'path/to/ckpt-1'."
    )


def _parse_body(header: Header, body: Any, digest: str) -> Manifest:
    """Returns the manifest with a body; any exception means that it is malformed."""
    files = {
        _check_file_name(name): File(*_parse_counts(fields))
        for name, fields in body["files"].items()
    }
    entries = {k: _parse_entry(k, fields) for k, fields in body["entries"].items()}
    entries = join_packs(entries)
    # Arrays are stored uncompressed. An array that is larger than all files together
    # is a forgery that would fill the memory.
    have = sum(f.size for f in files.values())
    for key, entry in entries.items():
        if entry.has_array and max(entry.nbytes, entry.pack_bytes) > have:
            raise ValueError(
                f"{key} claims {entry.nbytes:,} bytes, all files together have {have:,}"
            )
    nodes = tuple(_parse_node(fields, len(body["nodes"])) for fields in body["nodes"])
    if not nodes or any(n.key is not None and n.key not in entries for n in nodes):
        raise ValueError("the object graph names entries that are not there")
    closures = _parse_closures(body.get("closures", {}))
    return Manifest(header, nodes, entries, files, closures, digest)


def _parse_closures(found: Any) -> dict[str, dict[str, list[int]]]:
    for servers in found.values():
        for numbers in servers.values():
            if type(numbers) is not list or any(type(n) is not int for n in numbers):
                raise ValueError("the closures of servers are not lists of numbers")
    return dict(found)


def join_packs(entries: dict[str, Entry]) -> dict[str, Entry]:
    """Returns entries that know the sizes of their packs.

    A pack ends where the last of its arrays ends.

    Raises:
        ValueError: two entries share an array, or bytes of a pack. A small file would
            otherwise unfold into many arrays.
    """
    ends: dict[str, int] = {}
    for entry in sorted(
        (e for e in entries.values() if e.file), key=lambda e: (e.file, e.at or 0)
    ):
        start = 0 if entry.at is None else entry.at
        # In the order of their beginnings, so that each must
        # begin behind the one before.
        if start < ends.get(entry.file, 0) or (entry.at is None and entry.file in ends):
            raise ValueError("two entries share one array")
        ends[entry.file] = start + entry.nbytes
    return {
        key: e if e.at is None else dataclasses.replace(e, pack_bytes=ends[e.file])
        for key, e in entries.items()
    }


def _parse_counts(fields: Any) -> tuple[int, int]:
    size, crc = fields
    if type(size) is not int or type(crc) is not int or size < 0:
        raise ValueError(f"{fields} is not a size and a checksum")
    return size, crc


def _check_file_name(name: str) -> str:
    """Returns a file's name; raises if it leaves the directory of arrays."""
    parts = name.split("/")
    is_plain_name = not any(p in ("", ".", "..") for p in parts)
    if not is_plain_name or "\\" in name or "\0" in name or parts[0] != ARRAYS:
        raise ValueError(f"the file name {name!r} leaves the checkpoint")
    return name


def _parse_entry(key: str, fields: dict[str, Any]) -> Entry:
    """Returns an entry; any exception means that its fields are malformed."""
    kind = fields["kind"]
    if kind not in _KINDS:
        raise ValueError(f"{key} is of unknown kind {kind!r}")
    if kind not in _ARRAY_KINDS:
        value, by_worker = fields["value"], fields.get("by_worker", False)
        # Only to see whether it can be decoded; the encoded value is kept.
        plain_data.decode(value)
        if type(by_worker) is not bool or (by_worker and not isinstance(value, list)):
            raise ValueError(f"{key} differs between workers, but has one value")
        return Entry(kind, value=value, is_by_worker=by_worker)
    size = array_types.count(fields["shape"])
    array_types.parse(fields["dtype"])
    file, impl = fields["file"], fields.get("impl", "")
    # So no name can lead out of the directory.
    is_name = isinstance(file, str) and (not file or file.isalnum())
    if not is_name or bool(file) != bool(size):
        raise ValueError(f"{key} is stored under the odd name {file!r}")
    if not isinstance(impl, str) or bool(impl) != (kind == KEY):
        raise ValueError(f"{key} has the generator {impl!r}")
    at = fields.get("at")
    if at is not None and (type(at) is not int or at < 0 or not file):
        raise ValueError(f"{key} begins at {at!r}")
    return Entry(kind, tuple(fields["shape"]), fields["dtype"], file, impl, at=at)


def _parse_node(fields: dict[str, Any], count: int) -> ObjectNode:
    children, key = fields["children"], fields.get("key")
    for child in children.values():
        if type(child) is not int or not 0 <= child < count:
            raise ValueError(f"the object graph has no node {child!r}")
    if not (key is None or isinstance(key, str)):
        raise ValueError(f"{key!r} is not a key")
    return ObjectNode(dict(children), key)
