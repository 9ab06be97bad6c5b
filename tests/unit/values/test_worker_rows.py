"""A program gives each worker the rows of its own replicas."""

import types

import jax
import jax.numpy as jnp

from tests.parity.programs import mirrored
from unisono._src.values import worker_rows


def topology(n):
    return mirrored(n).extended._placement.topology


def test_the_only_worker_has_all_rows():
    found = topology(2)
    stacked = found.stack([jnp.full((1, 2), 1.0), jnp.full((1, 2), 3.0)])
    rows = jax.jit(lambda x: worker_rows.own_rows({"x": x}, found))(stacked)
    assert [row["x"].tolist() for row in rows] == [[1.0, 1.0], [3.0, 3.0]]


def test_random_keys_are_picked_by_their_bits():
    found = topology(2)
    keys = jax.random.split(jax.random.key(1), 2)
    data = found.stack([keys[i : i + 1] for i in range(2)])
    rows = jax.jit(lambda x: worker_rows.own_rows(x, found))(data)
    for row, key in zip(rows, keys, strict=True):
        assert (jax.random.key_data(row) == jax.random.key_data(key)).all()


def test_workers_with_fewer_replicas_make_the_same_program():
    devices = [types.SimpleNamespace(process_index=i) for i in (0, 0, 0, 1)]
    uneven = types.SimpleNamespace(devices=devices)
    assert worker_rows._first_replicas(uneven) == [0, 0, 0, 3]
    assert worker_rows._most_rows(uneven) == 3
