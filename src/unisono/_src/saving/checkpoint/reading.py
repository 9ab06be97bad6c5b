"""Functions that look for checkpoints and into them, without objects to restore."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, final

import jax
import numpy as np

from unisono._src.foundation import dtypes, errors
from unisono._src.saving.checkpoint import (
    array_io,
    object_graph,
    restore_values,
    snapshot,
)
from unisono._src.saving.format import (
    array_types,
    checkpoint_directory,
    manifest,
    one_version,
)

PathLike = str | os.PathLike[str]


def latest_checkpoint(
    checkpoint_dir: PathLike, latest_filename: str | None = None
) -> str | None:
    """Returns the path of the newest undamaged checkpoint in a directory, or None.

    The newest checkpoint is the one that was saved last. Every file is verified; a
    damaged checkpoint is skipped, with a warning that names the damaged file.

    If the directory has no checkpoint, the function returns the newest file of weights
    that Keras has saved there (``….weights.h5``), for `load_weights`.

    Args:
        checkpoint_dir: the directory.
        latest_filename: accepted and ignored; no file records the latest checkpoint.

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
    name = _find_weights(checkpoint_dir) if found is None else found.name
    return None if name is None else os.path.join(os.fspath(checkpoint_dir), name)


def _find_weights(directory: PathLike) -> str | None:
    """Returns the name of the newest file of Keras' weights in a directory, or None."""
    files = snapshot.absolute_path(directory).glob("*.weights.h5")
    # Of two with the same time the one with the larger number in its name.
    newest = max(
        files,
        key=lambda x: (x.stat().st_mtime_ns, len(x.name), x.name),
        default=None,
    )
    return None if newest is None else newest.name


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
    """Returns the key and shape of every value in a checkpoint, sorted by key.

    Args:
        ckpt_dir_or_file: a checkpoint, or a directory with checkpoints, of which the
            latest is used.

    Raises:
        NotFoundError: the checkpoint does not exist.
        DataLossError: the checkpoint is damaged.

    >>> import tempfile, unisono
    >>> v = unisono.Variable([1.0, 2.0])
    >>> path = unisono.train.Checkpoint(v=v).write(tempfile.mkdtemp() + "/c")
    >>> unisono.train.list_variables(path)
    [('_CHECKPOINTABLE_OBJECT_GRAPH', []), ('v/.ATTRIBUTES/VARIABLE_VALUE', [2])]
    """
    found = one_version.read(_find_checkpoint(ckpt_dir_or_file), manifest.read)
    listed = [(key, list(entry.shape)) for key, entry in found.entries.items()]
    return sorted([(object_graph.OBJECT_GRAPH, []), *listed])


def load_variable(ckpt_dir_or_file: PathLike, name: str) -> Any:
    """Returns one value of a checkpoint: a NumPy array, a random key or plain data.

    Args:
        ckpt_dir_or_file: a checkpoint, or a directory with checkpoints, of which the
            latest is used.
        name: the key of the value, as `list_variables` returns it.

    Raises:
        NotFoundError: the checkpoint does not exist, or does not have the key.
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
    if name == object_graph.OBJECT_GRAPH:
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


@final
class CheckpointReader:
    """Reads the values of a checkpoint by key; `load_checkpoint` returns one.

    Args:
        path: a checkpoint, or a directory with checkpoints, of which the latest is
            used.

    >>> import tempfile, unisono
    >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable([1.0, 2.0]))
    >>> reader = unisono.train.load_checkpoint(
    ...     checkpoint.save(tempfile.mkdtemp() + "/c")
    ... )
    >>> key = "v/.ATTRIBUTES/VARIABLE_VALUE"
    >>> reader.has_tensor(key), reader.get_tensor(key)
    (True, array([1., 2.], dtype=float32))
    """

    def __init__(self, path: PathLike) -> None:
        self._path = _find_checkpoint(path)
        self._entries = one_version.read(self._path, manifest.read).entries

    def has_tensor(self, tensor_str: str) -> bool:
        """Whether the checkpoint has a value with this key."""
        return tensor_str == object_graph.OBJECT_GRAPH or tensor_str in self._entries

    def get_tensor(self, tensor_str: str) -> np.ndarray | jax.Array:
        """Returns the value of a key as a NumPy array, or as a JAX random key.

        Raises:
            NotFoundError: the checkpoint does not have the key.
            DataLossError: the checkpoint is damaged.
        """
        found = load_variable(self._path, tensor_str)
        return found if isinstance(found, jax.Array) else np.asarray(found)

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the shape of every value, by its key."""
        return dict(list_variables(self._path))

    def get_variable_to_dtype_map(self) -> dict[str, Any]:
        """Returns the dtype of every array, by its key; `string` for other values."""
        found = {
            key: array_types.parse(entry.dtype) if entry.has_array else dtypes.string
            for key, entry in self._entries.items()
        }
        return {object_graph.OBJECT_GRAPH: dtypes.string, **found}

    def debug_string(self) -> bytes:
        """Returns a line for every value, with its key, dtype and shape."""
        kinds = self.get_variable_to_dtype_map()
        shapes = self.get_variable_to_shape_map()
        lines = [f"{key} ({kinds[key]}) {shapes[key]}\n" for key in sorted(kinds)]
        return "".join(lines).encode()


def load_checkpoint(ckpt_dir_or_file: PathLike) -> CheckpointReader:
    """Returns a reader of the values in a checkpoint.

    Args:
        ckpt_dir_or_file: a checkpoint, or a directory with checkpoints, of which the
            latest is used.

    Raises:
        NotFoundError: the checkpoint does not exist.
        DataLossError: the checkpoint is damaged.

    >>> import tempfile, unisono
    >>> path = unisono.train.Checkpoint(epoch=3).save(tempfile.mkdtemp() + "/c")
    >>> reader = unisono.train.load_checkpoint(path)
    >>> sorted(reader.get_variable_to_shape_map())[1:]
    ['epoch/.ATTRIBUTES/PYTHON_VALUE', 'save_counter/.ATTRIBUTES/VARIABLE_VALUE']
    """
    return CheckpointReader(ckpt_dir_or_file)


# Seconds between two looks into the directory, as in TensorFlow.
_PAUSE = 1.0


@final
@dataclasses.dataclass(frozen=True)
class CheckpointState:
    """The checkpoints in a directory, as `get_checkpoint_state` returns them.

    Attributes:
        model_checkpoint_path: the path of the newest undamaged checkpoint.
        all_model_checkpoint_paths: the paths of all checkpoints, oldest first.
        all_model_checkpoint_timestamps: when each was saved, in seconds since 1970.
    """

    model_checkpoint_path: str
    all_model_checkpoint_paths: tuple[str, ...]
    all_model_checkpoint_timestamps: tuple[float, ...]


def get_checkpoint_state(
    checkpoint_dir: PathLike, latest_filename: str | None = None
) -> CheckpointState | None:
    """Returns the checkpoints in a directory; None if it has no undamaged one.

    Args:
        checkpoint_dir: the directory.
        latest_filename: accepted and ignored; no file records the latest checkpoint.

    >>> import tempfile, unisono
    >>> directory = tempfile.mkdtemp()
    >>> unisono.train.get_checkpoint_state(directory) is None
    True
    >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable(1.0))
    >>> paths = [checkpoint.save(directory + "/ckpt") for _ in range(2)]
    >>> state = unisono.train.get_checkpoint_state(directory)
    >>> state.model_checkpoint_path == paths[-1]
    True
    >>> list(state.all_model_checkpoint_paths) == paths
    True
    """
    latest = latest_checkpoint(checkpoint_dir)
    if latest is None:
        return None
    found = checkpoint_directory.list_steps(snapshot.absolute_path(checkpoint_dir))
    return CheckpointState(
        latest,
        tuple(os.path.join(os.fspath(checkpoint_dir), p.name) for p, _ in found),
        tuple(header.saved_at / 1e9 for _, header in found),
    )


def checkpoints_iterator(
    checkpoint_dir: PathLike,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], object] | None = None,
) -> Iterator[str]:
    """Yields the latest checkpoint of a directory whenever there is a new one.

    Use it in a program that evaluates while another program trains. If several
    checkpoints are saved during one evaluation, only the latest of them is returned.

    Args:
        checkpoint_dir: the directory.
        min_interval_secs: the minimum number of seconds between two checkpoints.
        timeout: how many seconds to wait for a new checkpoint; None waits forever.
        timeout_fn: a function without arguments, called after each checkpoint and when
            `timeout` has passed. The loop ends if it returns a true value. Without it,
            the loop ends when `timeout` has passed.

    Yields:
        The path of a checkpoint.

    >>> import tempfile, unisono
    >>> directory = tempfile.mkdtemp()
    >>> checkpoint = unisono.train.Checkpoint(v=unisono.Variable(1.0))
    >>> for path in unisono.train.checkpoints_iterator(directory, timeout=0):
    ...     print("there is none")
    >>> saved = checkpoint.save(directory + "/ckpt")
    >>> list(unisono.train.checkpoints_iterator(directory, timeout=0)) == [saved]
    True
    """
    last: str | None = None
    while True:
        found = _wait_for_new(checkpoint_dir, last, timeout)
        if found is not None:
            started, last = time.monotonic(), found
            yield found
            time.sleep(max(0.0, started + min_interval_secs - time.monotonic()))
        elif timeout_fn is None:
            return
        if timeout_fn is not None and timeout_fn():
            return


def _wait_for_new(
    directory: PathLike, last: str | None, timeout: float | None
) -> str | None:
    """Waits for another latest checkpoint; returns None if the time is over."""
    end = None if timeout is None else time.monotonic() + timeout
    looked_at = None
    while True:
        # Only what is new is read and verified: a checkpoint may be large.
        steps = checkpoint_directory.list_steps(snapshot.absolute_path(directory))
        newest = [(path, header.saved_at) for path, header in steps[-1:]]
        if newest != looked_at:
            looked_at = newest
            found = latest_checkpoint(directory)
            if found not in (None, last):
                return found
        if end is not None and time.monotonic() + _PAUSE > end:
            return None
        time.sleep(_PAUSE)
