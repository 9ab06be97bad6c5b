"""Snapshots of all state below an object, and how they are written to the disk."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import types
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import ambient, errors, library_hooks
from unisono._src.saving.checkpoint import (
    array_io,
    background,
    object_graph,
    server_values,
    worker_meeting,
    worker_parts,
)
from unisono._src.saving.format import (
    array_store,
    array_types,
    checkpoint_directory,
    checksummed_files,
    manifest,
    packing,
    plain_data,
)
from unisono._src.saving.format.manifest import Entry
from unisono._src.state import frames, reading, storage
from unisono._src.state.variables import Variable
from unisono._src.values import collectives

# The disk space that the files of a checkpoint take in addition to its values.
_MARGIN_BYTES = 1 << 20


@final
@dataclasses.dataclass
class Snapshot:
    """State at one moment; later steps do not change it.

    Attributes:
        nodes: the graph of objects.
        entries: the values, by key.
        arrays: the arrays, by the places that the entries give them. A `RemoteArray`
            stands for one that parameter servers write, a `PartedArray` for one that
            workers have in parts.
        held: what parameter servers hold of it; to be released in the end.
    """

    nodes: tuple[manifest.ObjectNode, ...]
    entries: dict[str, Entry]
    arrays: dict[str, Any]
    held: server_values.ServerStateSnapshot

    @property
    def is_joint(self) -> bool:
        """Whether it has arrays that no worker has all parts of."""
        return bool(self.find_parts())

    def find_parts(self) -> dict[str, worker_parts.PartedArray]:
        """Returns the arrays that no worker has all parts of, by their places."""
        kind = worker_parts.PartedArray
        found = {k: x for k, x in self.arrays.items() if isinstance(x, kind)}
        return {k: x for k, x in found.items() if x.is_joint}


def leave_scopes() -> contextlib.AbstractContextManager[None]:
    """Returns a block that runs as if it were outside every scope and replica.

    Inside a replica a variable would be that replica's copy; a checkpoint needs the
    whole variable.

    Raises:
        RuntimeError: a `unisono.function` is being traced.
    """
    if frames.frame().is_compiled:
        raise RuntimeError(
            "A checkpoint cannot be saved or restored inside a unisono.function: that "
            "would happen once, when it is traced. Do it between the calls."
        )
    return ambient.enter(ambient.ROOT)


def take(
    root: object,
    is_detached: bool,
    meeting: worker_meeting.Meeting | None = None,
    has_worker_states: bool = True,
    in_parts: bool = False,
) -> Snapshot:
    """Returns a snapshot of all state below an object.

    The arrays of variables are not copied. A step that would update such an array in
    place copies it first.

    Args:
        root: the object.
        is_detached: whether the program goes on while the snapshot is written. Arrays
            that the program can change or delete are then copied now.
        meeting: the meeting of the workers that save together, or None. All of them
            read the variables that are aggregated on reading.
        has_worker_states: whether states that differ between workers are part of it.
        in_parts: whether workers keep their parts of variables that are split over
            them, and write together. Otherwise each reads these variables whole.

    Raises:
        WorkerMismatchError: the workers have different objects below `root`.
    """
    # In five parts: the graph of objects; do all workers have the same one; the states
    # that other threads must give, without the lock; all other values, under the lock,
    # so that they are of one moment; and what differs between workers.
    entries: dict[str, Entry] = {}
    stored: dict[str, Any] = {}
    # A step in another thread would donate, and so delete, the arrays that are read
    # here; the lock keeps it out. It is not held while workers talk, which takes long.
    with leave_scopes(), storage.LOCK:
        found = object_graph.walk(root)
    if meeting is not None and meeting.is_joint:
        _check_same_objects(found, meeting)
    with leave_scopes():
        entries |= _make_slow_entries(found)
        # Without the lock, because other workers are waited for.
        objects = [item.obj for item in found]
        worker_parts.settle(objects)
        wholes = {} if in_parts else worker_parts.read_wholes(objects)
    with leave_scopes(), storage.LOCK:
        # Servers hold their values of this moment; they are written later.
        held = server_values.ServerStateSnapshot(objects)
        with server_values.release_on_error(held):
            for item in found:
                if item.key is not None and item.key not in entries:
                    name = f"a{len(stored)}"
                    own = wholes.get(id(item.obj))
                    entry, array = _make_entry(item, name, is_detached, held, own)
                    entries[item.key] = entry
                    if entry.file:
                        stored[name] = array
    if meeting is not None and meeting.is_joint:
        with server_values.release_on_error(held):
            _check_same_copies(found, entries, stored, meeting)
            if has_worker_states:
                marks = {i.key: find_mark(i.obj) for i in found}
                entries |= _entries_by_worker(entries, marks, meeting)
    nodes = tuple(manifest.ObjectNode(item.children, item.key) for item in found)
    # Until now an array has a name of its own; small ones get a place in a pack.
    kind = worker_parts.PartedArray
    alone = {k for k, e in entries.items() if isinstance(stored.get(e.file), kind)}
    packed = packing.assign(entries, alone)
    arrays = {packed[k].place: stored[e.file] for k, e in entries.items() if e.file}
    return Snapshot(nodes, packed, arrays, held)


def find_mark(obj: object) -> Callable[[Any], Any] | None:
    """Returns the function that finds what workers share of an object's state.

    None if each worker has a state of its own.
    """
    return getattr(obj, "_checkpoint_mark", None)


def _check_same_objects(
    found: list[object_graph.FoundObject], meeting: worker_meeting.Meeting
) -> None:
    """Raises unless all workers have objects of the same names in the same order."""
    keys = [item.key for item in found if item.key is not None]
    every = [text.split("\n") for text in meeting.gather("\n".join(keys))]
    for worker, theirs in enumerate(every):
        if theirs != every[0]:
            one, two = set(every[0]) - set(theirs), set(theirs) - set(every[0])
            raise errors.WorkerMismatchError(
                f"The workers save different objects. Worker 0 alone has "
                f"{_show_some(one)}, worker {worker} alone has {_show_some(two)}. Give "
                "the checkpoint the same objects, in the same order, on every worker.",
                worker,
            )


def _check_same_copies(
    found: list[object_graph.FoundObject],
    entries: dict[str, Entry],
    stored: dict[str, Any],
    meeting: worker_meeting.Meeting,
) -> None:
    """Raises unless the copies of mirrored variables are the same on all workers.

    One worker writes its own copies. Others may differ if a worker has computed with
    other constants or data than the rest, and the checkpoint would hide that. Of a
    variable in parts, several workers may have the same part.
    """
    own: dict[str, int] = {}
    for item in found:
        entry = entries.get(item.key or "")
        array = None if entry is None or not entry.file else stored[entry.file]
        if isinstance(array, worker_parts.PartedArray):
            own |= {f"{item.key} (part {i})": m for i, m in array.marks().items()}
        elif array is not None and _is_mirrored(item.obj):
            # The bits, because NaN differs from itself and 0.0 equals -0.0.
            bits = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            own[str(item.key)] = zlib.crc32(bits.data)
    texts = meeting.gather(json.dumps(own))
    every = [json.loads(text) for text in texts] if len(set(texts)) > 1 else []
    first: dict[str, tuple[int, int]] = {}
    for worker, theirs in enumerate(every):
        differing = {k for k, m in theirs.items() if k in first and first[k][0] != m}
        if differing:
            other = min(first[k][1] for k in differing)
            raise errors.WorkerMismatchError(
                f"The copies of mirrored variables differ between workers {other} and "
                f"{worker}: {_show_some(differing)}. Nothing is saved. A worker has "
                "computed with other numbers than the rest: compare the constants, "
                "the captured arrays and the versions of the program.",
                worker,
            )
        first |= {k: (m, worker) for k, m in theirs.items() if k not in first}


def _is_mirrored(obj: object) -> bool:
    """Whether an object is a variable of which every worker has a whole copy."""
    if isinstance(obj, library_hooks.LibraryVariable):
        obj = obj.strategy_variable
    if not isinstance(obj, Variable):
        return False
    cell = obj.state_cell
    has_copies = cell.is_spread and cell.is_everywhere
    return has_copies and not cell.is_stacked and cell.split is None


def _show_some(keys: set[str]) -> str:
    shown = ", ".join(sorted(keys)[:5]) or "nothing"
    return shown + (" …" if len(keys) > 5 else "")


def _entries_by_worker(
    entries: dict[str, Entry], marks: dict[Any, Any], meeting: worker_meeting.Meeting
) -> dict[str, Entry]:
    """Returns entries for the plain data and states that differ between workers.

    Args:
        entries: the entries of this worker.
        marks: for some keys a function that returns the part of a state which must be
            the same on all workers. The chief's state is saved for them.
        meeting: the meeting of the workers.

    Raises:
        WorkerMismatchError: such a part differs between workers.
    """
    own = {
        k: e.value if marks.get(k) is None else marks[k](e.data())
        for k, e in entries.items()
        if not e.has_array
    }
    texts = meeting.gather(json.dumps(own, allow_nan=False))
    if all(text == texts[0] for text in texts):
        return {}
    every = [json.loads(text) for text in texts]
    keys = [k for k in own if any(v[k] != every[0][k] for v in every)]
    for key in keys:
        if marks.get(key) is not None:
            told = ", ".join(f"worker {i} at {v[key]}" for i, v in enumerate(every))
            raise errors.WorkerMismatchError(
                f"The workers are at different positions of {key}: {told}. All must "
                "take as many elements."
            )
    return {
        key: Entry(entries[key].kind, value=[v[key] for v in every], is_by_worker=True)
        for key in keys
    }


def _make_slow_entries(found: list[object_graph.FoundObject]) -> dict[str, Entry]:
    """Returns the entries of objects whose states other threads must give."""
    return {
        str(item.key): _make_state_entry(item)
        for item in found
        if item.kind == manifest.STATE and object_graph.needs_other_threads(item.obj)
    }


def _make_state_entry(item: object_graph.FoundObject) -> Entry:
    """Returns the entry of an object that tells its state."""
    source = object_graph.as_stateful(item.obj)
    assert source is not None
    what = f"The state of {item} ({type(item.obj).__name__})"
    return Entry(manifest.STATE, value=plain_data.encode(source.get(), what))


def _make_entry(
    item: object_graph.FoundObject,
    name: str,
    is_detached: bool,
    held: server_values.ServerStateSnapshot,
    whole: np.ndarray | None,
) -> tuple[Entry, Any]:
    """Returns the entry of an object, and its array if it has one.

    Args:
        item: the object.
        name: the name of its array.
        is_detached: see `take`.
        held: what parameter servers hold.
        whole: the value of a variable that workers have in parts, if it was read.
    """
    if item.kind == manifest.PLAIN:
        return Entry(item.kind, value=plain_data.encode(item.obj, str(item))), None
    if item.kind == manifest.STATE:
        return _make_state_entry(item), None
    array = _read_array(item.obj, is_detached, held) if whole is None else whole
    kind, impl = item.kind or "", ""
    if collectives.is_key(array):
        kind, impl = manifest.KEY, str(jax.random.key_impl(array))
        array = jax.random.key_data(array)
    if not array_types.is_known(np.dtype(array.dtype)):
        raise TypeError(
            f"{item} has elements of type {array.dtype}, which cannot be put in a "
            f"checkpoint; expected one of {', '.join(array_types.KNOWN)}."
        )
    shape = tuple(int(n) for n in array.shape)
    # An array without elements has no file: its shape says all.
    name = name if array.size else ""
    return Entry(kind, shape, array_types.name(array.dtype), name, impl), array


def _read_array(
    obj: Any, is_detached: bool, held: server_values.ServerStateSnapshot
) -> Any:
    """Returns the array of an object, or what stands for it; see `Snapshot`."""
    if (there := held.read(obj)) is not None:
        return there
    if (cut := worker_parts.read(obj)) is not None:
        return cut
    if isinstance(obj, Variable):
        return reading.read_stored(obj)
    if isinstance(obj, library_hooks.LibraryVariable):
        return obj.read(is_detached)
    if is_detached:
        # An array that is no variable's may be donated by the program, or written to.
        return jnp.copy(obj) if isinstance(obj, jax.Array) else obj.copy()
    return obj


@contextlib.contextmanager
def share_outcome(
    snapshot: Snapshot, target: pathlib.Path, meeting: worker_meeting.Meeting
) -> Iterator[bool]:
    """Has all workers wait for the block in which the chief writes a snapshot.

    The block gets whether this worker is the chief. In the end the snapshot is
    released, and the meeting ends.

    Args:
        snapshot: the state to write.
        target: the path of the checkpoint.
        meeting: the meeting of the workers that save.

    Raises:
        SaveError: the chief could not write.
    """
    is_writer = worker_meeting.is_writer()
    try:
        try:
            yield is_writer
        except BaseException as error:
            # The error of the chief matters more than one of telling the others.
            with contextlib.suppress(errors.WorkerError):
                meeting.broadcast_from_chief(str(error) or type(error).__name__)
            raise
        if is_writer:
            meeting.broadcast_from_chief("")
        else:
            _wait_for_writer(target, meeting)
    finally:
        snapshot.held.release()
        meeting.end()


def _wait_for_writer(target: pathlib.Path, meeting: worker_meeting.Meeting) -> None:
    if str(target) != meeting.details[0]:
        # A program that gives each worker a directory of its own, as TensorFlow's
        # tutorial does, expects the directory to exist: it removes it afterwards.
        target.parent.mkdir(parents=True, exist_ok=True)
    failure = meeting.broadcast_from_chief("")
    if failure:
        raise errors.SaveError(f"The chief, worker 0, could not save: {failure}")


def write(snapshot: Snapshot, target: pathlib.Path, is_step: bool) -> None:
    """Writes, flushes and checks a snapshot, and makes it visible in one step.

    It does so a second time if the program has begun to end meanwhile.

    Args:
        snapshot: the state to write.
        target: the path of the checkpoint.
        is_step: whether the checkpoint can be the latest of its directory.

    Raises:
        SaveError: the checkpoint could not be written; an older one is untouched.
    """
    try:
        _store(snapshot, target, is_step)
    except Exception as error:
        if not background.Ending.has_begun:
            raise to_save_error(target, error) from error
        # A program that is ending can start no threads, which Orbax needs. From now
        # on `array_io.write` does without Orbax.
        try:
            _store(snapshot, target, is_step)
        except Exception as again:
            raise to_save_error(target, again) from again


@contextlib.contextmanager
def stage(
    target: pathlib.Path, is_step: bool
) -> Iterator[checkpoint_directory.StagingDirectory]:
    """Gives a hidden directory for a checkpoint, and commits it after the block.

    Args:
        target: the path of the checkpoint.
        is_step: whether the checkpoint can be the latest of its directory.
    """
    # Before the arrays are written, which can take long; `commit` asks again.
    checkpoint_directory.check_free(target)
    if target.parent.is_dir():
        checkpoint_directory.sweep(target.parent)
    if is_step:
        checkpoint_directory.check_alone(target)
    staging = checkpoint_directory.StagingDirectory(target)
    try:
        staging.open()
        yield staging
        if is_step:
            # Again, because writing takes time.
            checkpoint_directory.check_alone(target)
        staging.commit()
    finally:
        staging.close()


def _store(snapshot: Snapshot, target: pathlib.Path, is_step: bool) -> None:
    """Writes a snapshot to a staging directory and commits it."""
    with stage(target, is_step) as staging:
        header = checkpoint_directory.new_header(target, is_step)
        fill(staging.directory, snapshot, header)


def fill(directory: pathlib.Path, snapshot: Snapshot, header: manifest.Header) -> None:
    """Writes a snapshot to a directory, flushes the files and checks them."""
    # The order is that of safety: arrays, flushed and opened again; their checksums;
    # the manifest, which makes it a checkpoint; and the directory.
    write_arrays(directory, snapshot)
    seal(directory, snapshot, header)


def write_arrays(directory: pathlib.Path, snapshot: Snapshot) -> None:
    """Writes all arrays but those that no worker has all parts of."""
    _check_space(directory, snapshot)
    where = directory / manifest.ARRAYS
    small = {e.place for e in snapshot.entries.values() if e.at is not None}
    # In one call: the copies from the devices run at the same time.
    on_host = jax.device_get({k: a for k, a in snapshot.arrays.items() if k in small})
    packs = packing.make_packs(snapshot.entries, snapshot.arrays | on_host)
    remote = {
        k: x for k, x in packs.items() if isinstance(x, server_values.RemoteArray)
    }
    kind = worker_parts.PartedArray
    cut = {k: x for k, x in packs.items() if isinstance(x, kind)}
    others = {k: x for k, x in packs.items() if k not in remote and k not in cut}
    array_io.write(where, others)
    for name, array in cut.items():
        if not array.is_joint:
            array.write(where, name)
    snapshot.held.write(where, remote)


def seal(
    directory: pathlib.Path,
    snapshot: Snapshot,
    header: manifest.Header,
    known: Mapping[str, manifest.File] = types.MappingProxyType({}),
) -> None:
    """Flushes and checks the arrays in a directory, and makes it a checkpoint.

    Args:
        directory: the directory.
        snapshot: the state whose arrays are there.
        header: the header of the checkpoint.
        known: checksums of files that other workers have written and read.
    """
    where = directory / manifest.ARRAYS
    checksummed_files.flush(where)
    # Reading back finds arrays that were written wrongly while the old checkpoint is
    # still there.
    array_store.open_all(where, _index_by_file(snapshot.entries))
    sums = checksummed_files.checksums(directory, known)
    made = manifest.Manifest(
        header, snapshot.nodes, snapshot.entries, sums, snapshot.held.closures
    )
    manifest.write(directory, made)
    # It parses what it has written: what this release refuses must not be committed.
    manifest.read(directory)
    checksummed_files.flush_one(directory)


def _index_by_file(entries: dict[str, Entry]) -> dict[str, Entry]:
    return {
        e.file: e if e.at is None else packing.pack_entry(e)
        for e in entries.values()
        if e.file
    }


def _check_space(directory: pathlib.Path, snapshot: Snapshot) -> None:
    needed = _MARGIN_BYTES + sum(e.nbytes for e in snapshot.entries.values())
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise OSError(
            f"no space left on the device: {free:,} bytes are free, {needed:,} needed"
        )


def to_save_error(target: pathlib.Path, error: Exception) -> errors.SaveError:
    """Returns a `SaveError` that explains in the user's terms why a save failed."""
    if isinstance(error, errors.SaveError):
        return error
    text = str(error)
    if isinstance(error, PermissionError):
        text = f"no permission to write in {target.parent}"
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror} ({error.filename or target.parent})"
    elif not target.parent.is_dir():
        why = "is not a directory" if target.parent.exists() else "is gone"
        text = f"{target.parent} {why}"
    # Messages of TensorStore can be pages long.
    text = " ".join(text.split())[:500].rstrip(".")
    made = errors.SaveError(
        f"The checkpoint {target} could not be written: {text}. Checkpoints that are "
        "already there are untouched."
    )
    made.errno = error.errno if isinstance(error, OSError) else None
    return made


def absolute_path(path: str | os.PathLike[str]) -> pathlib.Path:
    """Returns a path that does not depend on the current directory."""
    return pathlib.Path(os.path.abspath(os.fspath(path)))
