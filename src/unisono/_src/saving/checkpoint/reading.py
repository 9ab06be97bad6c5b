"""Functions that look into checkpoints without objects to restore."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from unisono._src.foundation import errors
from unisono._src.foundation.public_names import publish
from unisono._src.saving.checkpoint import array_io, graph, restore_values, snapshot
from unisono._src.saving.format import (
    checkpoint_directory,
    manifest,
    one_version,
)

PathLike = str | os.PathLike[str]


def latest_checkpoint(
    checkpoint_dir: PathLike, latest_filename: str | None = None
) -> str | None:
    """Returns the path of the newest undamaged checkpoint in a directory, or None.

    Checkpoints are ordered by when they were saved, and every file is verified. A
    damaged checkpoint is passed over with a warning that names the damaged file.

    Args:
        checkpoint_dir: the directory.
        latest_filename: accepted, no effect; no file records which is the latest.

    >>> import tempfile, unisono
    >>> directory = tempfile.mkdtemp()
    >>> unisono.train.latest_checkpoint(directory) is None
    True
    >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable(1.0))
    >>> paths = [checkpoint.save(directory + "/ckpt") for _ in range(2)]
    >>> unisono.train.latest_checkpoint(directory) == paths[-1]
    True
    """
    found = checkpoint_directory.find_latest(
        snapshot.absolute_path(checkpoint_dir), check=restore_values.check_keys
    )
    if found is None:
        return None
    return os.path.join(os.fspath(checkpoint_dir), found.name)


def _find_checkpoint(path: PathLike) -> pathlib.Path:
    """Returns a checkpoint: the path itself, or the latest one in that directory."""
    where = snapshot.absolute_path(path)
    if where.is_dir() and not (where / manifest.NAME).exists():
        latest = checkpoint_directory.find_latest(
            where, check=restore_values.check_keys
        )
        return latest or where
    return where


def list_variables(ckpt_dir_or_file: PathLike) -> list[tuple[str, list[int]]]:
    """Returns key and shape of every value in a checkpoint, in the order of keys.

    Args:
        ckpt_dir_or_file: a checkpoint, or a directory, whose latest checkpoint is used.

    Raises:
        NotFoundError: there is no checkpoint.
        DataLossError: the checkpoint is damaged.

    >>> import tempfile, unisono
    >>> v = unisono.Variable([1.0, 2.0])
    >>> path = unisono.train.Checkpoint(v=v).write(tempfile.mkdtemp() + "/c")
    >>> unisono.train.list_variables(path)
    [('_CHECKPOINTABLE_OBJECT_GRAPH', []), ('v/.ATTRIBUTES/VARIABLE_VALUE', [2])]
    """
    found = one_version.read(_find_checkpoint(ckpt_dir_or_file), manifest.read)
    listed = [(key, list(entry.shape)) for key, entry in found.entries.items()]
    return sorted([(graph.OBJECT_GRAPH, []), *listed])


def load_variable(ckpt_dir_or_file: PathLike, name: str) -> Any:
    """Returns one value of a checkpoint: a NumPy array, a random key or plain data.

    Args:
        ckpt_dir_or_file: a checkpoint, or a directory, whose latest checkpoint is used.
        name: the key of the value, as `list_variables` gives it.

    Raises:
        NotFoundError: there is no such checkpoint, or it has no such key.
        DataLossError: the checkpoint is damaged.

    >>> import tempfile, unisono
    >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable([1.0, 2.0]), epoch=3)
    >>> path = checkpoint.save(tempfile.mkdtemp() + "/ckpt")
    >>> unisono.train.load_variable(path, "v/.ATTRIBUTES/VARIABLE_VALUE")
    array([1., 2.], dtype=float32)
    >>> unisono.train.load_variable(path, "epoch/.ATTRIBUTES/PYTHON_VALUE")
    3
    """
    path = _find_checkpoint(ckpt_dir_or_file)
    return one_version.read(path, lambda where: _load_value(path, where, name))


def _load_value(path: pathlib.Path, where: pathlib.Path, name: str) -> Any:
    """Returns one value of the version of a checkpoint that can be read at `where`."""
    found = restore_values.read_usable(where)
    if name == graph.OBJECT_GRAPH:
        return [{"children": n.children, "key": n.key} for n in found.nodes]
    entry = found.entries.get(name)
    if entry is None:
        raise errors.NotFoundError(
            f"Key {name} not found in checkpoint {path}; its keys are "
            f"{', '.join(sorted(found.entries)) or 'none'}."
        )
    return _load_entry(where, entry)


def _load_entry(path: pathlib.Path, entry: manifest.Entry) -> Any:
    """Returns the value of an entry of a verified checkpoint."""
    if not entry.has_array:
        return entry.data()
    wanted = {entry.place: entry} if entry.file else {}
    read = array_io.read(path / manifest.ARRAYS, wanted)
    return restore_values.to_array(entry, read.get(entry.place))


publish("unisono.train", latest_checkpoint, list_variables, load_variable)
