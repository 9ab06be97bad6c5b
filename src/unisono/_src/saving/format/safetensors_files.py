"""Files of safetensors, which hold named arrays as plain bytes.

A file is eight bytes with the length of a header, the header in JSON, and the bytes of
all arrays, one after the other. The file is mapped into memory, so that only what is
used of an array is read. Nothing in a header is believed before it is checked.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np

from unisono._src.foundation import errors
from unisono._src.saving.format import array_types, signed_text

Path = str | os.PathLike[str]

# The format's own limit for a header, in bytes; here for an index, too.
_LARGEST_HEADER = 100_000_000
_LENGTH = 8
# How the header names types: the name here, or None, and the bits of an element.
_TYPES: dict[str, tuple[str | None, int]] = {
    "BOOL": ("bool", 8), "U8": ("uint8", 8), "I8": ("int8", 8), "U16": ("uint16", 16),
    "I16": ("int16", 16), "U32": ("uint32", 32), "I32": ("int32", 32),
    "U64": ("uint64", 64), "I64": ("int64", 64), "F16": ("float16", 16),
    "BF16": ("bfloat16", 16), "F32": ("float32", 32), "F64": ("float64", 64),
    "C64": ("complex64", 64), "F8_E4M3": ("float8_e4m3fn", 8),
    "F8_E5M2": ("float8_e5m2", 8), "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8), "F8_E8M0": ("float8_e8m0fnu", 8),
    # NumPy has no arrays of these.
    "F4": (None, 4), "F6_E2M3": (None, 6), "F6_E3M2": (None, 6),
}  # fmt: skip
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_ENDING = ".safetensors"


@final
@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """An array of a file.

    Attributes:
        name: its name.
        kind: the name of its type in the header.
        shape: its shape.
        file: the bytes of all arrays of the file, mapped into memory.
        begin: where its bytes begin among them.
        end: where they end.
        path: the path of the file.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    file: np.ndarray
    begin: int
    end: int
    path: pathlib.Path

    @property
    def dtype(self) -> np.dtype | None:
        """The type of the elements; None if there are no arrays of it."""
        known = _TYPES[self.kind][0]
        return None if known is None else array_types.KNOWN.get(known)

    def view(self) -> np.ndarray:
        """Returns the array; its bytes are read from the file when they are used."""
        assert self.dtype is not None
        return self.file[self.begin : self.end].view(self.dtype).reshape(self.shape)


Tensors = dict[str, StoredTensor]


def open_all(path: Path | Sequence[Path]) -> Tensors:
    """Returns the arrays of a file, of several files, or of a folder.

    Args:
        path: a file; an index (``….index.json``); a list of files; or a folder with
            ``model.safetensors.index.json``, or with one file.

    Raises:
        DataLossError: a file is damaged, or is no such file.
        InvalidArgumentError: two files have arrays of the same name; or a folder has
            several files and no index.
        NotFoundError: there is no such file.
    """
    if not isinstance(path, str | os.PathLike):
        return _join(map(_open, map(pathlib.Path, path)))
    place = pathlib.Path(path)
    if place.is_dir():
        place = _find_in_folder(place)
    return _open_index(place) if place.name.endswith(".json") else _open(place)


def _find_in_folder(folder: pathlib.Path) -> pathlib.Path:
    """Returns the index of a folder, or its only file."""
    for name in (_INDEX, _SINGLE):
        if (folder / name).is_file():
            return folder / name
    found = sorted(folder.glob(f"*{_ENDING}"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise errors.NotFoundError(
            f"The folder {folder} has no file that ends in {_ENDING}."
        )
    shown = ", ".join(p.name for p in found[:5]) + (" …" if len(found) > 5 else "")
    raise errors.InvalidArgumentError(
        f"The folder {folder} has {len(found)} files ({shown}) and no {_INDEX}, which "
        "would say what belongs together. Name the files in a list."
    )


def _join(files: Iterable[Tensors]) -> Tensors:
    """Returns the arrays of several files."""
    every: Tensors = {}
    for found in files:
        for name, tensor in found.items():
            if name in every:
                raise errors.InvalidArgumentError(
                    f"The files {every[name].path} and {tensor.path} both have a "
                    f"tensor {name!r}. Name the files of one model only."
                )
            every[name] = tensor
    return every


def _open_index(path: pathlib.Path) -> Tensors:
    """Returns the arrays that an index lists."""
    _check_file(path)
    if path.stat().st_size > _LARGEST_HEADER:
        raise _damage_error(path, f"it has more than {_LARGEST_HEADER:,} bytes")
    index = _parse(path, path.read_bytes())
    places = index.get("weight_map")
    if not isinstance(places, dict) or not all(
        isinstance(file, str) and _is_plain_name(file) for file in places.values()
    ):
        raise _damage_error(
            path, "its weight_map is not a list of tensors, each with a file beside it"
        )
    files = {name: _open(path.parent / name) for name in sorted({*places.values()})}
    for name, file in places.items():
        if name not in files[file]:
            raise _damage_error(path, f"{file} has no tensor {name[:80]!r}")
    return {name: files[file][name] for name, file in places.items()}


def _is_plain_name(file: str) -> bool:
    """Whether a name is that of a file in the same folder."""
    return file not in ("", ".", "..") and not set(file) & set("/\\\0")


def _check_file(path: pathlib.Path) -> None:
    if not path.is_file():
        raise errors.NotFoundError(f"There is no file {path}.")


def _open(path: pathlib.Path) -> Tensors:
    """Returns the arrays of one file."""
    _check_file(path)
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
        # Looked at before anything of that length is read.
        if size < _LENGTH:
            raise _damage_error(
                path, f"it has {size} bytes, and its header begins at 8"
            )
        if length > _LARGEST_HEADER:
            raise _damage_error(
                path,
                f"its header would have {length:,} bytes, and {_LARGEST_HEADER:,} are "
                "allowed",
            )
        if length > size - _LENGTH:
            raise _damage_error(
                path, f"its header would have {length:,} bytes, the file has {size:,}"
            )
        text = file.read(length)
    if not text.startswith(b"{"):
        raise _damage_error(path, "its header does not begin with '{'")
    header = _parse(path, text)
    described = {k: v for k, v in header.items() if k != "__metadata__"}
    rest = size - _LENGTH - length
    content = np.zeros(0, np.uint8)
    if rest:
        content = np.memmap(path, np.uint8, "r", _LENGTH + length, (rest,))
    try:
        found = {k: _describe(k, v, content, path) for k, v in described.items()}
        _check_places(found.values(), rest)
    except ValueError as error:
        raise _damage_error(path, error) from None
    return found


def _parse(path: pathlib.Path, text: bytes) -> dict[str, Any]:
    """Returns the object that a JSON text describes."""
    try:
        found = signed_text.parse_json(path, text)
    except errors.DataLossError as error:
        raise _damage_error(path, f"its header is no JSON: {error.__cause__}") from None
    if not isinstance(found, dict):
        raise _damage_error(path, "its header is no JSON object")
    return found


def _describe(
    name: str, told: object, content: np.ndarray, path: pathlib.Path
) -> StoredTensor:
    """Returns an array that a header describes; raises `ValueError` if malformed."""
    what = f"the tensor {name[:80]!r}"
    if not isinstance(told, Mapping) or not {"dtype", "shape", "data_offsets"} <= {
        *told
    }:
        raise ValueError(f"{what} has no dtype, shape and data_offsets")
    kind, shape, offsets = told["dtype"], told["shape"], told["data_offsets"]
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ValueError(f"{what} has the unknown type {str(kind)[:80]!r}")
    count = array_types.count(shape)
    is_range = isinstance(offsets, list) and len(offsets) == 2
    if not is_range or not all(type(n) is int for n in offsets):
        raise ValueError(f"{what} has no two offsets")
    begin, end = offsets
    if not 0 <= begin <= end <= len(content):
        raise ValueError(
            f"{what} would be at the bytes {begin} to {end} of {len(content)}"
        )
    bits = count * _TYPES[kind][1]
    if bits != 8 * (end - begin):
        raise ValueError(
            f"{what} of type {kind} and shape {tuple(shape)} takes {bits // 8} bytes, "
            f"and has {end - begin}"
        )
    return StoredTensor(name, kind, tuple(shape), content, begin, end, path)


def _check_places(tensors: Iterable[StoredTensor], size: int) -> None:
    """Raises `ValueError` unless each byte belongs to exactly one array."""
    at, before = 0, ""
    for tensor in sorted(tensors, key=lambda t: (t.begin, t.end)):
        if tensor.begin < at:
            raise ValueError(f"the tensors {before!r} and {tensor.name!r} overlap")
        if tensor.begin > at:
            raise ValueError(
                f"{tensor.begin - at} bytes before {tensor.name!r} are of no tensor"
            )
        at, before = tensor.end, tensor.name
    if at != size:
        raise ValueError(f"{size - at} bytes at its end are of no tensor")


def _damage_error(path: pathlib.Path, why: object) -> errors.DataLossError:
    return errors.DataLossError(
        f"{path} is damaged, or is no file of safetensors: {why}."
    )


def digest(tensors: Tensors) -> str:
    """Returns a text that tells the names, types and shapes of all arrays."""
    return json.dumps([(t.name, t.kind, t.shape) for t in tensors.values()])
