"""Variables of a strategy that keep the values of other libraries' variables."""

import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import copies, mirrored
from tests.threads import at_once, repeated
from unisono._src.integrations import kept_variables
from unisono._src.state import assignment


def kept(value, aggregation):
    with mirrored(2).scope():
        return kept_variables.make(
            value,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=getattr(tf.VariableAggregation, aggregation),
        )


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("aggregation", ["SUM", "MEAN", "ONLY_FIRST_REPLICA"])
def test_what_threads_add_outside_replicas_adds_up(aggregation):
    v = kept(0.0, aggregation)
    add = repeated(lambda: kept_variables.assign(v, assignment.ADD, np.float32(3)), 5)
    take = repeated(lambda: kept_variables.assign(v, assignment.SUB, np.float32(1)), 5)
    at_once(add, add, take)
    assert v.numpy() == 25.0


@pytest.mark.needs_devices(2)
def test_a_sum_of_integers_keeps_every_one_that_is_added():
    v = kept(0, "SUM")
    for _ in range(3):
        kept_variables.assign(v, assignment.ADD, 1)
    assert (int(v.numpy()), copies(v)) == (3, [3, 0])
