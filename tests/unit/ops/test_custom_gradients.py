"""Gradients through the everyday names, and gradients that a function says."""

import jax
import pytest

import unisono as tf


@tf.custom_gradient
def steep(x):
    """Is twice `x`, with a gradient that depends on what was computed."""
    root = tf.square(x)

    def gradient(upstream):
        return upstream * root

    return 2.0 * x, gradient


def test_an_array_that_constant_made_can_be_watched():
    x = tf.constant(3.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        copy = tf.identity(x)
        y = copy * x
        cut = tf.stop_gradient(x) * x
    assert tape.gradient(y, x).item() == 6
    assert tape.gradient(y, copy).item() == 3
    assert tape.gradient(cut, x).item() == 3


def test_a_variable_that_was_converted_keeps_its_gradient():
    variable = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        array = tf.convert_to_tensor(variable)
        y = tf.reduce_sum(tf.stack([array, tf.cast(array, tf.float32)]))
    assert tape.gradient(y, variable).tolist() == [2, 2]


def test_watching_a_number_says_constant():
    with tf.GradientTape() as tape, pytest.raises(ValueError, match="constant"):
        tape.watch(3.0)


def test_a_custom_gradient_is_used_by_tapes_and_by_jax():
    x = tf.constant(3.0)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = steep(x)
        slope = tape.gradient(y, x)
    assert y == 6 and slope == 9 and outer.gradient(slope, x) == 6
    assert jax.grad(steep)(3.0) == 9 and jax.grad(jax.grad(steep))(3.0) == 6
    variable = tf.Variable(3.0)
    _, (gradient,) = tf.value_and_grad(lambda: steep(variable), [variable])()
    assert gradient == 9


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function])
def test_a_custom_gradient_says_those_of_variables(wrap):
    x, variable = tf.constant(2.0), tf.Variable(5.0)

    @tf.custom_gradient
    def product(x):
        def gradient(upstream, variables=None):
            assert [v is variable for v in variables] == [True]
            return upstream * 2.0 * variable, [upstream * 20.0]

        return x * variable, gradient

    @wrap
    def differentiate():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = product(x) * 3.0
        return y, tape.gradient(y, [x, variable])

    for value in (5.0, 7.0):
        # The gradient reads the variable as it is now.
        variable.assign(value)
        y, gradients = differentiate()
        assert y == 6 * value
        assert [float(g) for g in gradients] == [6 * value, 60]


def test_a_custom_gradient_has_a_result_for_each_argument():
    @tf.custom_gradient
    def both(a, b):
        return {"a": a * 2.0, "b": b * 3.0}, lambda da, db: (db, None)

    a, b = tf.constant(1.0), tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        made = both(a, b)
        y = made["a"] * 5.0 + made["b"] * 7.0
    gradients = tape.gradient(y, [a, b])
    assert gradients[0] == 7 and gradients[1] is None
    with pytest.raises(ValueError, match="expected to return 1 gradients"):
        tf.custom_gradient(lambda x: (x, lambda d: (d, d)))(a)


def test_a_custom_gradient_that_leaves_out_variables_is_refused():
    variable = tf.Variable(1.0)
    with pytest.raises(TypeError, match="'variables' keyword argument"):
        tf.custom_gradient(lambda x: (x * variable, lambda d: d))(1.0)


def test_replicas_compute_gradients_of_everyday_names():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        weight = tf.Variable(3.0)

    @tf.function
    def step(x):
        def replica_fn(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(steep(weight) * x))
            return tape.gradient(loss, weight)

        return strategy.run(replica_fn, args=(x,))

    found = step(tf.distribute.PerReplica([tf.ones([2]), tf.zeros([2])]))
    assert [float(x) for x in found.values] == [2 * 6 * 9, 0]
