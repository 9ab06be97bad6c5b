"""A block of `init_scope` runs while a function is traced, as in TensorFlow."""

import pytest

import unisono
from tests import machine


def test_the_block_runs_at_once_when_the_function_is_traced():
    v, seen = unisono.Variable(1.0), []

    @unisono.function
    def step(x):
        with unisono.init_scope():
            v.assign_add(10.0)
            c = unisono.constant(3.0) * 2
            seen.append((unisono.executing_eagerly(), float(c)))
        assert not unisono.executing_eagerly()
        return x + c + v

    one = unisono.constant(1.0)
    assert (float(step(one)), float(step(one)), float(v.numpy())) == (18.0, 18.0, 11.0)
    assert seen == [(True, 6.0)]


def test_tapes_do_not_follow_the_block():
    x, v = unisono.constant(2.0), unisono.Variable(3.0)
    with unisono.GradientTape() as tape:
        tape.watch(x)
        with unisono.init_scope():
            y, z = x * x, v * 2.0
    assert tape.gradient([y, z], [x, v]) == [None, None]


def test_variables_made_in_replicas_of_a_program_belong_to_the_strategy():
    strategy, made = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), []

    @unisono.function
    def step():
        def replica():
            with unisono.init_scope():
                assert unisono.distribute.in_cross_replica_context()
                if not made:
                    made.append(unisono.Variable(3.0))
            return made[0] + 1.0

        return strategy.run(replica)

    with strategy.scope():
        found = strategy.experimental_local_results(step())
    assert [float(x) for x in found] == [4.0, 4.0]
    assert len(made[0].values) == 2


def test_the_functions_own_arrays_are_refused():
    @unisono.function
    def step(x):
        with unisono.init_scope():
            return x * 2.0

    with pytest.raises(TypeError, match="move the line out of the block"):
        step(unisono.constant(1.0))


@pytest.mark.parametrize("replicas", [None, 2])
def test_an_assignment_to_a_variable_that_the_function_makes_is_its_first_value(
    replicas,
):
    made = []

    @unisono.function
    def step(x):
        if not made:
            made.append(unisono.Variable(1.0))
            with unisono.init_scope():
                made[0].assign(5.0)
        return made[0].assign_add(x)

    strategy = unisono.distribute.get_strategy()
    if replicas is not None:
        strategy = unisono.distribute.MirroredStrategy(machine.names(replicas))
    with strategy.scope():
        step(unisono.constant(2.0))
        step(unisono.constant(2.0))
    assert float(made[0].numpy()) == 9.0


def test_a_variable_that_the_function_makes_cannot_be_read_before_it_has_a_value():
    @unisono.function
    def step():
        v = unisono.Variable(1.0)
        with unisono.init_scope():
            v.assign_add(1.0)

    with pytest.raises(unisono.errors.FailedPreconditionError, match="not ended"):
        step()
