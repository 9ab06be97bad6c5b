"""Sums that are assigned are additions, so that those of other workers stay."""

import keras
import numpy as np
import pytest
from flax import nnx

import unisono
from tests.unit.servers import clusters

pytestmark = pytest.mark.feature("T06")


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
