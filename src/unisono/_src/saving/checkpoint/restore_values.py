"""Restoring one value of a checkpoint to an object."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import ambient, errors, library_hooks, wide_numbers
from unisono._src.saving.checkpoint import object_graph
from unisono._src.saving.checkpoint.object_graph import StateSlot
from unisono._src.saving.format import (
    array_types,
    checksummed_files,
    manifest,
    plain_data,
    signed_text,
)
from unisono._src.saving.format.manifest import Entry
from unisono._src.state import assignment, frames, storage
from unisono._src.state.storage import Policy
from unisono._src.state.variables import Variable
from unisono._src.values import collectives
from unisono._src.workers import process_group


def can_take(entry: Entry, obj: object) -> bool:
    """Whether an object is of a kind that can take a value of a checkpoint."""
    if entry.kind == manifest.STATE:
        return object_graph.leaf_kind(obj) == manifest.STATE
    if entry.kind == manifest.PLAIN:
        is_container = isinstance(obj, dict | list) and not _own_data(entry)
        return plain_data.is_plain(obj) or is_container
    if isinstance(
        obj, Variable | library_hooks.LibraryVariable
    ) or object_graph.is_array(obj):
        return True
    return obj is None and entry.kind != manifest.VARIABLE


def check(key: str, entry: Entry, obj: object) -> None:
    """Raises if an object cannot take the value of an entry.

    Raises:
        ValueError: a variable has another shape; or the value differs between the
            workers that saved, and their number differs now.
        InvalidArgumentError: a variable has another type.
    """
    if entry.is_by_worker:
        _check_workers(key, len(entry.value))
    if not isinstance(obj, Variable | library_hooks.LibraryVariable):
        return
    if jnp.issubdtype(obj.dtype, jax.dtypes.prng_key):
        if entry.kind != manifest.KEY:
            raise errors.InvalidArgumentError(
                f"The variable {obj.name} holds random keys; the checkpoint has "
                f"{entry.dtype} numbers under {key}."
            )
        return
    if entry.shape != obj.shape:
        raise ValueError(
            f"Received incompatible tensor with shape {entry.shape} when attempting "
            f"to restore variable with shape {obj.shape} and name {obj.name} from "
            f"{key}."
        )
    if array_types.parse(entry.dtype) != np.dtype(obj.dtype):
        raise errors.InvalidArgumentError(
            f"The checkpoint has {entry.dtype} under {key}, but the variable "
            f"{obj.name} has type {np.dtype(obj.dtype).name}. Make the variable with "
            "the type of the checkpoint and cast it afterwards."
        )


def check_keys(directory: pathlib.Path, found: manifest.Manifest) -> None:
    """Raises if a random key of a checkpoint is of a kind that JAX does not know.

    Raises:
        DataLossError: it is; the message names the manifest.
    """
    for name, entry in found.entries.items():
        if entry.kind != manifest.KEY:
            continue
        try:
            _check_key(entry.impl, entry.shape, entry.dtype)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise signed_text.damage_error(
                directory / manifest.NAME,
                f"under {name} it has random keys of the kind {entry.impl[:80]!r} in "
                f"the shape {entry.shape}, which JAX does not know",
            ) from error


def read_usable(directory: pathlib.Path) -> manifest.Manifest:
    """Returns the manifest of a checkpoint after verifying all that it holds.

    Raises:
        DataLossError: a file is damaged, or has something that JAX does not know.
        NotFoundError: there is no checkpoint.
    """
    found = checksummed_files.read_verified(directory)
    check_keys(directory, found)
    return found


@functools.lru_cache(256)
def _check_key(impl: str, shape: tuple[int, ...], dtype: str) -> None:
    """Raises unless numbers of a shape and type can be random keys of a kind."""
    numbers = jax.ShapeDtypeStruct(shape, array_types.parse(dtype))
    jax.eval_shape(lambda x: jax.random.wrap_key_data(x, impl=impl), numbers)


def _check_workers(key: str, count: int) -> None:
    """Raises unless there are as many workers now as have saved."""
    here = process_group.current().size
    if here != count:
        raise ValueError(
            f"The checkpoint was saved by {count} workers, each of which had a value "
            f"of its own under {key}, and is being restored on {here}. Positions in "
            "files that are dealt to workers, and in datasets that a function makes "
            f"for each of them, fit {count} workers only. Restore on as many, or leave "
            "this object out of the checkpoint; what does not differ between workers "
            "is restored on any number."
        )


def _own_data(entry: Entry) -> Any:
    """Returns the plain data or state of an entry that belongs to this worker."""
    found = entry.data()
    if not entry.is_by_worker:
        return found
    index = process_group.current().index
    # `can_take` asks before `check` has compared the numbers of workers.
    return found[index if index < len(found) else 0]


def choose_sharding(entry: Entry, obj: object) -> Any:
    """Returns the sharding with which to read an array, or None to read to the host.

    Each device of a split array reads its own part. An array that every device holds is
    read once, to the first device, and copied from there.
    """
    if not entry.file or entry.kind == manifest.KEY or frames.frame().is_compiled:
        return None
    if isinstance(obj, Variable):
        sharding = obj.state_cell.sharding
        # A stacked variable holds one value per replica; the file holds one in all.
        if obj.state_cell.is_stacked or obj.replica_index is not None:
            return None
    elif isinstance(obj, jax.Array) and obj.shape == entry.shape:
        sharding = obj.sharding
    else:
        return None
    if sharding is not None and not sharding.is_fully_replicated:
        return sharding
    if sharding is None:
        # That of the default device, which `jax.default_device` may have changed.
        return jnp.zeros(()).sharding
    device = min(sharding.addressable_devices, key=lambda d: d.id)
    return jax.sharding.SingleDeviceSharding(device)


def set_value(entry: Entry, slot: StateSlot, array: object) -> None:
    """Sets the object in a slot to a value of a checkpoint.

    Args:
        entry: the entry of the value.
        slot: the slot of the object.
        array: the array that was read; None for other values and empty arrays.
    """
    obj = slot.get()
    if entry.kind == manifest.STATE:
        source = object_graph.as_stateful(obj)
        assert source is not None
        source.put(_own_data(entry))
    elif entry.kind == manifest.PLAIN:
        _set_plain(_own_data(entry), obj, slot)
    else:
        _set_array(to_array(entry, array), obj, slot)


def to_array(entry: Entry, array: object) -> Any:
    """Returns the array or random key of an entry.

    Args:
        entry: the entry.
        array: the array that was read; None if the entry has no elements.
    """
    if array is None:
        array = np.zeros(entry.shape, array_types.parse(entry.dtype))
    if entry.kind == manifest.KEY:
        array = jax.random.wrap_key_data(jnp.asarray(array), impl=entry.impl)
    return array


def _set_plain(value: object, obj: object, slot: StateSlot) -> None:
    """Changes a list or dict to a value, or replaces any other object by it."""
    # Lists and dicts are changed in place, because the program may hold them elsewhere.
    # An empty one in the checkpoint says nothing about variables that are there now.
    if type(obj) is type(value) is list:
        if value or plain_data.is_plain(obj):
            obj[:] = value
    elif type(obj) is type(value) is dict:
        if value or plain_data.is_plain(obj):
            obj.clear()
            obj.update(value)
    else:
        slot.put(value)


def _set_array(array: Any, obj: object, slot: StateSlot) -> None:
    """Assigns an array to a variable or NumPy array, or replaces the object by it."""
    if isinstance(obj, Variable):
        assign(obj, array)
    elif isinstance(obj, library_hooks.LibraryVariable):
        obj.assign(array)
    elif isinstance(obj, jax.Array):
        slot.put(_put_like(array, obj))
    elif isinstance(obj, np.ndarray) and _is_same_kind(obj, array):
        obj[...] = array
    else:
        slot.put(array)


def _is_same_kind(old: np.ndarray, new: Any) -> bool:
    is_same = old.shape == new.shape and old.dtype == new.dtype
    return is_same and old.flags.writeable


def _put_like(array: Any, old: jax.Array) -> jax.Array:
    wide_numbers.check(array, "a restored array")
    if array.shape == old.shape and not collectives.is_key(array):
        placed: jax.Array = jax.device_put(array, old.sharding)
        return placed
    return jnp.asarray(array)


def find_cells(objects: Sequence[Any]) -> list[storage.Cell]:
    """Returns the cells of those objects that are variables."""
    found = [getattr(x, "strategy_variable", x) for x in objects]
    return [x.state_cell for x in found if isinstance(x, Variable)]


def assign(variable: Variable, value: Any) -> None:
    """Sets a variable of any kind as TensorFlow restores it.

    Every copy gets the value; a sync-on-read sum is divided among its copies. While a
    function is traced the value replaces the initial one.

    Raises:
        ValueError: the copies of a variable that replicas make while they are traced,
            which begin with one value, cannot add up to the saved one.
    """
    cell = variable.state_cell
    # A variable that a function makes while it is traced, and which has no array yet.
    if cell.array is None and frames.frame().is_compiled:
        frames.frame().create(cell, _first_value(variable, value))
        return
    with ambient.enter(ambient.ROOT):
        if cell.policy is Policy.ON_READ or variable.replica_index is not None:
            variable.assign(value, read_value=False)
        else:
            # A NumPy array goes to the devices of the cell directly, not by way of the
            # default device.
            is_placed = cell.sharding is not None
            frames.EAGER.set_whole(cell, value if is_placed else jnp.asarray(value))


def _first_value(variable: Variable, value: object) -> Any:
    """Returns what a variable that a function makes begins with, to read as `value`."""
    cell = variable.state_cell
    if not cell.is_stacked:
        return jnp.asarray(value)
    # Not a part of the program: the numbers are looked at here.
    with jax.ensure_compile_time_eval():
        copies = assignment.make_copies(cell, jnp.asarray(value))
        first, last = copies[0], copies[-1]
        is_even = bool((first == last).all())
    port = ambient.current().port
    if port is None or not port.is_spmd:
        return copies
    if not is_even:
        raise ValueError(
            f"The checkpoint has a sum for the variable {cell.name} that {cell.copies} "
            "replicas cannot share alike, and replicas of a compiled function make "
            f"the variable, at {cell.origin}, so that all begin with one value. Make "
            "it before, in the scope of the strategy."
        )
    return first
