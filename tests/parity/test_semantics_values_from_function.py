"""experimental_distribute_values_from_function and its ValueContext."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import (
    EXECUTIONS,
    central,
    context,
    execute,
    kind,
    local,
    mirrored,
    one_device,
    plain,
)


@pytest.mark.feature("G01", "G02", "G03")
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_the_function_is_called_once_per_replica_with_python_numbers(n):
    s, seen = mirrored(n), []

    def value_fn(c):
        assert type(c.replica_id_in_sync_group) is int
        assert type(c.num_replicas_in_sync) is int
        seen.append((c.replica_id_in_sync_group, c.num_replicas_in_sync))
        return jnp.asarray(1.0)

    result = s.experimental_distribute_values_from_function(value_fn)
    assert seen == [(i, n) for i in range(n)]
    assert (kind(result), local(s, result)) == ("PerReplica", [1.0] * n)


@pytest.mark.feature("G01", "G05", "G07")
def test_values_stay_what_they_are_and_are_always_wrapped():
    s, one = mirrored(2), mirrored(1)
    array = np.array([3.0, 2.0, 1.0])
    make = s.experimental_distribute_values_from_function
    parts = make(lambda c: array[c.replica_id_in_sync_group])
    found = s.experimental_local_results(parts)
    assert found == (3.0, 2.0)
    assert all(isinstance(x, np.float64) for x in found)
    # As numbers of a tensor in TensorFlow, they have the method `numpy`.
    assert [x.numpy() for x in found] == [3.0, 2.0]
    same = jnp.asarray(1.0)
    assert kind(make(lambda c: same)) == "PerReplica"
    assert s.experimental_local_results(make(lambda c: c.num_replicas_in_sync)) == (
        2,
        2,
    )
    alone = one.experimental_distribute_values_from_function(lambda c: 1)
    assert one.experimental_local_results(alone) == (1,)
    assert repr(alone) == "PerReplica:{\n  0: 1\n}"
    assert repr(make(lambda c: None)) == "PerReplica:{\n  0: None,\n  1: None\n}"


@pytest.mark.feature("G01")
def test_structures_are_wrapped_leaf_by_leaf():
    s = mirrored(2)
    result = s.experimental_distribute_values_from_function(
        lambda c: {"a": jnp.asarray(1.0), "b": [c.replica_id_in_sync_group]}
    )
    assert type(result) is dict
    assert local(s, result["a"]) == [1.0, 1.0]
    assert s.experimental_local_results(result["b"][0]) == (0, 1)


@pytest.mark.feature("G01")
def test_the_function_runs_in_the_context_of_its_caller():
    s, seen = mirrored(2), []

    def value_fn(c):
        seen.append((tf.distribute.in_cross_replica_context(), context() is None))
        return 1

    s.experimental_distribute_values_from_function(value_fn)
    with s.scope():
        s.experimental_distribute_values_from_function(value_fn)
    assert seen == [(False, False)] * 2 + [(True, True)] * 2
    inside = s.run(
        lambda: kind(s.experimental_distribute_values_from_function(lambda c: 1.0))
    )
    assert inside == "PerReplica"


@pytest.mark.feature("G02", "G03")
def test_a_value_context_can_be_made_and_printed():
    made = tf.distribute.experimental.ValueContext(3, 8)
    assert (made.replica_id_in_sync_group, made.num_replicas_in_sync) == (3, 8)
    assert str(tf.distribute.ValueContext()) == (
        "tf.distribute.ValueContext(replica id 0,  total replicas in sync: 1)"
    )
    assert tf.distribute.ValueContext is tf.distribute.experimental.ValueContext


@pytest.mark.feature("G01", "T04", "T05")
def test_one_device_returns_the_bare_value_and_central_storage_wraps():
    def value_fn(c):
        return (c.replica_id_in_sync_group, c.num_replicas_in_sync)

    bare = one_device().experimental_distribute_values_from_function(value_fn)
    assert bare == (0, 1)
    wrapped = central(2).experimental_distribute_values_from_function(lambda c: 1.0)
    assert kind(wrapped) == "PerReplica"


@pytest.mark.feature("D03", "G01", "G05")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_values_go_to_run_and_reduce(how, n):
    s = mirrored(n)
    for convert in (float, np.float32, jnp.float32, lambda x: np.full(2, x, "f4")):
        values = s.experimental_distribute_values_from_function(
            lambda c, f=convert: f(1.0 + c.replica_id_in_sync_group)
        )
        doubled = execute(how, s, lambda x: jnp.sum(x * 2.0), args=(values,))
        size = np.size(convert(0.0))
        assert local(s, doubled) == [2.0 * size * (1 + i) for i in range(n)]
        total = s.reduce("SUM", doubled, None)
        assert plain(total) == size * n * (n + 1)


@pytest.mark.feature("D19", "G01")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_values_may_be_made_inside_a_compiled_function(n):
    s = mirrored(n)

    @tf.function
    def run():
        values = s.experimental_distribute_values_from_function(
            lambda c: c.num_replicas_in_sync
        )
        return s.run(lambda x: x * 2, args=(values,))

    assert set(local(s, run())) == {2 * n}
