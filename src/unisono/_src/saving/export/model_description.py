"""The description of an exported model: its objects and functions, in one file."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any, final

from unisono._src.foundation import errors
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.saving.format import (
    checkpoint_directory,
    checksummed_files,
    manifest,
    signed_text,
)

NAME = checkpoint_directory.MARKER_FILES[1]
FUNCTIONS = "functions"
# TensorFlow's path of the weights below the directory of a model.
VARIABLES = ("variables", "variables")
FORMAT, VERSION = "unisono saved model", 1

OBJECT, LIST, TUPLE, DICT, LEAF = "object", "list", "tuple", "dict", "leaf"
# Names that `LoadedObject` uses itself; a file must not set them.
_RESERVED = ("_functions", "_unisono_pending")
_KINDS = (OBJECT, LIST, TUPLE, DICT, LEAF)


@final
@dataclasses.dataclass(frozen=True)
class Item:
    """An object of the model.

    Attributes:
        kind: OBJECT, LIST, TUPLE, DICT or LEAF.
        children: the numbers of the objects below it, by name.
        key: the key of a leaf's value in the checkpoint of the weights.
        variable: name, trainable, synchronization and aggregation of a variable.
    """

    kind: str
    children: dict[str, int]
    key: str | None = None
    variable: dict[str, Any] | None = None


@final
@dataclasses.dataclass(frozen=True)
class SavedFunction:
    """A function of the model.

    Attributes:
        owner: the number of the object that has it, or None for a signature.
        name: its name in the owner, or that of the signature.
        file: the name of the program's file.
        uses: the numbers of the variables that it takes, in order.
        writes: the positions in `uses` of the variables that it sets.
        arguments: the names of its arguments.
        size: the size of the file.
        crc32: the CRC-32 of the file.
    """

    owner: int | None
    name: str
    file: str
    uses: tuple[int, ...]
    writes: tuple[int, ...]
    arguments: tuple[str, ...]
    size: int
    crc32: int


@final
@dataclasses.dataclass(frozen=True)
class ModelDescription:
    """The objects of a model, the root first, and its functions."""

    items: tuple[Item, ...]
    functions: tuple[SavedFunction, ...]


def write(directory: pathlib.Path, made: ModelDescription) -> None:
    """Writes the description of a model."""
    fields = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(made)}
    signed_text.write(directory / NAME, json.dumps(fields).encode())


def read(directory: pathlib.Path) -> ModelDescription:
    """Returns the description of a model, after checking it and the programs' files.

    Raises:
        NotFoundError: there is no model.
        DataLossError: a file is damaged or malformed.
    """
    path = directory / NAME
    try:
        _, rest = signed_text.read(path)
    except FileNotFoundError:
        raise errors.NotFoundError(
            f"There is no saved model {directory}: it has no {NAME}. Give the "
            "directory that saved_model.save was given."
        ) from None
    fields = signed_text.parse_json(path, rest)
    try:
        if (fields["format"], fields["version"]) != (FORMAT, VERSION):
            raise ValueError(f"its format is {fields['format']} {fields['version']}")
        items = tuple(_parse_item(x, len(fields["items"])) for x in fields["items"])
        saved = tuple(_parse_function(x, items) for x in fields["functions"])
        if not items:
            raise ValueError("it has no objects")
    except (
        KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError,
    ) as error:  # fmt: skip
        # The checks above raise these for fields that are missing or malformed.
        raise signed_text.damage_error(path, error) from error
    for function in saved:
        _check_file(directory / FUNCTIONS / function.file, function)
    return ModelDescription(items, saved)


def _parse_item(fields: dict[str, Any], count: int) -> Item:
    """Returns an object's description; any exception means that it is malformed."""
    found = Item(**fields)
    # Leaves, and only they, have a value.
    if found.kind not in _KINDS or (found.kind == LEAF) != (found.key is not None):
        raise ValueError(f"an object is of unknown kind {found.kind!r}")
    if not (found.key is None or isinstance(found.key, str)):
        raise ValueError(f"{str(found.key)[:80]!r} is not a key")
    for name, child in found.children.items():
        _check_number(child, count)
        if name.startswith("__") or name in _RESERVED:
            raise ValueError(f"an object has the reserved name {name!r}")
    if found.variable is not None:
        about = found.variable
        VariableSynchronization[about["synchronization"]]
        VariableAggregation[about["aggregation"]]
        if not isinstance(about["name"], str) or type(about["trainable"]) is not bool:
            raise ValueError("a variable is malformed")
    return found


def _parse_function(fields: dict[str, Any], items: tuple[Item, ...]) -> SavedFunction:
    given: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()
    }
    found = SavedFunction(**given)
    if not isinstance(found.file, str) or not found.file.isalnum():
        raise ValueError(f"a function is stored under the odd name {found.file!r}")
    is_special = found.name.startswith("__") and found.name != "__call__"
    if not isinstance(found.name, str) or is_special:
        raise ValueError(f"a function has the reserved name {found.name!r}")
    if found.owner is not None:
        _check_number(found.owner, len(items))
    for number in found.uses:
        _check_number(number, len(items))
        if items[number].variable is None:
            raise ValueError(f"the function {found.name} uses an object as a variable")
    for position in found.writes:
        _check_number(position, len(found.uses))
    return found


def _check_number(number: object, count: int) -> None:
    if type(number) is not int or not 0 <= number < count:
        raise ValueError(f"there is no object {number!r}")


def _check_file(path: pathlib.Path, saved: SavedFunction) -> None:
    if path.is_symlink() or not path.is_file():
        raise signed_text.damage_error(path, "it is missing")
    if checksummed_files.checksum(path) != manifest.File(saved.size, saved.crc32):
        raise signed_text.damage_error(path, "its checksum does not match its contents")
