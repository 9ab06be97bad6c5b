"""Static shapes and `RunOptions`: what concerns `TPUStrategy`, and nobody else."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import central, mirrored, one_device

Options = tf.distribute.RunOptions


def uneven(strategy):
    count = strategy.num_replicas_in_sync
    parts = [jnp.ones(2 if i + 1 < count else 1) for i in range(count)]
    return tf.distribute.PerReplica(parts)


def total(strategy, value, options):
    out = strategy.run(jnp.sum, args=(value,), options=options)
    return float(strategy.reduce("SUM", out, axis=None))


@pytest.mark.feature("N02", "T03")
def test_only_a_tpu_s_strategy_requires_static_shapes():
    assert tf.distribute.TPUStrategy().extended.experimental_require_static_shapes
    for strategy in (mirrored(2), central(2), one_device()):
        assert strategy.extended.experimental_require_static_shapes is False


@pytest.mark.feature("T03")
def test_a_last_partial_batch_is_right_all_the_same():
    strategy = tf.distribute.TPUStrategy()
    data = tf.data.Dataset.range(27).batch(16)
    sizes, sums = [], []
    step = tf.function(lambda x: jnp.sum(x))
    for x in strategy.experimental_distribute_dataset(data):
        sizes.append(sum(len(v) for v in strategy.experimental_local_results(x)))
        sums.append(int(strategy.reduce("SUM", strategy.run(step, args=(x,)), None)))
    assert (sizes, sums) == ([16, 11], [sum(range(16)), sum(range(16, 27))])


@pytest.mark.needs_devices(2)
@pytest.mark.feature("D15", "T03")
def test_a_dynamic_batch_size_is_on_unless_it_is_switched_off():
    strategy = tf.distribute.TPUStrategy()
    count = strategy.num_replicas_in_sync
    assert total(strategy, uneven(strategy), Options()) == 2 * count - 1
    off = Options(experimental_enable_dynamic_batch_size=False)
    padder = tf.tpu.XLAOptions(enable_xla_dynamic_padder=False)
    for options in (off, Options(experimental_xla_options=padder)):
        with pytest.raises(ValueError, match="Only static shapes are allowed"):
            total(strategy, uneven(strategy), options)
        even = tf.distribute.PerReplica([jnp.ones(2)] * count)
        assert total(strategy, even, options) == 2 * count
        assert total(strategy, np.ones(2), options) == 2 * count


@pytest.mark.feature("D15")
@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        (
            Options(experimental_bucketizing_dynamic_shape=True),
            ValueError,
            "cannot tell padding from data",
        ),
        (
            Options(experimental_xla_options=tf.tpu.XLAOptions(False)),
            ValueError,
            "XLA has one for all of them",
        ),
        (Options(experimental_xla_options=3), TypeError, "received 3 of type int"),
    ],
)
def test_options_that_cannot_be_kept_are_refused_with_the_reason(options, error, match):
    strategy = tf.distribute.TPUStrategy()
    with pytest.raises(error, match=match):
        strategy.run(lambda: 1, options=options)
    # As in TensorFlow, other strategies take no notice.
    assert mirrored(2).run(lambda: 1, options=options) == 1
