"""Arguments of Keras 2 are taken for what they meant, and a warning says so."""

import numpy as np
import pytest

import unisono as tf

keras = pytest.importorskip("keras")
tf.keras.layers  # noqa: B018  The methods of `tf.keras` are there from now on.


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_lr_is_the_learning_rate(kind):
    make = getattr(keras.optimizers, kind)
    with pytest.warns(UserWarning, match=rf"{kind}\(learning_rate=0.25\)") as told:
        optimizer = make(lr=0.25)
    assert told[0].filename == __file__
    assert float(optimizer.learning_rate) == 0.25


def test_lr_of_an_optimizer_without_a_rate_is_refused_by_keras():
    with pytest.raises((TypeError, ValueError)):
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), lr=0.25)


def test_weights_of_a_layer_take_the_order_of_keras_2():
    layer = keras.layers.Layer()
    with pytest.warns(UserWarning, match=r"name='kernel', shape=\(3,\)"):
        made = layer.add_weight("kernel", (3,), initializer="ones", trainable=False)
    assert made.name == "kernel" and not made.trainable
    assert np.array_equal(made, np.ones(3))
    with pytest.warns(UserWarning, match="order of Keras 2"):
        made = layer.add_weight("count", (), "int32", "ones")
    assert made.dtype == "int32" and int(made) == 1
    with pytest.raises(TypeError, match="at most 6"):
        layer.add_weight("kernel", (3,), None, None, None, True, None)
    # The order of Keras 3.
    assert layer.add_weight((2,), "zeros").shape == (2,)


def test_weights_of_a_metric_take_the_order_of_keras_2():
    class Count(keras.metrics.Metric):
        def __init__(self):
            super().__init__()
            self.total = self.add_weight("total", initializer="zeros")

        def update_state(self, x):
            self.total.assign_add(x)

        def result(self):
            return self.total.value

    with pytest.warns(UserWarning, match="name='total'"):
        metric = Count()
    metric.update_state(3.0)
    assert float(metric.result()) == 3 and metric.total.name == "total"


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_gradients_that_the_program_has_summed_are_not_summed_again(
    replicas, is_compiled
):
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.5, momentum=0.9)
    model.set_weights([np.zeros((2, 1)), np.zeros(1)])
    x = np.arange(8.0, dtype="float32").reshape(4, 2)

    def replica_step(part):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(part)) / 4.0
        variables = model.trainable_variables
        context = tf.distribute.get_replica_context()
        found = context.all_reduce("SUM", tape.gradient(loss, variables))
        clipped, _ = tf.clip_by_global_norm(found, 1.0)
        optimizer.apply_gradients(
            zip(clipped, variables), experimental_aggregate_gradients=False
        )

    def step(parts):
        strategy.run(replica_step, args=(parts,))

    data = tf.data.Dataset.from_tensor_slices(x).batch(4).repeat(2)
    run = tf.function(step) if is_compiled else step
    for parts in strategy.experimental_distribute_dataset(data):
        run(parts)
    gradient = np.array([3.0, 4.0, 1.0]) / np.linalg.norm([3.0, 4.0, 1.0])
    # The first step, and the second with the momentum of the first.
    wanted = -0.5 * gradient * (1 + 1.9)
    found = np.concatenate([w.ravel() for w in model.get_weights()])
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_loss_scale_optimizer_says_that_it_sums_itself():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        variable = keras.Variable(0.0)
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0))

    def step():
        optimizer.apply_gradients([(1.0, variable)], skip_gradients_aggregation=True)

    with pytest.raises(NotImplementedError, match="sums the gradients"):
        strategy.run(step)


def test_gradients_are_summed_unless_the_program_says_otherwise():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        variable = keras.Variable(0.0)
        optimizer = keras.optimizers.SGD(1.0)

    def step():
        given = [(tf.constant(1.0), variable)]
        optimizer.apply_gradients(given, name="update")
        optimizer.apply_gradients(given, experimental_aggregate_gradients=True)

    strategy.run(step)
    assert float(variable) == -4
