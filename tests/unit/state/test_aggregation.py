"""The values that replicas give to one assignment become one by TensorFlow's rules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import mirrored, on_read, variable
from unisono._src.state import aggregation

ARRAYS = (jnp.array([1.0]), jnp.array([5.0]))


def combine(how, *payloads):
    v = variable(mirrored(2), [0.0], how)
    return aggregation.combine_parts(v, payloads)


@pytest.mark.parametrize(
    ("how", "expected"), [("SUM", 6.0), ("MEAN", 3.0), ("ONLY_FIRST_REPLICA", 1.0)]
)
def test_arrays_of_replicas_are_aggregated(how, expected):
    assert combine(how, *ARRAYS).tolist() == [expected]


@pytest.mark.parametrize("shared", [ARRAYS[0], 2.0, 300])
def test_what_all_replicas_give_is_taken_as_it_is(shared):
    assert combine("MEAN", shared, shared) is shared
    with pytest.raises(ValueError, match="SUM"):
        combine("SUM", shared, shared)


def test_numbers_count_as_one_if_they_are_equal_and_of_one_type():
    one, same = float("1.5"), float("1.5")
    assert one is not same
    assert combine("MEAN", one, same) is one
    assert float(combine("MEAN", 1.0, 2.0)) == 1.5
    assert float(combine("SUM", 1, 2)) == 3.0
    # Otherwise they are values of the replicas, and are added.
    assert float(combine("SUM", 2, 2.0)) == 4.0


def test_a_variable_that_all_replicas_give_is_not_aggregated():
    source = variable(mirrored(2), [4.0])
    payload = aggregation.make_payload(source)
    assert combine("MEAN", payload, aggregation.make_payload(source)) is source
    with pytest.raises(AssertionError, match="assign its read_value"):
        combine("SUM", payload, payload)


def test_a_replica_contributes_a_value_without_its_gradient():
    seen = []

    def loss(x):
        seen.append(aggregation.make_payload(x))
        return x * aggregation.make_payload(x)

    assert float(jax.grad(loss)(3.0)) == 3.0
    assert aggregation.make_payload([1.0, 2.0]) == [1.0, 2.0]
    joined = aggregation.make_payload([ARRAYS[0], ARRAYS[1]])
    assert np.asarray(joined).tolist() == [[1.0], [5.0]]


def test_a_replica_contributes_its_own_part_and_its_own_copy():
    strategy = mirrored(2)
    v = variable(strategy, 0.0, "SUM")
    own = on_read(strategy, 2.0)
    parts = tf.distribute.PerReplica([jnp.array(1.0), jnp.array(5.0)])
    strategy.run(lambda: v.assign(parts))
    assert float(v.numpy()) == 6.0
    strategy.run(lambda: v.assign(own))
    assert float(v.numpy()) == 4.0
