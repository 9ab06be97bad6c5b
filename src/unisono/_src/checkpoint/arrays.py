"""Arrays to files and back, by Orbax.

Arrays are stored uncompressed: weights do not compress, and a file that is as large as
what it holds cannot unfold into something that fills the memory.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from unisono._src.capsule import manifest, stored

# Below this size an array costs Orbax more than it takes to read and copy it.
_LARGE = 1 << 20


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
        shardings: where to put some of the arrays; the others, and small ones, are
            NumPy arrays.

    Raises:
        DataLossError: what is stored is not what the entry says.
    """
    if not wanted:
        return {}
    opened = stored.open_all(directory, wanted)
    placed = {
        name: sharding
        for name, sharding in (shardings or {}).items()
        if wanted[name].nbytes >= _LARGE
    }
    host = {name: array for name, array in opened.items() if name not in placed}
    return stored.read_all(directory, host) | _read_placed(directory, wanted, placed)


def _read_placed(
    directory: pathlib.Path, wanted: Mapping[str, manifest.Entry], placed: Any
) -> dict[str, Any]:
    """Read arrays to devices, each device what it holds."""
    if not placed:
        return {}
    with _store(directory) as (ocp, handler, path):
        restore_args = {
            name: ocp.ArrayRestoreArgs(
                sharding=sharding, global_shape=wanted[name].shape, strict=True
            )
            for name, sharding in placed.items()
        }
        args = ocp.args.PyTreeRestore(
            item=dict.fromkeys(placed, 0),
            restore_args=restore_args,
            partial_restore=True,
        )
        return handler.restore(path, args=args)
