"""Arrays to files and back, by Orbax.

Arrays are stored uncompressed: weights do not compress, and a file that is as large as
what it holds cannot unfold into something that fills the memory.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from unisono._src import errors
from unisono._src.capsule import dtypes, manifest


@contextlib.contextmanager
def _store(directory: pathlib.Path) -> Iterator[tuple[Any, Any, Any]]:
    """Orbax, its handler of trees, and `directory` as they know it."""
    import orbax.checkpoint as ocp
    from etils import epath

    handler = ocp.PyTreeCheckpointHandler(use_compression=False)
    try:
        yield ocp, handler, epath.Path(directory)
    finally:
        handler.close()


def write(directory: pathlib.Path, arrays: Mapping[str, Any]) -> None:
    """Store arrays under their names in a new directory.

    Raises:
        OSError: the disk, in words.
    """
    directory.mkdir()
    if not arrays:
        return
    with _store(directory) as (ocp, handler, path):
        handler.save(path, args=ocp.args.PyTreeSave(dict(arrays)))
        handler.finalize(path)


def read(
    directory: pathlib.Path, wanted: Mapping[str, manifest.Entry], shardings: Any = None
) -> dict[str, Any]:
    """Read some of the stored arrays, each once.

    Args:
        directory: what `write` made; its files have been verified.
        wanted: the entries, by the name of the stored array.
        shardings: where to put some of the arrays; the others are NumPy arrays.

    Raises:
        DataLossError: what is stored is not what the entry says.
    """
    if not wanted:
        return {}
    shardings = shardings or {}
    with _store(directory) as (ocp, handler, path):
        stored = handler.metadata(path)
        _compare(directory, stored, wanted)
        restore_args = {
            name: ocp.ArrayRestoreArgs(
                sharding=shardings[name], global_shape=entry.shape
            )
            if name in shardings
            else ocp.RestoreArgs(restore_type=np.ndarray)
            for name, entry in wanted.items()
        }
        args = ocp.args.PyTreeRestore(
            item=dict.fromkeys(wanted, 0),
            restore_args=restore_args,
            partial_restore=True,
        )
        return handler.restore(path, args=args)


def check(directory: pathlib.Path, wanted: Mapping[str, manifest.Entry]) -> None:
    """Compare what is stored with what entries say, without reading the arrays.

    Raises:
        DataLossError: something is missing or different.
    """
    if wanted:
        with _store(directory) as (_, handler, path):
            _compare(directory, handler.metadata(path), wanted)


def _compare(
    directory: pathlib.Path, stored: Any, wanted: Mapping[str, manifest.Entry]
) -> None:
    tree = getattr(stored, "tree", stored)
    for name, entry in wanted.items():
        found = tree.get(name)
        if found is None:
            raise errors.DataLossError(f"{directory} has no array '{name}'.")
        shape, dtype = tuple(found.shape), np.dtype(found.dtype)
        if shape != entry.shape or dtype != dtypes.parse(entry.dtype):
            raise errors.DataLossError(
                f"The array '{name}' in {directory} has shape {shape} and type "
                f"{dtype}; the manifest says {entry.shape} and {entry.dtype}."
            )
