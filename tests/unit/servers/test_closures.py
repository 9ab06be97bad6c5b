"""Closures as programs: random numbers that they draw from a state on a server."""

import threading

import numpy as np
import pytest

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
