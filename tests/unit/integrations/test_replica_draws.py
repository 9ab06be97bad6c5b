"""Random numbers of libraries differ between replicas, and between threads."""

import jax
import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import mirrored
from tests.threads import at_once, repeated

pytest.importorskip("keras")
nnx = pytest.importorskip("flax.nnx")


@pytest.mark.needs_devices(2)
def test_threads_draw_different_keys_of_a_stream():
    strategy, seen = mirrored(2), []
    with strategy.scope():
        streams = nnx.Rngs(0)

    def draw():
        found = strategy.run(lambda: jax.random.key_data(streams()))
        seen.extend(np.asarray(x).tobytes() for x in found.values)

    at_once(*[repeated(draw, 5)] * 3)
    assert len(set(seen)) == 30


@pytest.mark.needs_devices(2)
def test_threads_draw_different_seeds_of_keras():
    strategy, seen = mirrored(2), []
    with strategy.scope():
        seeds = tf.keras.random.SeedGenerator(1)

    def draw():
        found = strategy.run(lambda: seeds.next())
        seen.extend(np.asarray(x).tobytes() for x in found.values)

    at_once(*[repeated(draw, 5)] * 3)
    assert len(set(seen)) == 30
