"""Gradient tapes follow Keras variables, and change little else in Keras."""

import concurrent.futures
import contextlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests import machine

keras = pytest.importorskip("keras")

X = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(4, 3)


def make_model():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(4, activation="tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1),
        ]
    )


def test_gradients_are_those_of_jax_and_state_carries_none():
    model = make_model()
    trained = [v.value for v in model.trainable_variables]
    others = [v.value for v in model.non_trainable_variables]

    def loss_fn(trained):
        out, after = model.stateless_call(trained, others, X, training=True)
        return jnp.mean(out**2), after

    expected, after = jax.grad(loss_fn, has_aux=True)(trained)
    with tf.GradientTape() as tape:
        loss = jnp.mean(model(X, training=True) ** 2)
    watched = tape.watched_variables()
    assert all(a is b for a, b in zip(watched, model.trainable_variables, strict=True))
    found = tape.gradient(loss, model.trainable_variables)
    for one, other in zip(found, expected, strict=True):
        assert np.allclose(one, other, atol=1e-6)
    for variable, value in zip(model.non_trainable_variables, after, strict=True):
        assert not isinstance(variable.value, jax.core.Tracer)
        assert np.allclose(variable.value, value, atol=1e-6)


def test_a_model_that_is_built_in_the_block_is_followed():
    model = keras.Sequential([keras.layers.Dense(1)])
    with tf.GradientTape() as tape:
        loss = jnp.sum(model(X))
    kernel, bias = tape.gradient(loss, model.trainable_variables)
    assert np.allclose(kernel[:, 0], X.sum(0), atol=1e-6) and bias == 4


def test_second_derivatives_watching_and_mixed_precision():
    v = keras.Variable(3.0)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = v * v * v
        slope = inner.gradient(y, v)
    assert float(outer.gradient(slope, v)) == 18
    fixed = keras.Variable(2.0, trainable=False)
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(fixed)
        y = fixed * v
    assert float(tape.gradient(y, fixed)) == 3 and tape.gradient(y, v) is None
    assert tape.watched_variables() == (fixed,)
    layer = keras.layers.Dense(1, dtype="mixed_float16")
    with tf.GradientTape() as tape:
        y = jnp.sum(layer(X))
    assert tape.gradient(y, layer.kernel).dtype == jnp.float32


def test_an_optimizer_takes_the_gradients_outside_every_scope():
    v, optimizer = keras.Variable([1.0, 2.0]), keras.optimizers.SGD(0.5)
    for _ in range(2):
        with tf.GradientTape() as tape:
            loss = jnp.sum(v * v) / 2
        optimizer.apply_gradients([(tape.gradient(loss, v), v)])
    assert v.numpy().tolist() == [0.25, 0.5]


def test_a_tape_names_the_keras_variables_of_a_scope():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        v, w = keras.Variable(1.0), keras.Variable(1.0, trainable=False)

    def step():
        with tf.GradientTape() as tape:
            loss = v * w
        (only,) = tape.watched_variables()
        assert only is v
        assert float(tape.gradient(loss, only)) == 1

    strategy.run(step)


@pytest.mark.parametrize("place", ["outside", "in a scope", "in a function"])
def test_a_model_that_is_not_built_can_be_computed_again_for_its_gradient(place):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope() if place == "in a scope" else contextlib.nullcontext():
        layer = keras.layers.Dense(1, kernel_initializer="ones")
        model = keras.Sequential([keras.layers.Dense(2, "tanh"), layer])
        again = tf.recompute_grad(model)

    def compute(x):
        with tf.GradientTape() as tape:
            y = again(x)
        return y, tape.gradient(y, model.trainable_variables)

    if place == "in a function":
        compute = tf.function(compute)
    y, found = compute(jnp.asarray(X))
    with tf.GradientTape() as tape:
        expected = model(X)
    np.testing.assert_allclose(y, expected, 1e-6)
    wanted = tape.gradient(expected, model.trainable_variables)
    assert len(found) == 4
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("count", [0, 2])
def test_a_scaled_loss_trains_in_a_loop_of_ones_own(count, is_compiled):
    strategy = tf.distribute.get_strategy()
    if count:
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.Input((4,)), tf.keras.layers.Dense(1, kernel_initializer="ones")]
        )
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(
            tf.keras.optimizers.SGD(0.01), initial_scale=4.0, dynamic_growth_steps=2
        )

    def replica(x):
        with tf.GradientTape() as tape:
            loss = optimizer.scale_loss(tf.reduce_sum(model(x)))
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

    step = tf.function(strategy.run) if is_compiled else strategy.run
    seen = []
    for factor in (1.0, 1.0, np.inf):
        step(replica, args=(tf.ones([1, 4]) * factor,))
        kernel = float(np.asarray(model.layers[0].kernel)[0, 0])
        seen.append((round(kernel, 3), float(optimizer.dynamic_scale.numpy())))
    down = 0.01 * (count or 1)
    # The third step is left out, because its gradients are not finite.
    assert seen == [
        (round(1 - down, 3), 4.0),
        (round(1 - 2 * down, 3), 8.0),
        (round(1 - 2 * down, 3), 4.0),
    ]


# What a tape replaces in Keras.


def attributes_of_keras():
    """Returns every attribute of Keras' modules and classes, by its path."""
    found = {}
    for path, module in list(sys.modules.items()):
        if path.partition(".")[0] != "keras" or module is None:
            continue
        for name, value in vars(module).items():
            found[f"{path}.{name}"] = value
            if isinstance(value, type) and value.__module__.startswith("keras"):
                owner = f"{value.__module__}.{value.__qualname__}"
                found |= {f"{owner}.{n}": x for n, x in vars(value).items()}
    return found


def changes(before, after):
    names = before.keys() | after.keys()
    missing = object()
    return {n for n in names if before.get(n, missing) is not after.get(n, missing)}


VARIABLE = "keras.src.backend.Variable"


def test_a_tape_replaces_how_variables_are_made_read_and_written_and_no_more():
    v = keras.Variable(3.0)
    with tf.GradientTape():
        _ = v * v  # Whatever loads on first use is loaded.
    before = attributes_of_keras()
    with tf.GradientTape():
        _ = v * v
        inside = changes(before, attributes_of_keras())
        kind = type(v)
    assert inside == {
        f"{VARIABLE}.__init__",
        f"{VARIABLE}.value",
        f"{VARIABLE}._direct_assign",
        "keras.src.ops.cond",  # Its branches may assign variables.
    }
    assert kind is keras.Variable
    assert not changes(before, attributes_of_keras())


def test_all_is_given_back_after_an_exception_and_by_a_tape_that_ends_early():
    v = keras.Variable(3.0)
    with tf.GradientTape():
        _ = v * v
    before = attributes_of_keras()
    with pytest.raises(KeyError), tf.GradientTape(), tf.GradientTape():
        assert changes(before, attributes_of_keras())
        raise KeyError
    assert not changes(before, attributes_of_keras())
    with tf.GradientTape() as tape:
        assert float(tape.gradient(v * v, v)) == 6
        assert not changes(before, attributes_of_keras())
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with pytest.raises(KeyError), strategy.scope(), tf.GradientTape():
        raise KeyError
    assert not changes(before, attributes_of_keras())


def in_thread(function):
    """Returns what a function returns in a thread of its own."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(30)


def test_a_tape_does_not_change_what_keras_does_in_another_thread():
    v, w = keras.Variable(3.0), keras.Variable(2.0)
    array = v.value

    def read_and_write():
        assert v.value is array
        w.assign(5.0)

        # Plain Keras makes such a variable from a traced value, which then leaks.
        leaked = []
        jax.jit(lambda: leaked.append(keras.Variable(jnp.ones(2))))()
        return leaked[0]

    with tf.GradientTape() as tape:
        y = v * v
        made = in_thread(read_and_write)
        y = y * w
    assert isinstance(made.value, jax.core.Tracer)
    assert all(a is b for a, b in zip(tape.watched_variables(), (v, w), strict=True))
    assert float(tape.gradient(y, v)) == 2 * 3 * 5


def test_two_threads_with_tapes_do_not_follow_each_others_reads():
    v, w = keras.Variable(3.0), keras.Variable(2.0)

    def other():
        with tf.GradientTape() as tape:
            y = w * w
        return tape.watched_variables(), float(tape.gradient(y, w))

    with tf.GradientTape() as tape:
        (only,), slope = in_thread(other)
        y = v * v
    assert only is w and slope == 4
    assert tape.watched_variables() == (v,) and float(tape.gradient(y, v)) == 6


SERIES = np.linspace(0.0, 1.0, 24, dtype=np.float32).reshape(2, 4, 3)


def test_a_recurrent_layer_with_dropout_draws_in_a_program_what_keras_draws():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        layer = tf.keras.layers.LSTM(2, dropout=0.5, recurrent_dropout=0.5, seed=1)
        layer.build(SERIES.shape)
    expected = jax.jit(
        lambda trained, others: layer.stateless_call(
            trained, others, SERIES, training=True
        )
    )
    trained = [v.value for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]
    step = tf.function(lambda: strategy.run(lambda: layer(SERIES, training=True)))
    for _ in range(2):  # The second step draws other masks.
        wanted, others = expected(trained, others)
        assert np.allclose(step(), wanted, atol=1e-6)


def test_a_layer_that_draws_with_tensorflows_names_is_told_what_to_write():
    class Noise(tf.keras.layers.Layer):
        def call(self, x):
            return x + tf.random.normal(tf.shape(x))

    inputs = tf.keras.Input((4,))
    model = tf.keras.Model(inputs, Noise()(inputs))
    with pytest.raises(RuntimeError, match=r"seed=self\.seed\) or its like"):
        model.predict(np.zeros((2, 4)), verbose=0)
    assert Noise()(tf.keras.Input(batch_shape=(2, 4))).shape == (2, 4)
    assert Noise()(tf.zeros([2, 4])).shape == (2, 4)


def recurrent(kind):
    layer = {
        "lstm": lambda: keras.layers.LSTM(3),
        "simple": lambda: keras.layers.SimpleRNN(3),
        "both ways": lambda: keras.layers.Bidirectional(keras.layers.LSTM(2)),
    }[kind]()
    model = keras.Sequential([layer, keras.layers.Dense(1)])
    model(SERIES)
    return model


@pytest.mark.parametrize("kind", ["lstm", "simple", "both ways"])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_tapes_follow_recurrent_layers_that_no_strategy_has(kind, is_compiled):
    model = recurrent(kind)

    def gradients():
        with tf.GradientTape() as tape:
            loss = jnp.mean(model(SERIES) ** 2)
        return tape.gradient(loss, model.trainable_variables)

    others = [v.value for v in model.non_trainable_variables]

    def loss_of(weights):
        return jnp.mean(model.stateless_call(weights, others, SERIES)[0] ** 2)

    wanted = jax.grad(loss_of)([v.value for v in model.trainable_variables])
    found = (tf.function(gradients) if is_compiled else gradients)()
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_a_function_reads_the_weights_of_recurrent_layers_at_every_call():
    model = recurrent("lstm")
    compute = tf.function(lambda: model(SERIES))
    first = np.asarray(compute())
    model.set_weights([2.0 * w for w in model.get_weights()])
    np.testing.assert_allclose(compute(), model(SERIES), rtol=1e-5)
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


@pytest.mark.parametrize("in_scope", [False, True])
def test_a_variable_that_a_function_returns_is_its_value_then(in_scope):
    # TensorFlow's numbers.
    strategy = tf.distribute.MirroredStrategy(machine.names(2))
    with strategy.scope() if in_scope else contextlib.nullcontext():
        v = keras.Variable(1.0)
    get = tf.function(lambda: v)

    @tf.function
    def step():
        before = get()
        v.assign_add(1.0)
        return before, v

    assert [float(x) for x in step()] == [1.0, 2.0]
    found = get()
    v.assign(7.0)
    assert float(found) == 2.0
