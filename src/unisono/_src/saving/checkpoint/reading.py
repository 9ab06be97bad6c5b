"""Looking into checkpoints without objects to restore."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from unisono._src.foundation import errors
from unisono._src.saving.checkpoint import array_io, graph, restore_values, snapshot
from unisono._src.saving.format import checkpoint_directory, checksummed_files, manifest

PathLike = str | os.PathLike[str]


def latest_checkpoint(
    checkpoint_dir: PathLike, latest_filename: str | None = None
) -> str | None:
    """The path of the newest checkpoint in a directory that is whole, or None.

    It looks at the disk: checkpoints are ordered by when they were saved, and every
    file is checked. A damaged one is passed over with a warning that names the file.

    Args:
        checkpoint_dir: the directory.
        latest_filename: accepted; there is no file that says which is the latest.
    """
    found = checkpoint_directory.find_latest(snapshot.absolute_path(checkpoint_dir))
    if found is None:
        return None
    return os.path.join(os.fspath(checkpoint_dir), found.name)


def _find_checkpoint(path: PathLike) -> pathlib.Path:
    """The checkpoint of a path, which may be that of a directory of checkpoints."""
    where = snapshot.absolute_path(path)
    if where.is_dir() and not (where / manifest.NAME).exists():
        return checkpoint_directory.find_latest(where) or where
    return where


def list_variables(ckpt_dir_or_file: PathLike) -> list[tuple[str, list[int]]]:
    """Key and shape of everything in a checkpoint, in the order of keys.

    Args:
        ckpt_dir_or_file: a checkpoint, or a directory whose latest one is meant.

    Raises:
        NotFoundError: there is none.
        DataLossError: it is damaged.

    >>> import tempfile, unisono
    >>> v = unisono.Variable([1.0, 2.0])
    >>> path = unisono.train.Checkpoint(v=v).write(tempfile.mkdtemp() + "/c")
    >>> list_variables(path)
    [('_CHECKPOINTABLE_OBJECT_GRAPH', []), ('v/.ATTRIBUTES/VARIABLE_VALUE', [2])]
    """
    found = manifest.read(_find_checkpoint(ckpt_dir_or_file))
    listed = [(key, list(entry.shape)) for key, entry in found.entries.items()]
    return sorted([(graph.OBJECT_GRAPH, []), *listed])


def load_variable(ckpt_dir_or_file: PathLike, name: str) -> Any:
    """One value of a checkpoint: a NumPy array, or the plain data it is.

    Args:
        ckpt_dir_or_file: a checkpoint, or a directory whose latest one is meant.
        name: its key, as `list_variables` gives it.

    Raises:
        NotFoundError: there is no such checkpoint, or no such key in it.
        DataLossError: it is damaged.
    """
    path = _find_checkpoint(ckpt_dir_or_file)
    found = checksummed_files.read_verified(path)
    if name == graph.OBJECT_GRAPH:
        return [{"children": n.children, "key": n.key} for n in found.nodes]
    entry = found.entries.get(name)
    if entry is None:
        raise errors.NotFoundError(
            f"Key {name} not found in checkpoint {path}; it has "
            f"{', '.join(sorted(found.entries)) or 'none'}."
        )
    return load_entry(path, entry)


def load_entry(path: pathlib.Path, entry: manifest.Entry) -> Any:
    """The value of an entry of a verified checkpoint."""
    if not entry.has_array:
        return entry.data()
    wanted = {entry.file: entry} if entry.file else {}
    read = array_io.read(path / manifest.ARRAYS, wanted)
    return restore_values.to_array(entry, read.get(entry.file))
