"""Updates of Keras optimizers that parameter servers compute, one after the other."""

import keras
import numpy as np
import pytest

import unisono
from tests.unit.servers import clusters

pytestmark = pytest.mark.feature("T06")

OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(
        keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5), global_clipnorm=1.5
    ),
    "nadam": lambda: keras.optimizers.Nadam(
        0.1, gradient_accumulation_steps=2, use_ema=True
    ),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.1), initial_scale=4.0
    ),
}
FIRST, SECOND = np.float32([1.0, -2.0, 3.0]), np.float32([[0.5]])
GRADIENTS = [np.float32([1.0, 2.0, -4.0]), np.float32([[3.0]])]


def make(name):
    first, second = keras.Variable(FIRST), keras.Variable(SECOND)
    optimizer = OPTIMIZERS[name]()
    optimizer.build([first, second])
    return first, second, optimizer


def values(made):
    first, second, optimizer = made
    return [np.asarray(v.value) for v in (first, second, *optimizer.variables)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_of_two_workers_are_those_of_one_after_the_other(name):
    with clusters.cluster(carrier=clusters.Together().carrier) as (
        strategy,
        coordinator,
    ):
        with strategy.scope():
            made = make(name)
        homes = [v._kept.device for v in made[:2]]
        assert len(set(homes)) == 2

        @unisono.function
        def step():
            strategy.run(lambda: made[2].apply(GRADIENTS, list(made[:2])))

        for _ in range(4):
            coordinator.schedule(step)
        coordinator.join()
        found = values(made)
    alone = make(name)
    wanted = values(alone)
    for _ in range(4):
        weights, slots = alone[2].stateless_apply(wanted[2:], GRADIENTS, wanted[:2])
        wanted = [*weights, *slots]
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_it_is_told_if_servers_cannot_compute_an_update(caplog):
    class ByAll(keras.optimizers.SGD):
        def update_step(self, gradient, variable, learning_rate):
            total = sum(v.value.sum() for v in self._trainable_variables)
            super().update_step(gradient * total, variable, learning_rate)

    with clusters.cluster() as (strategy, _), strategy.scope():
        first, second = keras.Variable(FIRST), keras.Variable(SECOND)
        optimizer = ByAll(0.5)
        optimizer.build([first, second])
        for _ in range(2):
            strategy.run(lambda: optimizer.apply(GRADIENTS, [first, second]))
    told = [r.message for r in caplog.records if "ByAll" in r.message]
    assert len(told) == 1 and "of other parameter servers" in told[0]


def test_a_variable_in_parts_that_is_not_of_keras_is_refused_by_name():
    halves = unisono.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    with clusters.cluster(partitioner=halves) as (strategy, _), strategy.scope():
        v = unisono.Variable(np.ones((4, 2), np.float32), name="table")
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build([v])
        with pytest.raises(NotImplementedError, match=r"'table'.*in parts"):
            strategy.run(lambda: optimizer.apply([np.ones((4, 2), np.float32)], [v]))
        assert v.numpy().sum() == 8
