"""Mean and variance of the parts of a batch that all replicas have."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni
from unisono._src.integrations import common_moments


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_they_are_those_of_the_whole_batch(dtype):
    x = np.random.default_rng(0).normal(100, 2, size=(5, 3)).astype(dtype)
    parts = [x[:2], x[2:], x[:0]]
    strategy = uni.distribute.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])

    def replica_fn():
        context = uni.distribute.get_replica_context()
        part = jnp.asarray(parts[context.replica_id_in_sync_group])
        return common_moments.moments(context, part, 0)

    mean, variance = strategy.run(replica_fn)
    wide = x.astype("float64")
    for one in strategy.experimental_local_results(mean):
        np.testing.assert_allclose(one, wide.mean(0, keepdims=True), rtol=1e-5)
    for one in strategy.experimental_local_results(variance):
        np.testing.assert_allclose(one, wide.var(0, keepdims=True), rtol=1e-4)
