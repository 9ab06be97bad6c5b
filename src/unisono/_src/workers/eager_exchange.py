"""Exchanges arrays between workers outside compiled programs (docs/decisions/0012).

Every worker contributes a few arrays, whose shapes may differ, and gets those of all.
The first round has a fixed size and says what follows. So workers at different points
of their programs all find that out, instead of mixing up each other's numbers.
"""

from __future__ import annotations

import functools
import json
import math
import zlib
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from unisono._src.foundation import errors
from unisono._src.machines.topology import Topology
from unisono._src.workers import watchdog

# Bytes of the first round: two lengths of 8 bytes, and as much of the values as fits.
# Small values need no second round.
_ROUND = 4096
_LENGTHS = 16
# A longer header is no header of a worker.
_LARGEST_HEAD = 1 << 20


@final
class _Meeting(str):
    """A label that is one text for all points, and shows the point to people.

    The first round tells workers that are at different points, and they can go on; the
    guard would end them.
    """

    _point: str

    def __new__(cls, point: str) -> _Meeting:
        made = super().__new__(cls, "a meeting of workers")
        made._point = point
        return made

    def __repr__(self) -> str:
        return f"the {self._point.rstrip(',')}"


def gather(topology: Topology, point: str, arrays: Sequence[Any]) -> list[list[Any]]:
    """Returns the arrays of every worker, in the order of workers.

    Args:
        topology: the topology of the workers. All of them must call this.
        point: the point of the program, in the user's terms. It must be the same on
            all workers.
        arrays: the arrays of this worker; number, shapes and types may differ between
            workers.

    Returns:
        NumPy arrays, one list per worker.

    Raises:
        WorkerMismatchError: the workers are at different points.
    """
    plain = [np.asarray(_to_bits(x)) for x in arrays]
    kinds = [[str(x.dtype), list(x.shape), _key_name(a)]
             for x, a in zip(plain, arrays, strict=True)]  # fmt: skip
    head = json.dumps({"point": point, "arrays": kinds}).encode()
    body = head + b"".join(x.tobytes() for x in plain)
    lengths = np.array([len(head), len(body)], np.uint64).tobytes()
    row = (lengths + body)[:_ROUND]
    watchdog.enter(_Meeting(point))
    rows = _gather_rows(topology, row, _ROUND)
    sizes = [np.frombuffer(r[:_LENGTHS].tobytes(), np.uint64).tolist() for r in rows]
    # All workers see the same sizes, so all of them take the second round or none.
    longest = max(total for _, total in sizes) + _LENGTHS
    if longest > _ROUND:
        rows = _gather_rows(topology, lengths + body, _round_up(longest))
    texts = [r[_LENGTHS : _LENGTHS + t].tobytes()
             for r, (_, t) in zip(rows, sizes, strict=True)]  # fmt: skip
    heads = [_read_head(t, h) for t, (h, _) in zip(texts, sizes, strict=True)]
    points = [h["point"] for h in heads]
    if len(set(points)) > 1:
        raise errors.different_points_error(points)
    return [_read_arrays(t, int(h), read["arrays"])
            for t, (h, _), read in zip(texts, sizes, heads, strict=True)]  # fmt: skip


def broadcast_first(topology: Topology, point: str, value: object) -> Any:
    """Returns the value of worker 0 on every worker.

    Args:
        topology: the topology of the workers. All of them must call this.
        point: the point of the program, in the user's terms.
        value: the value of this worker; only the shape and type matter on others than
            worker 0.

    Raises:
        WorkerMismatchError: the workers' values differ in shape or type.
    """
    value = jnp.asarray(value)
    kind = f"{point} of shape {value.shape} and type {value.dtype}"
    if value.nbytes <= _ROUND // 2:
        return jnp.asarray(gather(topology, kind, [value])[0][0])
    # Only the point, with shape and type: the sum below needs equal sizes.
    gather(topology, kind, [])
    bits = np.asarray(_to_bits(value))
    data = np.frombuffer(bits.tobytes(), np.uint8)
    if topology.worker:
        data = np.zeros_like(data)
    # Each sum has one worker's byte and zeros, so it is exact for every type.
    total = _run_together(topology, _sum_program, data)
    found = np.frombuffer(total.tobytes(), bits.dtype).reshape(bits.shape)
    return _from_bits(found, _key_name(value))


def gather_rows(topology: Topology, point: str, own: jax.Array) -> jax.Array:
    """Returns the arrays of all workers, which are of one shape, as rows of one array.

    Args:
        topology: the topology of the workers. All of them must call this.
        point: the point of the program, in the user's terms.
        own: the array of this worker, on the first of its devices.

    Raises:
        WorkerMismatchError: the workers are at different points, or the arrays differ
            in shape or type.
    """
    # Only the point, with shape and type: the exchange needs equal sizes.
    gather(topology, f"{point} of shape {own.shape} and type {own.dtype}", [])
    try:
        found = _gather_program(topology.meeting_mesh)(_stack(topology, own))
        # Waited for here, where a worker that is gone is told of.
        watchdog.wait_for_result(found)
        rows: jax.Array = jax.block_until_ready(found).addressable_data(0)
        return rows
    except (RuntimeError, ValueError) as error:
        watchdog.raise_explained(error)


def is_same(
    topology: Topology, point: str, value: object, is_valid: bool = True
) -> bool:
    """Whether all workers have the same value, bit by bit, and call it valid."""
    bits = np.ascontiguousarray(np.asarray(_to_bits(value)))
    # A checksum travels instead of the value, which may be large.
    mark = np.array([zlib.crc32(bits.tobytes()), is_valid, *bits.shape], np.int64)
    every = [marks[0] for marks in gather(topology, point, [mark])]
    return all(np.array_equal(m, every[0]) and m[1] for m in every)


def _to_bits(x: object) -> Any:
    """Returns the data of a random key, which NumPy cannot hold, or else `x` itself."""
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(x)
    return x


def _key_name(x: object) -> str | None:
    """Returns the algorithm of a random key; None for another array."""
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return str(jax.random.key_impl(x))
    return None


def _from_bits(x: np.ndarray, key: str | None) -> Any:
    return x if key is None else jax.random.wrap_key_data(jnp.asarray(x), impl=key)


def _round_up(size: int) -> int:
    """Returns the next of a few sizes, because JAX compiles a program for each."""
    # Four sizes for each doubling, so at most a quarter too large.
    step = max(_ROUND, 1 << max(size.bit_length() - 3, 0))
    return -(-size // step) * step


def _gather_rows(topology: Topology, own: bytes, size: int) -> np.ndarray:
    row = np.zeros(size, np.uint8)
    row[: len(own)] = np.frombuffer(own, np.uint8)
    return _run_together(topology, _gather_program, row)


def _run_together(topology: Topology, program: Any, row: np.ndarray) -> np.ndarray:
    """Runs a program that takes a row of each worker, and returns its result."""
    try:
        found = program(topology.meeting_mesh)(_stack(topology, row))
        return np.asarray(found.addressable_data(0))
    except (RuntimeError, ValueError) as error:
        watchdog.raise_explained(error)


def _stack(topology: Topology, row: np.ndarray | jax.Array) -> jax.Array:
    sharding = NamedSharding(topology.meeting_mesh, PartitionSpec("worker"))
    own = jax.device_put(row[None], topology.home)
    shape = (topology.workers, *row.shape)
    return jax.make_array_from_single_device_arrays(shape, sharding, [own])


@functools.cache
def _gather_program(mesh: Mesh) -> Any:
    return _map_over_workers(mesh, lambda x: jax.lax.all_gather(x[0], "worker"))


@functools.cache
def _sum_program(mesh: Mesh) -> Any:
    return _map_over_workers(mesh, lambda x: jax.lax.psum(x[0], "worker"))


def _map_over_workers(mesh: Mesh, fn: Any) -> Any:
    mapped = jax.shard_map(
        fn,
        mesh=mesh,
        in_specs=PartitionSpec("worker"),
        out_specs=PartitionSpec(),
        # JAX does not infer that an all-gather gives the same result to all workers.
        check_vma=False,
    )
    return jax.jit(mapped, out_shardings=NamedSharding(mesh, PartitionSpec()))


def _read_head(text: bytes, length: int) -> dict[str, Any]:
    """Returns another worker's header; raises if it is not of the expected form."""
    if not 0 < length <= min(len(text), _LARGEST_HEAD):
        raise errors.garbled_message_error(f"a header of {length} bytes")
    try:
        found: dict[str, Any] = json.loads(text[: int(length)])
        ok = isinstance(found["point"], str) and isinstance(found["arrays"], list)
    except (ValueError, KeyError, TypeError):
        ok = False
    if not ok:
        raise errors.garbled_message_error("a header that is not what workers send")
    return found


def _read_arrays(text: bytes, start: int, kinds: list[Any]) -> list[Any]:
    found = []
    for name, shape, key in kinds:
        dtype = jnp.dtype(name)
        stop = start + math.prod(shape) * dtype.itemsize
        if dtype.hasobject or stop > len(text):
            raise errors.garbled_message_error(
                f"an array of type {name} and shape {shape}"
            )
        array = np.frombuffer(text[start:stop], dtype).reshape(shape)
        found.append(_from_bits(array, key))
        start = stop
    return found
