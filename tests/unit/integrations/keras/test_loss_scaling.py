"""Losses of Keras in a replica count as their part of the loss of all replicas."""

import keras
import numpy as np
import pytest

import unisono as tf

Y, FOUND = np.zeros((4, 1), "f4"), np.arange(4.0, dtype="f4")[:, None]


def losses_of(replicas, loss, y=Y, found=FOUND):
    """Returns the losses of the replicas for their parts of a batch."""
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    data = tf.data.Dataset.from_tensor_slices((y, found)).batch(4)
    (parts,) = strategy.experimental_distribute_dataset(data)
    values = strategy.run(loss, args=parts)
    return [np.asarray(x) for x in strategy.experimental_local_results(values)]


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_mean_losses_of_replicas_add_up_to_the_loss_of_the_batch(replicas):
    # On TensorFlow: 3.5; 0.25 and 3.25; 0, 0.25, 1 and 2.25.
    found = losses_of(replicas, keras.losses.MeanSquaredError())
    np.testing.assert_allclose(sum(found), 3.5)
    assert float(found[0]) == {1: 3.5, 2: 0.25, 4: 0.0}[replicas]


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_other_reductions_are_left_alone(reduction):
    found = losses_of(2, keras.losses.MeanSquaredError(reduction=reduction))
    wanted = [1.0, 13.0] if reduction == "sum" else [[0.0, 1.0], [4.0, 9.0]]
    np.testing.assert_allclose(found, wanted)


def test_a_replica_without_examples_has_the_loss_zero():
    found = losses_of(4, keras.losses.MeanSquaredError(), Y[:2], FOUND[1:3])
    np.testing.assert_allclose(found, [0.25, 1.0, 0.0, 0.0])
    kept = keras.losses.MeanSquaredError(reduction="none")
    assert losses_of(4, kept, Y[:2], FOUND[1:3])[3].shape == (0,)


def test_a_loss_outside_replicas_is_that_of_the_whole_batch():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    loss = keras.losses.MeanSquaredError()
    with strategy.scope():
        assert float(loss(Y, FOUND)) == 3.5
    assert float(loss(Y, FOUND)) == 3.5
