"""All state below an object at one moment, and its way to the disk."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import ambient, errors, library_hooks
from unisono._src.saving.checkpoint import (
    array_io,
    background,
    graph,
    state_slots,
    worker_meeting,
)
from unisono._src.saving.format import (
    array_store,
    array_types,
    checkpoint_directory,
    checksummed_files,
    manifest,
    plain_data,
)
from unisono._src.saving.format.manifest import Entry
from unisono._src.state import assignment, frames
from unisono._src.state.variables import Variable
from unisono._src.values import collectives

# What the files of a checkpoint take beyond its arrays.
_MARGIN_BYTES = 1 << 20


@dataclasses.dataclass
class Snapshot:
    """State at one moment; nothing that happens afterwards changes it.

    Attributes:
        nodes: the object graph.
        entries: what there is, by key.
        arrays: the arrays, by the names that entries give them.
    """

    nodes: tuple[manifest.ObjectNode, ...]
    entries: dict[str, Entry]
    arrays: dict[str, Any]


@contextlib.contextmanager
def leave_scopes() -> Iterator[None]:
    """Run a block as code outside every scope: variables are seen as a whole.

    Raises:
        RuntimeError: a program is being made.
    """
    if frames.frame().is_compiled:
        raise RuntimeError(
            "A checkpoint cannot be saved or restored inside a unisono.function: that "
            "would happen once, when it is traced. Do it between the calls."
        )
    before = ambient.swap(ambient.ROOT)
    try:
        yield
    finally:
        ambient.swap(before)


def take(
    root: Any, is_detached: bool, meeting: worker_meeting.Meeting | None = None
) -> Snapshot:
    """Look at all state below `root`.

    Variables' arrays are not copied: a step that would update one of them in place
    makes itself a copy first.

    Args:
        root: an object.
        is_detached: whether the program goes on while the snapshot is written, so that
            arrays which it can change or delete must be copied now.
        meeting: of the workers that do so together. A variable that is aggregated
            when it is read is read by all of them.

    Raises:
        WorkerMismatchError: the workers have different objects below `root`.
    """
    entries: dict[str, Entry] = {}
    stored: dict[str, Any] = {}
    with leave_scopes(), frames.LOCK:
        found = graph.walk(root)
    if meeting is not None and meeting.is_joint:
        _check_same_objects(found, meeting)
    with leave_scopes(), frames.LOCK:
        for item in found:
            if item.key is not None:
                name = f"a{len(stored)}"
                entry, array = _make_entry(item, name, is_detached)
                entries[item.key] = entry
                if entry.file:
                    stored[name] = array
    if meeting is not None and meeting.is_joint:
        marks = {i.key: getattr(i.obj, "_checkpoint_mark", None) for i in found}
        entries |= _entries_by_worker(entries, marks, meeting)
    nodes = tuple(manifest.ObjectNode(item.children, item.key) for item in found)
    return Snapshot(nodes, entries, stored)


def _check_same_objects(
    found: list[graph.Found], meeting: worker_meeting.Meeting
) -> None:
    """Raise unless all workers have objects of the same names in the same order."""
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


def _show_some(keys: set[str]) -> str:
    shown = ", ".join(sorted(keys)[:5]) or "nothing"
    return shown + (" …" if len(keys) > 5 else "")


def _entries_by_worker(
    entries: dict[str, Entry], marks: dict[Any, Any], meeting: worker_meeting.Meeting
) -> dict[str, Entry]:
    """Entries for plain data and state of which each worker has its own.

    Args:
        entries: those of this worker.
        marks: by key, what of a state counts, if not all of it; such a state is common
            to all workers, and the chief's is taken.
        meeting: of the workers.

    Raises:
        WorkerMismatchError: a common state is not the same.
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


def _make_entry(item: graph.Found, name: str, is_detached: bool) -> tuple[Entry, Any]:
    if item.kind == manifest.PLAIN:
        return Entry(item.kind, value=plain_data.encode(item.obj, str(item))), None
    if item.kind == manifest.STATE:
        source = state_slots.as_stateful(item.obj)
        assert source is not None
        what = f"The state of {item} ({type(item.obj).__name__})"
        return Entry(item.kind, value=plain_data.encode(source.give(), what)), None
    array = item.obj
    if isinstance(array, Variable):
        array = assignment.read_stored(array)
    elif isinstance(array, library_hooks.Held):
        array = array.read(is_detached)
    elif is_detached:
        array = jnp.copy(array) if isinstance(array, jax.Array) else array.copy()
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
    name = name if array.size else ""
    return Entry(kind, shape, array_types.name(array.dtype), name, impl), array


def store(
    snapshot: Snapshot,
    target: pathlib.Path,
    is_step: bool,
    meeting: worker_meeting.Meeting,
    then: Callable[[], None],
) -> None:
    """Write a snapshot aside, flush and check it, and make it visible in one step.

    The chief does; the others wait until it has.

    Args:
        snapshot: what to write.
        target: the path of the checkpoint.
        is_step: whether it counts as the latest of its directory.
        meeting: of the workers that save; it ends here.
        then: what the chief does when the checkpoint is safe.

    Raises:
        SaveError: it could not be written. What was there before is untouched.
    """
    try:
        if not worker_meeting.is_writer():
            _wait_for_writer(target, meeting)
            return
        try:
            _store_with_retry(snapshot, target, is_step)
            then()
        except BaseException as error:
            with contextlib.suppress(errors.WorkerError):
                meeting.from_chief(str(error) or type(error).__name__)
            raise
        meeting.from_chief("")
    finally:
        meeting.end()


def _wait_for_writer(target: pathlib.Path, meeting: worker_meeting.Meeting) -> None:
    if str(target) != meeting.details[0]:
        # Programs that give each worker a directory expect to find, or remove, theirs.
        target.parent.mkdir(parents=True, exist_ok=True)
    failure = meeting.from_chief("")
    if failure:
        raise errors.SaveError(f"The chief, worker 0, could not save: {failure}")


def _store_with_retry(snapshot: Snapshot, target: pathlib.Path, is_step: bool) -> None:
    try:
        _store(snapshot, target, is_step)
    except Exception as error:
        if not background.Ending.has_begun:
            raise to_save_error(target, error) from error
        # The end of the program took the threads away; it can be done without them.
        try:
            _store(snapshot, target, is_step)
        except Exception as again:
            raise to_save_error(target, again) from again


def _store(snapshot: Snapshot, target: pathlib.Path, is_step: bool) -> None:
    checkpoint_directory.check_free(target)
    if target.parent.is_dir():
        checkpoint_directory.sweep(target.parent)
    draft = checkpoint_directory.Draft(target)
    try:
        number = target.name.rpartition("-")[2]
        header = manifest.Header(
            checkpoint_directory.next_save_time(target.parent),
            is_step,
            int(number) if number.isdecimal() else None,
        )
        fill(draft.directory, snapshot, header)
        draft.commit()
    except BaseException:
        draft.discard()
        raise


def fill(directory: pathlib.Path, snapshot: Snapshot, header: manifest.Header) -> None:
    """Write a snapshot to a directory, flush it and check what was written."""
    _check_space(directory, snapshot)
    where = directory / manifest.ARRAYS
    array_io.write(where, snapshot.arrays)
    checksummed_files.flush(where)
    array_store.open_all(where, _index_by_file(snapshot.entries))
    sums = checksummed_files.checksums(directory)
    made = manifest.Manifest(header, snapshot.nodes, snapshot.entries, sums)
    manifest.write(directory, made)
    manifest.read(directory)
    checksummed_files.flush_one(directory)


def _index_by_file(entries: dict[str, Entry]) -> dict[str, Entry]:
    return {e.file: e for e in entries.values() if e.file}


def _check_space(directory: pathlib.Path, snapshot: Snapshot) -> None:
    needed = _MARGIN_BYTES + sum(e.nbytes for e in snapshot.entries.values())
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise OSError(
            f"no space left on the device: {free:,} bytes are free, {needed:,} needed"
        )


def to_save_error(target: pathlib.Path, error: Exception) -> errors.SaveError:
    """An error in the terms of whoever wanted to save."""
    if isinstance(error, errors.SaveError):
        return error
    text = str(error)
    if isinstance(error, PermissionError):
        text = f"no permission to write in {target.parent}"
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror} ({error.filename or target.parent})"
    elif not target.parent.is_dir():
        text = f"the directory {target.parent} is gone"
    # What a library says may go on for pages.
    text = " ".join(text.split())[:300].rstrip(".")
    made = errors.SaveError(
        f"The checkpoint {target} could not be written: {text}. Checkpoints that are "
        "already there are untouched."
    )
    made.errno = error.errno if isinstance(error, OSError) else None
    return made


def absolute_path(path: str | os.PathLike[str]) -> pathlib.Path:
    """A path that does not depend on the current directory."""
    return pathlib.Path(os.path.abspath(os.fspath(path)))
