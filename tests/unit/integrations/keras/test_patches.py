"""Random state that Keras keeps beside its variables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf

keras = pytest.importorskip("keras")

X = np.linspace(0.0, 1.0, 24, dtype=np.float32).reshape(2, 4, 3)


def test_a_recurrent_layer_with_dropout_draws_in_a_program_what_keras_draws():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        layer = tf.keras.layers.LSTM(2, dropout=0.5, recurrent_dropout=0.5, seed=1)
        layer.build(X.shape)
    expected = jax.jit(
        lambda trained, others: layer.stateless_call(trained, others, X, training=True)
    )
    trained = [v.value for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]
    step = tf.function(lambda: strategy.run(lambda: layer(X, training=True)))
    for _ in range(2):  # The second step draws other masks.
        wanted, others = expected(trained, others)
        assert np.allclose(step(), wanted, atol=1e-6)


def test_a_layer_that_draws_with_tensorflows_names_is_told_what_to_write():
    class Noise(tf.keras.layers.Layer):
        def call(self, x):
            return x + tf.random.normal(tf.shape(x))

    told = r"seed=self\.seed\) or its like"
    with pytest.raises(tf.errors.InvalidArgumentError, match=told):
        Noise()(tf.keras.Input((4,)))
    with pytest.raises(RuntimeError, match=told):
        Noise()(tf.keras.Input(batch_shape=(2, 4)))
    assert Noise()(tf.zeros([2, 4])).shape == (2, 4)


def recurrent(kind):
    layer = {
        "lstm": lambda: keras.layers.LSTM(3),
        "simple": lambda: keras.layers.SimpleRNN(3),
        "both ways": lambda: keras.layers.Bidirectional(keras.layers.LSTM(2)),
    }[kind]()
    model = keras.Sequential([layer, keras.layers.Dense(1)])
    model(X)
    return model


@pytest.mark.parametrize("kind", ["lstm", "simple", "both ways"])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_tapes_follow_recurrent_layers_that_no_strategy_has(kind, is_compiled):
    model = recurrent(kind)

    def gradients():
        with tf.GradientTape() as tape:
            loss = jnp.mean(model(X) ** 2)
        return tape.gradient(loss, model.trainable_variables)

    others = [v.value for v in model.non_trainable_variables]

    def loss_of(weights):
        return jnp.mean(model.stateless_call(weights, others, X)[0] ** 2)

    wanted = jax.grad(loss_of)([v.value for v in model.trainable_variables])
    found = (tf.function(gradients) if is_compiled else gradients)()
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_a_function_reads_the_weights_of_recurrent_layers_at_every_call():
    model = recurrent("lstm")
    compute = tf.function(lambda: model(X))
    first = np.asarray(compute())
    model.set_weights([2.0 * w for w in model.get_weights()])
    np.testing.assert_allclose(compute(), model(X), rtol=1e-5)
    assert not np.allclose(compute(), first)


def test_an_optimizer_that_scales_losses_works_in_the_block_of_a_tape():
    weight = keras.Variable(4.0)
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5))
    with tf.GradientTape():
        with tf.GradientTape() as tape:
            loss = optimizer.scale_loss(weight * weight)
        optimizer.apply(tape.gradient(loss, [weight]), [weight])
    assert float(weight.value) == 0.0


def test_statements_on_arrays_in_layers_of_the_user_are_converted():
    class Clip(tf.keras.layers.Layer):
        def call(self, x, training=False):
            if training:
                x = x * 2
            if tf.reduce_sum(x) > 3:
                x = x / 2
            return x

    class Model(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.clip = Clip()
            self.dense = tf.keras.layers.Dense(1, kernel_initializer="ones")

        def call(self, x, training=False):
            y = self.clip(x, training=training)
            for _ in tf.range(2):
                y = y + 1
            return self.dense(y)

    model = Model()
    step = tf.function(lambda x: model(x, training=True))
    assert float(step(jnp.ones((1, 2)))[0, 0]) == 6.0
    assert float(step(jnp.ones((1, 2)) / 2)[0, 0]) == 6.0
    assert float(step(jnp.zeros((1, 2)))[0, 0]) == 4.0
