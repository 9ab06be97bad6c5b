"""Reading variables whose copies differ."""

import numpy as np
import pytest

import unisono
from tests import machine


@pytest.mark.parametrize(
    "change",
    [
        lambda v, s: v.assign_add([1.0, 1.0]),
        lambda v, s: v.assign_sub([1.0, 1.0]),
        lambda v, s: s.run(lambda: v.assign_add([1.0, 1.0])),
        lambda v, s: v.scatter_add(
            unisono.IndexedSlices(np.ones(1, np.float32), np.zeros(1, np.int32))
        ),
    ],
    ids=["assign_add", "assign_sub", "in replicas", "scatter_add"],
)
@pytest.mark.parametrize("wrap", [lambda fn: fn, unisono.function])
def test_copies_that_differ_are_not_changed_together(change, wrap):
    strategy = unisono.distribute.MirroredStrategy(machine.names(2))
    with strategy.scope():
        v = unisono.Variable([0.0, 0.0], aggregation=unisono.VariableAggregation.MEAN)
    for i, copy in enumerate(v.values):
        copy.assign([i, i])
    with pytest.raises(ValueError, match="would get different values"):
        wrap(lambda: change(v, strategy))()
    assert [c.numpy().tolist() for c in v.values] == [[0.0, 0.0], [1.0, 1.0]]
    v.assign([3.0, 3.0])
    wrap(lambda: change(v, strategy))()
    assert np.ptp([c.numpy() for c in v.values], axis=0).tolist() == [0.0, 0.0]
