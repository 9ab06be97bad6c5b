"""The law of the house: the number of replicas changes no number."""

import functools

import hypothesis
import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as uni
from tests import machine, random_programs

FEATURES = 3
OPTIMIZERS = {"sgd": optax.sgd(0.1), "adam": optax.adam(0.05)}


@functools.cache
def trainer(replicas, name):
    """A linear model with a batch-independent loss, and how to train it."""
    strategy: uni.distribute.Strategy
    if replicas == 0:
        strategy = uni.distribute.OneDeviceStrategy(machine.name(0))
    else:
        devices = machine.names(replicas)
        strategy = uni.distribute.MirroredStrategy(devices)
    with strategy.scope():
        w = uni.Variable(jnp.zeros(FEATURES), name="w")
        b = uni.Variable(0.0, name="b")
        optimizer = uni.optimizers.Optimizer(OPTIMIZERS[name], [w, b])
        mean = uni.metrics.Mean()

    @uni.function
    def step(batch, size):
        def replica(batch):
            x, y = batch

            def loss():
                errors = jnp.square(x @ w + b - y)
                mean.update_state(errors)
                return jnp.sum(errors) / size

            value, gradients = uni.value_and_grad(loss, [w, b])()
            optimizer.apply_gradients(zip(gradients, [w, b], strict=True))
            return value

        return strategy.reduce("SUM", strategy.run(replica, args=(batch,)), axis=None)

    def train(batches):
        for v in [w, b, *optimizer.variables]:
            v.assign(jnp.zeros(v.shape, v.dtype))
        mean.reset_state()
        dataset = strategy.experimental_distribute_dataset(batches)
        sizes = [float(len(y)) for _, y in batches]
        pairs = zip(dataset, sizes, strict=True)
        losses = [float(step(x, jnp.float32(n))) for x, n in pairs]
        weights = np.concatenate([w.numpy(), [b.numpy()]])
        return losses, weights, float(mean.result())

    return train


def batches(seed, sizes):
    """Global batches of the given sizes."""
    rng = np.random.default_rng(seed)
    made = []
    for n in sizes:
        x = rng.normal(size=(n, FEATURES)).astype(np.float32)
        made.append((x, rng.normal(size=n).astype(np.float32)))
    return made


@pytest.mark.feature("V08", "D01", "F02", "F10", "V04", "V05")
@pytest.mark.parametrize("name", list(OPTIMIZERS))
@random_programs.tries(4)
@hypothesis.given(
    seed=st.integers(0, 1000), sizes=st.lists(st.sampled_from([3, 8, 9]), max_size=3)
)
def test_training_ends_in_the_same_weights_on_any_number_of_replicas(name, seed, sizes):
    data = batches(seed, [*sizes, 8])
    expected = trainer(0, name)(data)
    for replicas in (1, 3, 8):
        losses, weights, mean = trainer(replicas, name)(data)
        np.testing.assert_allclose(losses, expected[0], rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(weights, expected[1], rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(mean, expected[2], rtol=1e-4)


@pytest.mark.feature("F03", "F05")
@random_programs.tries(20)
@hypothesis.given(
    sizes=st.lists(st.integers(0, 5), min_size=4, max_size=4).filter(any),
    replicas=st.sampled_from([1, 2, 4]),
)
def test_the_mean_over_the_batch_is_that_of_all_examples(sizes, replicas):
    devices = machine.names(replicas)
    strategy = uni.distribute.MirroredStrategy(devices)
    parts = [np.arange(n, dtype=np.float32) + i for i, n in enumerate(sizes)]
    parts = [*parts[: replicas - 1], np.concatenate(parts[replicas - 1 :])]
    hypothesis.assume(sum(map(len, parts)))
    value = strategy.experimental_distribute_values_from_function(
        lambda c: parts[c.replica_id_in_sync_group]
    )
    mean = strategy.reduce("MEAN", value, axis=0)
    np.testing.assert_allclose(mean, np.concatenate(parts).mean(), rtol=1e-5)


@pytest.mark.feature("H05")
@hypothesis.given(batch=st.integers(0, 50), replicas=st.integers(1, 9))
def test_a_batch_is_cut_into_chunks_that_cover_it_once_in_order(batch, replicas):
    from unisono._src.input.distribution import steps

    bounds = steps.chunks(batch, replicas)
    covered = [i for start, stop in bounds for i in range(start, stop)]
    assert covered == list(range(batch))
    assert len(bounds) == replicas
    sizes = [stop - start for start, stop in bounds]
    assert sizes == sorted(sizes, reverse=True)
