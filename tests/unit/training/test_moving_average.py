"""Moving averages of variables; the numbers are TensorFlow's."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import mirrored

EMA = tf.train.ExponentialMovingAverage
D = tf.distribute


def test_an_average_starts_as_the_variable_and_follows_it():
    v = tf.Variable([1.0, 2.0], name="w")
    ema = EMA(0.9)
    assert ema.average(v) is None
    assert (ema.name, ema.average_name(v)) == (
        "ExponentialMovingAverage",
        "w/ExponentialMovingAverage",
    )
    assert ema.apply([v]) is None
    average = ema.average(v)
    assert average is not None
    assert average.name == "w/ExponentialMovingAverage:0"
    assert (average.numpy().tolist(), average.trainable) == ([1.0, 2.0], False)
    v.assign([3.0, 4.0])
    ema.apply([v])
    np.testing.assert_allclose(average.numpy(), [1.2, 2.2], rtol=1e-6)
    assert ema.average(v) is average


def test_few_updates_lower_the_decay():
    v, count = tf.Variable([3.0, 4.0], name="few"), tf.Variable(4)
    ema = EMA(0.9, num_updates=count, zero_debias=True, name="avg")
    ema.apply([v])
    v.assign([0.0, 0.0])
    ema.apply([v])
    average = ema.average(v)
    np.testing.assert_allclose(average.numpy(), [1.0714285, 1.4285715], rtol=1e-6)
    assert average.name == "few/avg:0"
    count.assign(10_000)
    ema.apply([v])
    np.testing.assert_allclose(average.numpy()[0], 1.0714285 * 0.9, rtol=1e-6)


def test_the_decay_may_be_a_variable_and_the_type_is_kept():
    decay = tf.Variable(0.5)
    v, ema = tf.Variable([1.0, 2.0], dtype=tf.float16), EMA(decay)
    ema.apply([v])
    v.assign(jnp.asarray([2.0, 3.0], jnp.float16))
    ema.apply([v])
    average = ema.average(v)
    assert (average.dtype, average.numpy().tolist()) == (np.float16, [1.5, 2.5])
    decay.assign(0.0)
    ema.apply([v])
    assert average.numpy().tolist() == [2.0, 3.0]


def strategies():
    return [
        mirrored(2),
        mirrored(4),
        D.OneDeviceStrategy("CPU:0"),
        D.TPUStrategy(),
        D.CentralStorageStrategy(["CPU:0", "CPU:1"]),
        D.MirroredStrategy(["CPU:0", "CPU:1"], state="sharded", shard_above=1),
        D.get_strategy(),
    ]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("which", range(7))
def test_averages_are_the_same_under_every_strategy(which, compiled):
    strategy = strategies()[which]
    with strategy.scope():
        v = tf.Variable([1.0, 1.0], name="m")
        ema = EMA(0.5)
        ema.apply([v])
        v.assign([3.0, 3.0])
        ema.apply([v])
    average = ema.average(v)
    np.testing.assert_allclose(average.numpy(), [2.0, 2.0])
    v.assign([6.0, 6.0])

    def step():
        ema.apply([v])

    run = tf.function(step) if compiled else step
    strategy.run(run)
    np.testing.assert_allclose(average.numpy(), [4.0, 4.0])
    strategy.run(run)
    np.testing.assert_allclose(average.numpy(), [5.0, 5.0])
    ema.apply([v])  # Outside the scope.
    np.testing.assert_allclose(average.numpy(), [5.5, 5.5])
    for copy in strategy.experimental_local_results(average):
        np.testing.assert_allclose(copy.numpy(), [5.5, 5.5])


@pytest.mark.parametrize("compiled", [False, True])
def test_the_first_apply_may_be_in_a_step(compiled):
    strategy = mirrored(2)
    with strategy.scope():
        v = tf.Variable(4.0)
    ema = EMA(0.5)

    def step():
        ema.apply([v])

    run = tf.function(step) if compiled else step
    strategy.run(run)
    v.assign(8.0)
    strategy.run(run)
    assert float(ema.average(v).numpy()) == 6.0


def test_copies_that_differ_are_averaged_by_their_mean():
    strategy, ema = mirrored(2), EMA(0.5)
    with strategy.scope():
        v = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
            trainable=False,
        )
        ema.apply([v])

    def step():
        number = D.get_replica_context().replica_id_in_sync_group
        v.assign_add(jnp.asarray(number + 1, jnp.float32))
        ema.apply([v])

    strategy.run(step)
    assert float(ema.average(v).numpy()) == 0.75


def test_averages_are_saved_by_their_names(tmp_path):
    def make():
        v, ema = tf.Variable(1.0, name="w"), EMA(0.5)
        ema.apply([v])
        return v, ema

    v, ema = make()
    v.assign(3.0)
    ema.apply([v])
    path = tf.train.Checkpoint(ema=ema).save(str(tmp_path / "c"))
    w, other = make()
    tf.train.Checkpoint(ema=other).restore(path).assert_consumed()
    assert float(other.average(w).numpy()) == 2.0


@pytest.mark.parametrize(
    ("given", "words"),
    [(jnp.ones(2), "non-Variable"), (tf.Variable(1), "half, float, or double")],
)
def test_what_has_no_average_is_refused(given, words):
    with pytest.raises(TypeError, match=words):
        EMA(0.9).apply([given])
