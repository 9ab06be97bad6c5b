"""Scheduled functions print, and check what they compute."""

import sys

import numpy as np
import pytest

import unisono
from tests.unit.servers.clusters import cluster
from unisono import errors


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
