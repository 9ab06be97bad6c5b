"""`while` and `for` on traced values."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf


def test_return_inside_a_loop_gives_the_value_of_that_turn():
    @tf.function
    def first_above(xs, limit):
        for i in tf.range(5):
            if xs[i] > limit:
                return i, xs[i]
        return -1, 0.0

    xs = jnp.asarray([1.0, 2.0, 3.0, 4.0, 5.0])
    for limit, wanted in ((2.5, (2, 3.0)), (9.0, (-1, 0.0)), (0.0, (0, 1.0))):
        assert tuple(map(float, first_above(xs, jnp.asarray(limit)))) == wanted


def test_return_in_a_branch_that_the_first_turn_does_not_take_gives_its_value():
    @tf.function
    def collatz(n):
        steps = 0  # Known in the first turn.
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
            if steps > 100:
                return -1
        return steps

    assert [int(collatz(jnp.asarray(n))) for n in (1, 6, 7, 27)] == [0, 8, 16, -1]


def test_return_inside_nested_loops_ends_both():
    @tf.function
    def find(n, wanted):
        for i in tf.range(n):
            for j in tf.range(n):
                if i * j == wanted:
                    return i * 100 + j
        return -1

    n = jnp.asarray(9)
    assert int(find(n, jnp.asarray(35))) == 507
    assert int(find(n, jnp.asarray(37))) == -1


def test_the_else_of_a_loop_runs_unless_the_loop_was_left():
    @tf.function
    def f(n, stop):
        found = 0
        for i in tf.range(n):
            if i == stop:
                break
            found += 1
        else:
            found = found + 100
        return found

    n = jnp.asarray(5)
    assert int(f(n, jnp.asarray(2))) == 2
    assert int(f(n, jnp.asarray(7))) == 105


def test_a_value_whose_type_or_shape_changes_is_an_error_with_its_name():
    @tf.function
    def types(x):
        n: Any = 0
        while x > 0:
            n += 0.5
            x -= 1
        return n

    @tf.function
    def shapes(x):
        y = tf.zeros([1])
        while x > 0:
            y = tf.concat([y, y], 0)
            x -= 1
        return y

    x = jnp.asarray(1.0)
    said = "'n' has dtype int32 before the loop, but dtype float32 after one iteration"
    with pytest.raises(TypeError, match=said):
        types(x)
    said = r"'y' has shape \(1,\) before the loop, but shape \(2,\) after one iteration"
    with pytest.raises(ValueError, match=said):
        shapes(x)


def test_a_value_that_stops_being_none_is_an_error():
    @tf.function
    def f(x):
        last = None
        while x > 0:
            last = x
            x -= 1
        return last

    with pytest.raises(TypeError, match="'last' has None before the loop"):
        f(jnp.asarray(2.0))


def test_a_list_that_carries_values_out_of_a_loop_is_an_error_with_the_line():
    @tf.function
    def f(x):
        out = []
        for i in tf.range(3):
            out.append(x * i)
        return out

    with pytest.raises(TypeError, match=r"test_loops.py:\d+ is used outside"):
        f(jnp.asarray(1))


def test_a_name_that_a_loop_without_a_turn_would_define_is_an_error():
    @tf.function
    def f(n):
        for i in tf.range(n):
            last = i * 10
        return last

    assert int(f(jnp.asarray(3))) == 20
    with pytest.raises(tf.errors.InvalidArgumentError, match="the loop had no turn"):
        f(jnp.asarray(0))


def test_a_gradient_through_a_loop_without_a_limit_says_what_to_write():
    @tf.function
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            while y < 50:
                y = y * x
        return tape.gradient(y, x)

    with pytest.raises(ValueError, match=r"set_loop_options\(maximum_iterations"):
        f(jnp.asarray(2.0))


def test_a_gradient_through_a_range_that_is_not_known_takes_a_limit():
    @tf.function
    def f(x, n):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(n):
                tf.autograph.experimental.set_loop_options(maximum_iterations=10)
                y = y * x
        return tape.gradient(y, x)

    for n in (0, 1, 4):
        wanted = (n + 1) * 2.0**n
        assert float(f(jnp.asarray(2.0), jnp.asarray(n))) == wanted


def test_loops_over_many_known_turns_make_a_program_of_one_turn():
    @tf.function
    def f(x, n):
        for i in tf.range(n):
            x = jnp.sin(x) + i
        return x

    sizes = [f.lowered(jnp.asarray(1.0), n).as_text().count("sine") for n in (2, 200)]
    assert sizes == [1, 1]


def test_a_random_number_differs_from_turn_to_turn():
    @tf.function
    def f(n):
        out = tf.TensorArray(tf.float32, size=4)
        for i in tf.range(4):
            out = out.write(i, tf.random.uniform([]))
        return out.stack()

    found = f(jnp.asarray(4))
    assert len(set(found.tolist())) == 4


def test_a_loop_in_python_that_a_traced_value_ends_gives_the_right_turn():
    @tf.function
    def f(limit):
        total = 0.0
        for x in [1.0, 2.0, 3.0]:
            if total + x > limit:
                break
            total += x
        return total

    assert [float(f(jnp.asarray(v))) for v in (0.5, 1.5, 4.0, 9.0)] == [0, 1, 3, 6]


def test_while_true_with_a_break_on_an_array_works():
    @tf.function
    def f(x):
        turns = 0
        while True:
            x = x / 2
            turns += 1
            if x < 1:
                break
        return x, turns

    assert [*map(float, f(jnp.asarray(20.0)))] == [0.625, 5.0]


def test_ranges_have_the_types_of_tensorflow():
    kinds = []

    @tf.function
    def f(a, b, c):
        total = jnp.zeros((), a.dtype)
        for i in tf.range(a, b, c):
            kinds.append(i.dtype)
            total += i
        return total

    found = f(jnp.asarray(0.5), jnp.asarray(2.0), jnp.asarray(0.5))
    assert float(found) == 3.0
    assert set(kinds) == {np.dtype("float32")}


def test_a_step_of_zero_is_an_error():
    @tf.function
    def f(n):
        total: Any = 0
        for i in tf.range(0, n, 0):
            total += i
        return total

    with pytest.raises(tf.errors.InvalidArgumentError, match="delta != 0"):
        f(jnp.asarray(3))


@pytest.mark.needs_devices(2)
def test_replicas_loop_for_numbers_of_turns_of_their_own():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    @tf.function
    def step(n):
        total: Any = 0
        for i in tf.range(n):
            total += i
        return total

    n = tf.distribute.PerReplica((jnp.asarray(3), jnp.asarray(5)))
    found = strategy.run(step, args=(n,))
    assert [int(part) for part in found.values] == [3, 10]


def test_a_gradient_through_a_loop_of_variables_equals_that_of_jax():
    weights = [tf.Variable(0.5), tf.Variable(0.3)]

    @tf.function
    def f(xs):
        with tf.GradientTape() as tape:
            state: Any = 0.0
            for x in xs:
                state = tf.tanh(weights[0] * state + weights[1] * x)
        return tape.gradient(state, weights)

    def plain(weights, xs):
        state = jnp.zeros(())
        for x in xs:
            state = jnp.tanh(weights[0] * state + weights[1] * x)
        return state

    xs = jnp.linspace(-1.0, 2.0, 7)
    wanted = jax.grad(plain)([0.5, 0.3], xs)
    np.testing.assert_allclose(f(xs), wanted, rtol=1e-5)


def test_a_loop_that_begins_with_a_variable_goes_on_with_arrays():
    v = tf.Variable(3.0)

    @tf.function
    def f(n):
        x: Any = v
        for _ in tf.range(n):
            x = x * 2
        return x

    assert float(f(jnp.asarray(2))) == 12.0
    assert float(f(jnp.asarray(0))) == 3.0
    assert float(v) == 3.0


def test_a_loop_that_begins_with_a_variable_may_define_names():
    start: Any = tf.Variable(3)

    @tf.function
    def count(n):
        x = start
        while x < n:
            x = x + 1
            doubled = x * 2
        return x, doubled

    assert [int(x) for x in count(jnp.asarray(10))] == [10, 20]


def test_a_range_that_keras_has_wrapped_is_a_range(monkeypatch):
    # `unisono.keras` wraps functions of arrays, for models that are made of them.
    original = tf.range

    @functools.wraps(original)
    def wrapped(*args):
        return original(*args)

    monkeypatch.setattr(tf, "range", wrapped)

    @tf.function
    def f(n):
        total = n * 0
        if n > 0:
            for i in tf.range(n):
                total += i
        return total

    assert int(f(jnp.asarray(4))) == 6


def test_arrays_of_no_and_one_element_are_looped_over():
    @tf.function
    def f(xs):
        total = 0.0
        for x in xs:
            total += x
        return total

    assert [float(f(jnp.ones(size))) for size in (0, 1, 3)] == [0.0, 1.0, 3.0]
