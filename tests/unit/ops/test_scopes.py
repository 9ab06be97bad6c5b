"""Name scopes prefix names of variables, and names in compiled programs."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests import machine
from tests.parity.programs import mirrored


def test_names_follow_the_scopes_around_them():
    with unisono.name_scope("a") as outer:
        with unisono.name_scope("b/") as absolute:
            first = unisono.Variable(1.0).name
        with unisono.name_scope("b") as inner:
            second = unisono.Variable(1.0, name="v").name
        with unisono.name_scope("") as root:
            third = unisono.Variable(1.0, name="v").name
    assert (outer, absolute, inner, root) == ("a/", "b/", "a/b/", "")
    assert (first, second, third) == ("b/Variable:0", "a/b/v:0", "v:0")
    assert unisono.Variable(1.0, name="v").name == "v:0"
    assert unisono.name_scope("a").name == "a"
    with pytest.raises(ValueError, match="must be a string"):
        unisono.name_scope(None)


def test_eager_replicas_begin_without_the_scopes_around_them():
    strategy = mirrored(2)

    def make():
        made = [unisono.Variable(1.0, name="w")]
        with unisono.name_scope("bar"):
            made.append(unisono.Variable(1.0, name="w"))
        return made

    with strategy.scope(), unisono.name_scope("foo"):
        made = strategy.run(make)
        assert unisono.Variable(1.0, name="w").name == "foo/w:0"
    assert [v.name for v in made] == ["w:0", "bar/w:0"]


def test_operations_of_a_program_have_the_name():
    @unisono.function
    def double(x):
        with unisono.name_scope("doubling"):
            return 2.0 * x

    text = double.lowered(np.ones(3)).as_text(debug_info=True)
    assert "doubling" in text


@pytest.mark.needs_devices(2)
def test_values_of_the_block_are_made_on_the_device():
    for name in ("/CPU:1", "cpu:1", "/job:localhost/replica:0/task:0/device:CPU:1"):
        with unisono.device(name):
            (found,) = jnp.zeros(2).devices()
            with unisono.device(None):
                (default,) = jnp.zeros(2).devices()
        assert (found.id, default.id) == (1, 0)
    with unisono.device("/job:worker/task:1"):
        assert jnp.zeros(2).devices() == {default}


@pytest.mark.needs_devices(2)
def test_replicas_stay_on_their_devices():
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def replica():
        with unisono.device("CPU:0"):
            return jnp.zeros(2)

    placed = strategy.run(replica).values
    assert [x.devices().pop().id for x in placed] == [0, 1]


def test_a_device_that_is_missing_is_told(caplog):
    with unisono.device("CPU:77"):
        assert int(jnp.asarray(1) + 1) == 2
    assert "There is no device" in caplog.text
    unisono.config.set_soft_device_placement(False)
    try:
        with pytest.raises(unisono.errors.InvalidArgumentError, match="/device:CPU:0"):
            unisono.device("CPU:77")
    finally:
        unisono.config.set_soft_device_placement(True)
    with pytest.raises(ValueError, match="XYZ"):
        unisono.device("XYZ:0")
    with pytest.raises(ValueError, match="Expecting a string"):
        unisono.device(3)


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
