import jax.numpy as jnp
import numpy as np
import optax

import unisono as uni
from tests import machine
from unisono._src.training import gradient_taps


def test_the_gradient_of_each_replica_is_kept_while_somebody_collects_them():
    s = uni.distribute.MirroredStrategy(machine.names(2))
    with s.scope():
        w = uni.Variable([1.0, 2.0])
        optimizer = uni.optimizers.Optimizer(optax.sgd(0.1, momentum=0.9), [w])

    def replica():
        number = jnp.asarray(
            uni.distribute.get_replica_context().replica_id_in_sync_group
        )
        optimizer.apply_gradients([(jnp.full(2, number + 1.0), w)])

    taps = gradient_taps.GradientTaps()
    with gradient_taps.collect(taps):
        uni.function(lambda: s.run(replica))()
    (tap,) = taps.by_cell.values()
    found = [part.numpy().tolist() for part in tap.values]
    assert found == [[1.0, 1.0], [2.0, 2.0]]
    assert __file__ in taps.lines[w.state_cell]
    assert taps.slots == {v.state_cell for v in optimizer.variables}
    np.testing.assert_allclose(w.numpy(), [0.7, 1.7])
    # Nobody collects them any more.
    uni.function(lambda: s.run(replica))()
    assert [part.numpy().tolist() for part in tap.values] == found
