"""A replica of a compiled program reads and writes its own copy, or its own part."""

import jax.numpy as jnp
import numpy as np

import unisono as tf
from tests.parity.programs import device_names, mirrored, variable
from unisono._src.state import frames, replica_frame


def test_a_part_that_is_set_is_gathered_when_the_whole_is_read():
    strategy = tf.distribute.MirroredStrategy(
        device_names(2), state="sharded", shard_above=1
    )
    v = variable(strategy, jnp.arange(4.0))
    cell, seen = v.state_cell, []
    assert replica_frame.is_cut(cell)

    def replica():
        frame = frames.frame()
        assert isinstance(frame, replica_frame.LocalFrame)
        assert frame.part(cell).shape == (2,)
        frame.set_part(cell, frame.part(cell) * 10.0)
        assert cell not in frame.values
        whole = frame.whole(cell)
        # The newest value is the whole now, and the part is cut from it anew.
        frame.set_copy(cell, None, whole + 1.0)
        assert cell not in frame.parts
        seen.append(list(frame.written) == [cell])
        return frame.part(cell)

    found = tf.function(lambda: strategy.run(replica))()
    assert all(seen)
    np.testing.assert_array_equal(v.numpy(), [1.0, 11.0, 21.0, 31.0])
    assert [x.tolist() for x in found.values] == [[1.0, 11.0], [21.0, 31.0]]


def test_a_variable_that_replicas_make_begins_with_the_value_of_the_first():
    strategy, made = mirrored(2), []

    def replica():
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        if not made:
            made.append(tf.Variable(jnp.asarray(number, jnp.float32) + 4.0))
        return made[0].value()

    tf.function(lambda: strategy.run(replica))()
    assert [float(x.numpy()) for x in made[0].values] == [4.0, 4.0]
    assert not replica_frame.is_cut(made[0].state_cell)
