"""Closures as programs: random numbers that they draw, and sums that they assign."""

import threading

import keras
import numpy as np
import pytest
from flax import nnx

import unisono
from tests.unit.servers import clusters
from unisono.distribute import coordinator as api

pytestmark = pytest.mark.feature("T06")


class Together:
    """Lets the first closures of two workers read before one of them sends changes."""

    def __init__(self):
        self._barrier = threading.Barrier(2, timeout=60)
        self._seen = set()
        self.carrier = api.ThreadCarrier(watch=self._watch)

    def _watch(self, source, kind, index, method):
        if source is not None and method == "push" and source not in self._seen:
            self._seen.add(source)
            self._barrier.wait()


@pytest.mark.parametrize("kind", ["Generator", "uniform"])
def test_workers_that_draw_at_the_same_time_get_different_numbers(kind):
    with clusters.cluster(2, 1, None, Together().carrier) as (strategy, coordinator):
        with strategy.scope():
            generator = unisono.random.Generator.from_seed(7)
            count = unisono.Variable(0)

        @unisono.function
        def draw():
            count.assign_add(1)
            if kind == "uniform":
                return unisono.random.uniform([2])
            return generator.normal([2])

        drawn = coordinator.fetch([coordinator.schedule(draw) for _ in range(6)])
        assert len({x.tobytes() for x in drawn}) == 6
        if kind == "Generator":
            # All together they are TensorFlow's, each once.
            one = unisono.random.Generator.from_seed(7)
            wanted = [np.asarray(one.normal([2])) for _ in range(6)]
            for found, x in zip(sorted(drawn, key=list), sorted(wanted, key=list)):
                np.testing.assert_array_equal(found, x)
            assert generator.state.numpy().tolist() == one.state.numpy().tolist()


def test_draws_follow_each_other_wherever_they_are_made():
    with clusters.cluster(1, 1, None, api.ThreadCarrier(True)) as (strategy, together):
        with strategy.scope():
            generator = unisono.random.Generator.from_seed(7)
        one = unisono.random.Generator.from_seed(7)
        twice = unisono.function(lambda: (generator.normal([]), generator.normal([])))

        @unisono.function
        def reset():
            before = generator.normal([])
            generator.reset_from_seed(3)
            return before, generator.normal([])

        with strategy.scope():
            found = [generator.normal([]), *twice(), generator.normal([])]
        found += together.schedule(twice).fetch()
        before, after = together.schedule(reset).fetch()
        found.append(before)
        assert [float(x) for x in found] == [float(one.normal([])) for _ in range(7)]
        three = unisono.random.Generator.from_seed(3)
        assert float(after) == float(three.normal([]))
        assert generator.state.numpy().tolist() == three.state.numpy().tolist()


# Sums that are assigned are additions, so that those of other workers stay.


def test_sums_that_two_workers_assign_at_once_are_added_up():
    with clusters.cluster(carrier=clusters.Together().carrier) as pair:
        strategy, coordinator = pair
        with strategy.scope():
            total = unisono.Variable([0, 10], name="total")
            last = unisono.Variable(0.0)
            recall = keras.metrics.Recall()
            mean = nnx.metrics.Average()

        @unisono.function
        def step(x):
            total.assign(total + x)
            total.assign(total - [0, 1])
            last.assign(2.0)
            last.assign(last * 1.0 + x[0])
            recall.update_state([1, 1, 0], [1, 0, 1])
            mean.update(values=x)
            return total + 0

        given = np.array([1, 3])
        found = [coordinator.schedule(step, args=(given,)) for _ in range(2)]
        # A closure sees what it has read itself, and its own changes.
        assert [x.tolist() for x in coordinator.fetch(found)] == [[1, 12], [1, 12]]
        assert total.numpy().tolist() == [2, 14]
        # This is no sum of what was there, so the last one stays.
        assert float(last.numpy()) == 3.0
        assert float(recall.result()) == 0.5
        assert float(recall.true_positives.value[0]) == 2.0
        assert int(mean.count.get_value()) == 4 and float(mean.compute()) == 2.0
