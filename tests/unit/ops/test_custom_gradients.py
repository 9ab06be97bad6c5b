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
    with tf.GradientTape() as tape:
        tape.watch(a)
        y = tf.custom_gradient(lambda x: (x, lambda d: (d, d)))(a)
    with pytest.raises(ValueError, match="expected to return 1 gradients"):
        tape.gradient(y, a)


WRAPPERS = [lambda fn: fn, tf.function, jax.jit, jax.checkpoint]


@pytest.mark.parametrize("inner", WRAPPERS)
@pytest.mark.parametrize("outer", WRAPPERS[:2])
def test_a_custom_gradient_is_differentiated_again(inner, outer):
    def value(x):
        return inner(steep)(x) ** 2 + x**3

    def with_tapes(x):
        with tf.GradientTape() as second:
            second.watch(x)
            with tf.GradientTape() as first:
                first.watch(x)
                y = value(x)
            slope = first.gradient(y, x)
        return slope, second.gradient(slope, x)

    x = tf.constant(3.0)
    # The slope of `steep` is x², so that of its square is 4 x³. Of that, `steep` in the
    # one factor has the slope x², and the other, x², that of a square.
    expected = [4 * 27 + 27, 2 * 9 * 9 + 4 * 3 * 2 * 3 + 18]
    assert [float(g) for g in outer(with_tapes)(x)] == expected
    slope = jax.grad(value)
    assert [float(outer(slope)(x)), float(outer(jax.grad(slope))(x))] == expected


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_a_custom_gradient_that_nobody_asks_for_is_no_error(wrap):
    @tf.custom_gradient
    def rough(x):
        def gradient(upstream):
            raise LookupError("no gradient here")

        return tf.round(x), gradient

    x = tf.constant(3.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        stopped = tf.stop_gradient(wrap(rough)(x)) + x
        asked = wrap(rough)(x)
    assert wrap(rough)(x) == 3
    assert tape.gradient(stopped, x) == 1
    with pytest.raises(LookupError, match="no gradient here"):
        tape.gradient(asked, x)


def test_a_custom_gradient_is_called_when_it_is_asked_for():
    count = tf.Variable(0.0, trainable=False)

    @tf.custom_gradient
    def noted(x):
        def gradient(upstream):
            count.assign_add(1.0)
            return upstream * count

        return x, gradient

    def compute(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = noted(x)
        return tape.gradient(y, x), tape.gradient(y, x)

    x = tf.constant(3.0)
    assert [float(g) for g in compute(x)] == [1, 2]
    assert [float(g) for g in tf.function(compute)(x)] == [3, 4]
    # Also after the program that called the function.
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.function(noted)(x)
    assert tape.gradient(y, x) == 5 and count.numpy() == 5


def test_a_custom_gradient_that_needs_values_that_are_gone_says_why():
    count = tf.Variable(0.0, trainable=False)

    @jax.checkpoint
    @tf.custom_gradient
    def noted(x):
        return x, lambda upstream: upstream * count.assign_add(1.0) * x

    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = noted(x)
    with pytest.raises(RuntimeError, match="was assigned inside"):
        tape.gradient(y, x)


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
