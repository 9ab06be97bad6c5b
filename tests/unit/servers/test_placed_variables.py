"""Variables with a value for each worker, TensorFlow's fact 44."""

import numpy as np
import pytest

import unisono
from tests.unit.servers import clusters
from unisono.distribute import coordinator as api


@pytest.mark.feature("T06")
def test_each_worker_has_its_own_value_which_is_lost_with_it():
    carrier = api.ThreadCarrier(synchronous=True)
    with clusters.cluster(carrier=carrier) as (strategy, coordinator):
        seen = strategy.extended._create_per_worker_variable(
            None, initial_value=5, name="seen"
        )
        add = unisono.function(lambda x: seen.assign_add(x))
        found = [coordinator.schedule(add, args=(np.int32(k),)) for k in range(4)]
        assert [int(x) for x in coordinator.fetch(found)] == [5, 6, 7, 9]
        assert [int(x) for x in seen.read_all()] == [7, 9]
        with pytest.raises(ValueError, match="read_all"):
            seen.numpy()
        carrier.lose("worker", 0)
        remote = coordinator.schedule(add, args=(np.int32(1),))
        assert int(remote.fetch()) == 10
        assert [int(x) for x in seen.read_all()] == [5, 10]
