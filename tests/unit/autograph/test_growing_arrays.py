"""TensorArrays that grow in loops of a program, or of the host."""

import itertools

import pytest

import unisono as tf


def collect(x, turns, step=1):
    found = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for i in tf.range(turns):
        found = found.write(i * step, x)
        x = x * 2.0
    return tf.reduce_sum(found.stack())


def collect_until(x, limit):
    found, i = tf.TensorArray(tf.float32, size=0, dynamic_size=True), 0
    while x < limit:
        found = found.write(i, x)
        x, i = x * 2.0, i + 1
    return tf.reduce_sum(found.stack())


def test_positions_that_are_known_keep_the_loop_in_the_program():
    program = tf.function(lambda x: collect(x, 3, step=2))
    assert float(program(tf.constant(1.0))) == 7.0
    # A function on the host has no program.
    assert program.get_concrete_function(tf.constant(1.0)) is not None


def test_positions_that_are_not_known_are_written_by_compiled_turns():
    counter = itertools.count()

    @tf.function
    def program(x, turns):
        found = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        for i in tf.range(turns):
            next(counter)
            found = found.write(i, x)
            x = x * 2.0
        return found.stack()

    assert program(tf.constant(1.0), tf.constant(3)).tolist() == [1, 2, 4]
    traced = next(counter)
    assert program(tf.constant(2.0), tf.constant(30)).shape == (30,)
    assert next(counter) == traced + 1
    assert program(tf.constant(2.0), tf.constant(0)).shape == (0,)


def test_replicas_collect_as_many_entries_as_they_need():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def by_replica(context):
        return float(context.replica_id_in_sync_group + 1)

    given = strategy.experimental_distribute_values_from_function(by_replica)
    cases = [(collect, 5, [31.0, 62.0]), (collect_until, 9.0, [15.0, 14.0])]
    for fn, limit, wanted in cases:

        @tf.function
        def step(x, fn=fn, limit=limit):
            return strategy.run(fn, args=(x, limit))

        found = strategy.experimental_local_results(step(given))
        assert [float(x) for x in found] == wanted


def test_a_position_before_the_first_is_left_to_the_host():
    @tf.function
    def program(n):
        found = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
        for i in tf.range(n):
            found = found.write(i - 1, i)
        return found.stack()

    with pytest.raises(tf.errors.OutOfRangeError, match="negative index -1"):
        program(tf.constant(2))
