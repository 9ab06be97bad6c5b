"""Closures as programs: random numbers that they draw, and sums that they assign."""

import sys
import threading

import keras
import numpy as np
import pytest
from flax import nnx

import unisono
from tests.unit.servers import clusters
from tests.unit.servers.clusters import cluster
from unisono import errors
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


def test_what_a_scheduled_function_prints_is_printed(capsys):
    with cluster() as (strategy, coordinator):
        with strategy.scope():
            weight = unisono.Variable([1.0, 2.0])

        @unisono.function
        def step(x):
            unisono.print("begin", output_stream=sys.stdout)
            unisono.print("x is", x, {"weight": weight}, output_stream=sys.stdout)
            weight.assign_add(x)
            return 2.0 * x

        for _ in range(2):
            found = coordinator.schedule(step, args=(np.float32([3.0, 4.0]),)).fetch()
            assert found.tolist() == [6.0, 8.0]
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "begin",
        "x is [3 4] {'weight': [1 2]}",
        "begin",
        "x is [3 4] {'weight': [4 6]}",
    ]


def test_a_check_that_fails_raises_where_tensorflow_does_and_changes_nothing(capsys):
    with cluster(workers=1) as (strategy, coordinator):
        with strategy.scope():
            weight = unisono.Variable(1.0)

        @unisono.function
        def step(x):
            unisono.print("before", output_stream=sys.stdout)
            unisono.debugging.assert_positive(x, message="x must be large")
            unisono.print("after", output_stream=sys.stdout)
            unisono.debugging.assert_less(x, 10.0)
            weight.assign_add(x)
            return x

        good, low = (
            coordinator.schedule(step, args=(np.float32(x),)) for x in (2.0, -1.0)
        )
        assert float(good.fetch()) == 2.0
        with pytest.raises(errors.InvalidArgumentError, match="x must be large"):
            coordinator.join()
        with pytest.raises(errors.InvalidArgumentError, match="x must be large"):
            low.fetch()
        with pytest.raises(errors.InvalidArgumentError, match="Condition x < y"):
            coordinator.schedule(step, args=(np.float32(20.0),)).fetch()
        with pytest.raises(errors.InvalidArgumentError, match="Condition x < y"):
            coordinator.join()
        assert float(weight.numpy()) == 3.0
    printed = capsys.readouterr().out.split()
    assert printed == ["before", "after", "before", "before", "after"]


def test_an_element_that_a_check_refused_is_there_for_the_next_closure():
    with cluster(workers=1) as (strategy, coordinator):
        with strategy.scope():
            limit = unisono.Variable(0.0)
        rows = coordinator.create_per_worker_dataset(
            lambda: unisono.data.Dataset.from_tensor_slices(np.float32([1.0, 2.0]))
        )
        iterator = iter(rows)

        @unisono.function
        def step(iterator):
            x = next(iterator)
            unisono.debugging.assert_less(x, limit.read_value())
            return x

        with pytest.raises(errors.InvalidArgumentError):
            coordinator.schedule(step, args=(iterator,)).fetch()
        with pytest.raises(errors.InvalidArgumentError):
            coordinator.join()
        limit.assign(5.0)
        found = [coordinator.schedule(step, args=(iterator,)).fetch() for _ in "ab"]
        assert [float(x) for x in found] == [1.0, 2.0]


def test_each_kind_of_check_is_told():
    with cluster() as (_, coordinator):

        @unisono.function
        def step(x):
            unisono.debugging.check_numerics(x, "not a number")
            unisono.debugging.Assert(unisono.reduce_all(x < 5.0), ["large:", x])
            unisono.debugging.assert_near(x, unisono.round(x))
            return x

        def run(x):
            try:
                return coordinator.schedule(step, args=(np.float32(x),)).fetch()
            finally:
                with pytest.raises(errors.InvalidArgumentError):
                    coordinator.join()

        with pytest.raises(errors.InvalidArgumentError, match=r"large:\n7\.0, 1\.0"):
            run([7.0, 1.0])
        with pytest.raises(errors.InvalidArgumentError, match="not a number"):
            run([np.nan, 1.0])
        with pytest.raises(errors.InvalidArgumentError, match="Condition x near y"):
            run([1.5, 1.0])


def test_a_print_that_cannot_be_written_is_the_error_of_its_function():
    with cluster() as (_, coordinator):

        @unisono.function
        def step(x):
            unisono.print(x, output_stream="file:///no/such/folder/lines")
            return x

        with pytest.raises(FileNotFoundError):
            coordinator.schedule(step, args=(np.float32(1.0),)).fetch()
        with pytest.raises(FileNotFoundError):
            coordinator.join()


def test_prints_and_checks_in_loops_and_branches_are_refused_by_name():
    with cluster() as (_, coordinator):

        @unisono.function
        def step(n):
            def body(i):
                unisono.print(i)
                return i + 1

            return unisono.while_loop(lambda i: i < n, body, [0])

        with pytest.raises(ValueError, match="out of its loops and branches"):
            coordinator.schedule(step, args=(np.int32(3),))
