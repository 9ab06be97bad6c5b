"""GradientTape: TensorFlow's numbers and errors, and JAX's gradients."""

import gc
import logging
import re
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax._src import source_info_util

import unisono
from tests.parity.programs import (
    EXECUTIONS,
    central,
    context,
    execute,
    local,
    mirrored,
    number,
    one_device,
    per_replica,
    plain,
    variable,
)
from unisono import GradientTape, UnconnectedGradients
from unisono._src.foundation import ambient
from unisono._src.values import jax_traces


@pytest.fixture
def v():
    return unisono.Variable(2.0)


@pytest.fixture
def x():
    return jnp.asarray(3.0)


@pytest.fixture(autouse=True)
def _nothing_stays_current():
    """Fails a test that leaves a tape current."""
    yield
    assert jax_traces.is_clean()
    assert ambient.current().tape is None


def both_ways(fn, *args):
    """What `fn` gives eagerly, then compiled."""
    return fn(*args), unisono.function(fn)(*args)


# Numbers. Those of TensorFlow 2 were recorded with the same programs.


def test_a_variable_is_followed_and_the_value_goes_on(v):
    def compute():
        with GradientTape() as tape:
            y = v * v
        gradient = tape.gradient(y, v)
        return y, gradient, y + gradient

    for found in both_ways(compute):
        assert plain(found) == (4.0, 4.0, 8.0)


def test_after_the_block_an_eager_value_has_what_arrays_have(v):
    with GradientTape() as tape:
        y = v * v
        assert y.numpy() == 4.0 and float(y) == 4.0 and bool(y > 3.0)
    tape.gradient(y, v)
    assert (float(y), int(y), bool(y), complex(y)) == (4.0, 4, True, 4 + 0j)
    assert [y.numpy(), y.item(), y.tolist(), np.asarray(y).item()] == [4.0] * 4
    assert (f"{y:.2f}", str(y), repr(y)) == ("4.00", "4.0", "Array(4., dtype=float32)")
    assert y.devices() == y.sharding.device_set == jnp.asarray(1.0).devices()
    assert y.is_fully_addressable and not y.is_deleted()
    assert jax.block_until_ready(y) is not None and jax.device_get(y) == 4.0
    assert float(jax.device_put(y, jax.devices()[0])) == 4.0
    assert float(jax.jit(jnp.sin)(y)) == pytest.approx(np.sin(4.0))
    assert float(jax.grad(lambda a: a * y)(1.0)) == 4.0
    assert jax.vmap(lambda a: a * y)(jnp.ones(2)).tolist() == [4.0, 4.0]
    assert not isinstance(y + 1, jax.core.Tracer)
    v.assign(y)
    assert float(v.numpy()) == 4.0
    assert float(unisono.Variable(y).numpy()) == 4.0
    assert float(unisono.function(lambda a: a + 1)(y)) == 5.0


def test_a_watched_array_is_followed_by_its_identity(x):
    def compute(x):
        with GradientTape() as tape:
            tape.watch(x)
            y = x * x
        return tape.gradient(y, x)

    assert plain(both_ways(compute, x)) == (6.0, 6.0)


def test_sources_and_targets_are_nested_structures(x):
    def compute(x):
        with GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = x * x
            z = y * y
        return (
            tape.gradient(z, y),
            tape.gradient(z, {"a": x, "b": [y, z]}),
            tape.gradient({"y": y, "z": [z]}, x),
        )

    for found in both_ways(compute, x):
        assert plain(found) == (18.0, {"a": 108.0, "b": [18.0, 1.0]}, 114.0)


def test_output_gradients_weigh_the_numbers_of_the_target():
    w = unisono.Variable([1.0, 2.0])
    with GradientTape(persistent=True) as tape:
        y = w * w
    assert plain(tape.gradient(y, w)) == [2.0, 4.0]
    weights = jnp.asarray([1.0, 10.0])
    assert plain(tape.gradient(y, w, output_gradients=weights)) == [2.0, 40.0]
    assert plain(tape.gradient([y, y], w, [None, weights])) == [4.0, 44.0]
    with pytest.raises(ValueError, match="Incompatible shapes"):
        tape.gradient(y, w, output_gradients=jnp.ones(3))
    with pytest.raises(ValueError, match="Expected 1 output_gradients"):
        tape.gradient(y, w, output_gradients=[weights, weights])


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("none", None),
        (UnconnectedGradients.NONE, None),
        ("zero", 0.0),
        (UnconnectedGradients.ZERO, 0.0),
    ],
)
def test_what_is_not_connected_is_none_or_zero(v, x, rule, expected):
    with GradientTape() as tape:
        tape.watch(x)
        y = v * v
    found = tape.gradient(y, [v, x], unconnected_gradients=rule)
    assert plain(found) == [4.0, expected]


def test_the_gradient_of_integers_is_none(v):
    with GradientTape(persistent=True) as tape:
        y = jnp.asarray(v.value(), jnp.int32)
        z = jnp.floor(v.value())
    assert tape.gradient(y, v) is None
    assert tape.gradient(z, v) is None


def test_a_watched_integer_is_warned_about(caplog):
    count = jnp.asarray(3)
    with caplog.at_level(logging.WARNING, "unisono"), GradientTape() as tape:
        tape.watch(count)
        y = count * 2
    assert tape.gradient(y, count) is None
    assert "dtype of the watched tensor must be floating" in caplog.text


def test_complex_gradients_are_those_of_tensorflow():
    z = jnp.asarray(1 + 2j)
    with GradientTape(persistent=True) as tape:
        tape.watch(z)
        size, square = jnp.abs(z) ** 2, z * z
    assert complex(tape.gradient(size, z)) == pytest.approx(2 + 4j)
    assert complex(tape.gradient(square, z)) == pytest.approx(2 - 4j)


def test_second_derivatives_come_from_a_tape_in_a_tape(v, x):
    def compute(x):
        with GradientTape() as outer:
            outer.watch(x)
            with GradientTape() as inner:
                inner.watch(x)
                y = v**3 * x**3
            slopes = inner.gradient(y, [v, x])
            total = slopes[0] + slopes[1]
        return slopes, outer.gradient(total, [v, x])

    expected = jax.grad(
        lambda a, b: sum(jax.grad(lambda a, b: a**3 * b**3, (0, 1))(a, b)), (0, 1)
    )(2.0, 3.0)
    for slopes, curves in both_ways(compute, x):
        assert plain(slopes) == pytest.approx([324.0, 216.0])
        assert plain(curves) == pytest.approx([float(g) for g in expected])


def test_two_tapes_over_the_same_block_give_the_gradients_of_each():
    v, w = unisono.Variable(2.0), unisono.Variable(5.0)

    def compute():
        with GradientTape() as first, GradientTape() as second:
            y, z = v * w, v * v * w
        return first.gradient(y, [v, w]), second.gradient(z, [v, w])

    for found in both_ways(compute):
        assert plain(found) == ([5.0, 2.0], [20.0, 4.0])


def test_a_tape_watches_what_the_tape_around_it_follows(v):
    def compute():
        with GradientTape() as outer:
            y = v * v
            with GradientTape(persistent=True) as inner:
                inner.watch({"y": [y]})
                z = unisono.square(y) * y
            slope = inner.gradient(z, y)
            rows = inner.jacobian(z, y)
            none = inner.gradient(z, v, unconnected_gradients="zero")
        return slope, rows, none, outer.gradient(slope, v)

    for found in both_ways(compute):
        # At y = 4: 3 y², the same, and 6 y times the slope of y.
        assert plain(found) == (48.0, 48.0, 0.0, 96.0)


def test_a_tape_watches_what_a_tape_inside_it_follows(x):
    def compute(x):
        with GradientTape() as outer:
            with GradientTape() as inner:
                inner.watch(x)
                y = x * x
                outer.watch(y)
                z = y * y * x
            slope = inner.gradient(z, x)
        return slope, outer.gradient(slope, y)

    for found in both_ways(compute, x):
        # The slope is 4 y x² + y², in which y is 9, and x is 3 whatever y is.
        assert plain(found) == (405.0, 54.0)


def test_each_of_three_tapes_watches_a_value_of_the_one_around_it(v):
    def compute():
        with GradientTape() as first:
            p = v * v
            with GradientTape() as second:
                second.watch(p)
                q = p * 1.0
                with GradientTape() as third:
                    third.watch(q)
                    z = q**3
                slope = third.gradient(z, q)
            curve = second.gradient(slope, p)
        return slope, curve, first.gradient(curve, v)

    for found in both_ways(compute):
        assert plain(found) == (48.0, 24.0, 24.0)


def test_a_tape_watches_a_value_of_a_tape_that_has_ended_or_is_stopped(v):
    def compute():
        with GradientTape():
            ended = v * v
        with GradientTape() as tape:
            tape.watch(ended)
            y, z = unisono.square(ended), ended * ended
        with GradientTape() as outer:
            stopped = v * v
            with GradientTape() as inner:
                inner.watch(stopped)
                with outer.stop_recording():
                    hidden = unisono.square(stopped)
            slope = inner.gradient(hidden, stopped)
        return tape.gradient([y, z], ended), slope, outer.gradient(stopped, v)

    for found in both_ways(compute):
        assert plain(found) == (16.0, 8.0, 4.0)


@pytest.mark.parametrize("wrap", [lambda fn: fn, jax.jit, unisono.function])
def test_a_tape_and_a_gradient_of_jax_are_in_each_other(wrap, x):
    def slope(x):
        with GradientTape() as tape:
            tape.watch(x)
            y = x**3
        return tape.gradient(y, x)

    def curve(x):
        with GradientTape() as tape:
            tape.watch(x)
            found = jax.grad(lambda x: x**3)(x)
        return tape.gradient(found, x)

    assert plain(wrap(jax.grad(slope))(x)) == plain(wrap(curve)(x)) == 18.0


def test_a_jacobian_has_the_axes_of_target_and_source(x):
    w = unisono.Variable([1.0, 2.0])

    def compute(x):
        with GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = jnp.outer(w.value(), w.value())
        zeros = tape.jacobian(y, {"x": x}, unconnected_gradients="zero")
        return tape.jacobian(y, w), tape.jacobian(y, [x]), zeros

    expected = jax.jacobian(lambda a: jnp.outer(a, a))(jnp.asarray([1.0, 2.0]))
    for whole, none, zeros in both_ways(compute, x):
        assert plain(whole) == plain(expected)
        assert none == [None]
        assert plain(zeros) == {"x": [[0.0, 0.0], [0.0, 0.0]]}


def test_a_batch_jacobian_has_one_for_each_example():
    x, w = jnp.asarray([[1.0, 2.0], [3.0, 4.0]]), jnp.asarray([[1.0, 0.0, 2.0]] * 2)

    def compute(x):
        with GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = (x * x) @ w
            deeper = y[..., None]
        return [tape.batch_jacobian(z, x) for z in (y, deeper, jnp.ones([2, 3]))]

    expected = jax.vmap(jax.jacobian(lambda a: (a * a) @ w))(x)
    for found, deeper, zeros in both_ways(compute, x):
        assert plain(found) == plain(expected)
        assert plain(deeper) == plain(expected[:, :, None])
        assert plain(zeros) == np.zeros([2, 3, 2]).tolist()


@pytest.mark.parametrize(
    ("target", "told"), [([2], "rank at least 2"), ([3, 2], "to match")]
)
def test_a_batch_jacobian_needs_as_many_examples(target, told):
    with GradientTape() as tape:
        pass
    with pytest.raises(ValueError, match=told):
        tape.batch_jacobian(jnp.ones(target), jnp.ones([2, 2]))


def test_reads_after_an_assignment_still_reach_the_variable(v):
    with GradientTape() as tape:
        v.assign(5.0)
        y = v * v
    assert plain(tape.gradient(y, v)) == 10.0
    with GradientTape() as tape:
        y = v.assign_add(1.0) * 3.0
    assert plain(tape.gradient(y, v)) == 3.0
    assert plain(v.value()) == 6.0


# What is followed.


def test_only_trainable_variables_are_watched_by_themselves(v):
    fixed = unisono.Variable(4.0, trainable=False)
    with GradientTape(persistent=True) as tape:
        y = v * fixed
    assert plain(tape.gradient(y, [v, fixed])) == [4.0, None]
    assert [x.ref() for x in tape.watched_variables()] == [v.ref()]
    with GradientTape() as tape:
        tape.watch(fixed)
        y = v * fixed
    assert plain(tape.gradient(y, [v, fixed])) == [4.0, 2.0]
    assert [x.ref() for x in tape.watched_variables()] == [fixed.ref(), v.ref()]


def test_accessed_variables_can_be_left_alone():
    v, w = unisono.Variable(2.0), unisono.Variable(3.0)
    with GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(w)
        y = v * w
    assert plain(tape.gradient(y, [v, w])) == [None, 2.0]


@pytest.mark.parametrize("given", [3.0, np.ones(2, np.float32), np.float32(1.0), [1]])
def test_what_cannot_be_watched_is_named(given):
    with (
        GradientTape() as tape,
        pytest.raises(ValueError, match=r"not tf.Tensor(.|\n)*unisono.constant"),
    ):
        tape.watch(given)


def test_results_computed_before_watch_are_an_error(x):
    with GradientTape(persistent=True) as tape:
        before = x * x
        tape.watch(x)
        after = x * 2.0
    assert plain(tape.gradient(after, x)) == 2.0
    with pytest.raises(ValueError, match=r"used in the tape's block before tape.watch"):
        tape.gradient(before, x)
    fixed = unisono.Variable(4.0, trainable=False, name="fixed")
    with GradientTape(persistent=True) as tape:
        before = fixed * 2.0
        tape.watch(fixed)
    with pytest.raises(ValueError, match=r"'fixed:0' was used .* before tape.watch"):
        tape.gradient(before, fixed)


@pytest.mark.parametrize("shape", [(), (2,)])
def test_a_watched_array_that_became_a_constant_is_an_error(shape):
    x = jnp.full(shape, 3.0)
    inside = jax.jit(lambda a: a * x)
    for call in (inside, jax.checkpoint(lambda a: inside(a))):
        with (
            GradientTape() as tape,
            pytest.raises(ValueError, match="is not an argument"),
        ):
            tape.watch(x)
            call(2.0)


@pytest.mark.parametrize("name", ["target", "sources"])
def test_what_is_no_array_cannot_be_differentiated(v, name):
    with GradientTape() as tape:
        y = v * v
    given = {"target": y, "sources": v, name: 3.0}
    with pytest.raises(TypeError, match=f"as `{name}`, received float: 3.0"):
        tape.gradient(**given)


# The block.


def test_stop_recording_hides_operations():
    v = unisono.Variable(6.0)

    def compute():
        with GradientTape() as tape:
            y = v * v
            with tape.stop_recording():
                z = y * v
            q = z * v
        return tape.gradient(q, v)

    assert plain(both_ways(compute)) == (216.0, 216.0)


def test_a_gradient_can_be_taken_while_recording_is_stopped(v):
    with GradientTape(persistent=True) as tape:
        y = v * v
        with tape.stop_recording():
            assert plain(tape.gradient(y, v)) == 4.0
        z = y * v
    assert plain(tape.gradient(z, v)) == 12.0


def test_reset_forgets_what_was_recorded(v):
    with GradientTape() as tape:
        y = v * v
        tape.reset()
        z = v * 3.0
    assert plain(tape.gradient([y, z], v)) == 3.0


def test_a_tape_goes_on_when_it_is_entered_again(v):
    with GradientTape() as tape:
        y = v * v
    with tape:
        z = y * v
    assert plain(tape.gradient(z, v)) == 12.0


def test_a_gradient_in_the_block_ends_the_recording(v):
    with GradientTape() as tape:
        y = v * v
        gradient = tape.gradient(y, v)
        z = gradient * v
    assert plain([gradient, z]) == [4.0, 8.0]
    with pytest.raises(RuntimeError, match="non-persistent"):
        tape.gradient(z, v)


def test_tensorflows_errors(v):
    with GradientTape() as tape:
        y = v * v
        with pytest.raises(ValueError, match="Tape is still recording"), tape:
            pass
    with pytest.raises(ValueError, match="Tape is not recording"):
        tape.reset()
    with (
        pytest.raises(ValueError, match="Tape is not recording"),
        tape.stop_recording(),
    ):
        pass
    with pytest.raises(ValueError, match="Unknown value for unconnected_gradients"):
        tape.gradient(y, v, unconnected_gradients="some")
    with pytest.raises(TypeError, match="but received None"):
        tape.gradient(None, v)
    assert plain(tape.gradient(y, v)) == 4.0
    only_once = re.escape("compute one set of gradients (or jacobians)")
    for call in (tape.gradient, tape.jacobian, GradientTape().gradient):
        with pytest.raises(RuntimeError, match=only_once):
            call(y, v)
    with (
        pytest.raises(RuntimeError, match="Trying to stop recording"),
        GradientTape().stop_recording(),
    ):
        pass
    with pytest.raises(RuntimeError, match="Trying to watch"):
        GradientTape().watch(v)


def test_what_a_tape_could_not_follow_is_an_error(v):
    with GradientTape(persistent=True) as tape:
        y = v * v
        with pytest.raises(RuntimeError, match="inside its own block"):
            tape.gradient(y, v)
    with GradientTape() as outer:
        y = v * v
        with (
            GradientTape(),
            pytest.raises(RuntimeError, match=r"outer GradientTape .* inside an inner"),
        ):
            outer.gradient(y, v)


def test_a_tape_left_by_an_exception_leaves_nothing_current(v):
    with pytest.raises(KeyError), GradientTape(), GradientTape():
        raise KeyError
    assert jax_traces.is_clean()
    with GradientTape() as tape:
        y = v * v
    assert plain(tape.gradient(y, v)) == 4.0


def test_values_that_live_on_do_not_keep_the_arrays_of_the_gradient():
    w = unisono.Variable(jnp.ones(1000))
    with GradientTape() as tape:
        large: Any = jnp.sin(w.value())
        loss = jnp.sum(large * large)
    residual = weakref.ref(large.primal)
    del large
    assert residual() is not None
    tape.gradient(loss, w)
    gc.collect()
    assert residual() is None
    assert float(loss) > 0


# JAX's transformations.


def test_bodies_that_jax_traces_are_followed(v, x):
    def body(x, v):
        h = x * v
        # Nobody uses the second result.
        y, _ = jax.lax.scan(lambda c, _: (c * h * v, c * h), v * 1.0, None, length=3)
        z = jax.checkpoint(lambda a: jnp.sin(a * h) * v)(y)
        z = jax.lax.cond(z > 0, lambda: z * h, lambda: z + h)
        return (
            jax.jit(lambda a: a * h)(z) + jax.vmap(lambda a: a * h)(jnp.ones(2)).sum()
        )

    def compute(x):
        with GradientTape() as tape:
            tape.watch(x)
            y = body(x, v)
        return tape.gradient(y, [x, v])

    expected = [float(g) for g in jax.grad(body, (0, 1))(3.0, 2.0)]
    for _ in range(2):
        for found in both_ways(compute, x):
            assert plain(found) == pytest.approx(expected, rel=1e-5)


def test_custom_gradients_are_used(v):
    @jax.custom_vjp
    def doubled(a):
        return a * 2.0

    doubled.defvjp(lambda a: (a * 2.0, a), lambda a, g: (g * 100.0 * a,))

    @jax.custom_jvp
    def tripled(a):
        return a * 3.0

    tripled.defjvp(lambda p, t: (p[0] * 3.0, t[0] * 7.0))

    def compute():
        with GradientTape() as tape:
            y = doubled(v.value()) + tripled(v.value())
        return y, tape.gradient(y, v)

    for found in both_ways(compute):
        assert plain(found) == (10.0, 207.0)


def test_stop_gradient_and_a_function_in_the_block(v):
    @unisono.function
    def cube(a):
        return a * a * a

    with GradientTape() as tape:
        y = cube(v.value()) * jax.lax.stop_gradient(v.value())
    assert plain(tape.gradient(y, v)) == 24.0


def test_a_model_has_the_gradients_of_jax():
    keys = jax.random.split(jax.random.key(0), 4)
    weights = [jax.random.normal(k, (4, 4)) for k in keys[:2]]
    data = jax.random.normal(keys[2], (8, 4))
    held = [unisono.Variable(w) for w in weights]

    def loss_fn(first, second):
        hidden = jax.nn.gelu(data @ first)
        return jnp.mean(jax.nn.logsumexp(hidden @ second, axis=-1))

    def compute():
        with GradientTape() as tape:
            loss = loss_fn(*(w.value() for w in held))
        return [loss, *tape.gradient(loss, held)]

    value, gradients = jax.value_and_grad(loss_fn, (0, 1))(*weights)
    for found in both_ways(compute):
        for one, other in zip(found, [value, *gradients], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


# Replicas.


STRATEGIES: dict[str, Callable[[], Any]] = {
    "one device": one_device,
    "mirrored": lambda: mirrored(2),
    "central": lambda: central(2),
    "sharded": lambda: unisono.distribute.MirroredStrategy(
        mirrored(2).extended.worker_devices, state="sharded", shard_above=1
    ),
}


@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_replica_has_a_tape_of_its_own(how, name):
    strategy = STRATEGIES[name]()
    w = variable(strategy, [1.0, 2.0])

    def replica_fn():
        scale = number()
        with GradientTape() as tape:
            loss = jnp.sum(w * w) * scale
            mine = loss * 1.0
        gradient = tape.gradient(mine, w)
        total = context().all_reduce("SUM", gradient)
        return loss, gradient, total, context().all_reduce("MEAN", loss)

    n = strategy.num_replicas_in_sync
    losses, gradients, totals, means = execute(how, strategy, replica_fn)
    assert local(strategy, losses) == [5.0, 10.0][:n]
    assert local(strategy, gradients) == [[2.0, 4.0], [4.0, 8.0]][:n]
    assert local(strategy, totals) == ([[6.0, 12.0]] * 2 if n == 2 else [[2.0, 4.0]])
    assert local(strategy, means) == ([7.5, 7.5] if n == 2 else [5.0])
    assert plain(strategy.reduce("SUM", losses, axis=None)) == (15.0 if n == 2 else 5.0)


@pytest.mark.parametrize("how", EXECUTIONS)
def test_collectives_inside_the_tape_give_the_gradients_of_value_and_grad(how):
    strategy = mirrored(2)
    w = variable(strategy, 3.0)

    def loss_fn():
        own = w * w * number()
        total = context().all_reduce("SUM", own)
        rows = context().all_gather(jnp.reshape(own, (1,)), axis=0)
        return total * own + jnp.sum(rows * jnp.asarray([1.0, 5.0]))

    def with_tape():
        with GradientTape() as tape:
            loss = loss_fn()
        return loss, tape.gradient(loss, w)

    expected = execute(how, strategy, unisono.value_and_grad(loss_fn, w))
    found = execute(how, strategy, with_tape)
    for one, other in zip(found, expected, strict=True):
        assert local(strategy, one) == local(strategy, other)


@pytest.mark.parametrize("how", EXECUTIONS)
def test_a_watched_array_has_a_gradient_through_collectives(how):
    strategy = mirrored(2)

    def replica_fn(x):
        with GradientTape() as outer:
            outer.watch(x)
            with GradientTape() as tape:
                tape.watch(x)
                # The array itself, and one that was computed from it.
                mean, square = context().all_reduce("MEAN", [x, x * x])
                rows = context().all_gather(x, axis=0)
                y = jnp.sum(mean * square) + jnp.sum(rows * rows)
            slope = tape.gradient(y, x)
        return slope, outer.gradient(slope, x)

    def total(x):
        mean, square = jnp.mean(x, 0), jnp.mean(x * x, 0)
        return 2 * (jnp.sum(mean * square) + jnp.sum(x * x))

    x = np.array([[1.0], [2.0]], "float32")
    slope = jax.grad(total)
    curve = jax.grad(lambda x: jnp.sum(slope(x)))
    found = execute(how, strategy, replica_fn, args=(per_replica(strategy, *x),))
    for one, other in zip(found, [slope(x), curve(x)], strict=True):
        np.testing.assert_allclose(local(strategy, one), other, rtol=1e-6)


def test_the_names_of_operations_of_replicas_that_take_turns_stay_apart():
    strategy = mirrored(2)
    w = variable(strategy, 2.0)
    seen = []

    def replica_fn():
        with GradientTape() as tape, jax.named_scope("mine"):
            y = context().all_reduce("SUM", w * w)
        slope = tape.gradient(y, w)
        seen.append(str(source_info_util.current_name_stack()))
        return slope

    # Replicas pause in the scope, and in JAX's backward pass, which names operations.
    for _ in range(3):
        assert local(strategy, strategy.run(replica_fn)) == [8.0, 8.0]
    assert seen == [""] * 6
    assert not str(source_info_util.current_name_stack())


@pytest.mark.parametrize("how", EXECUTIONS)
def test_merge_call_and_aggregating_assignments_inside_the_tape(how):
    strategy = mirrored(2)
    w = variable(strategy, 3.0)
    seen = variable(strategy, 0.0, "MEAN", trainable=False)

    def replica_fn():
        with GradientTape() as tape:
            y = w * number()
            seen.assign(y)
            merged = context().merge_call(
                lambda s, a: s.reduce("SUM", a, axis=None), args=(y,)
            )
            z = y * merged
        return tape.gradient(z, w)

    found = execute(how, strategy, replica_fn)
    # A merge_call stops gradients; what it gives, 9, is a constant.
    assert local(strategy, found) == [9.0, 18.0]
    assert plain(seen.value()) == 4.5


def test_replicas_that_take_turns_pause_inside_their_tapes():
    strategy = mirrored(2)
    w = variable(strategy, 2.0)
    order = []

    def replica_fn():
        mine = context().replica_id_in_sync_group
        with GradientTape() as outer:
            with GradientTape() as tape:
                order.append((int(mine), "in"))
                y = w * w * number()
                context().all_reduce("SUM", y)
                order.append((int(mine), "on"))
                z = y * w
            slope = tape.gradient(z, w)
        return slope, outer.gradient(slope, w)

    slopes, curves = strategy.run(replica_fn)
    assert order == [(0, "in"), (1, "in"), (0, "on"), (1, "on")]
    assert local(strategy, slopes) == [12.0, 24.0]
    assert local(strategy, curves) == [12.0, 24.0]


def test_a_replica_that_fails_inside_its_tape_leaves_nothing_current():
    strategy = mirrored(2)
    w = variable(strategy, 2.0)

    def replica_fn():
        with GradientTape():
            y = w * w
            context().all_reduce("SUM", y)
            if int(context().replica_id_in_sync_group) == 1:
                raise KeyError("lost")
            context().all_reduce("SUM", y)

    with pytest.raises(KeyError, match="lost"):
        strategy.run(replica_fn)
    assert jax_traces.is_clean()


@pytest.mark.parametrize("how", EXECUTIONS)
def test_optimizers_take_the_gradients_of_uneven_batches(how):
    strategy = mirrored(2)
    with strategy.scope():
        w = unisono.Variable([[1.0], [1.0]])
        optimizer = unisono.optimizers.Optimizer(optax.sgd(0.1), [w])
    whole = jnp.arange(6.0).reshape(3, 2)
    parts = per_replica(strategy, whole, whole)
    sizes = per_replica(strategy, [1.0, 1.0, 1.0], [1.0, 0.0, 0.0])

    def replica_fn(data, mask):
        with GradientTape() as tape:
            each = jnp.square(data @ w)[:, 0] * mask
            loss = unisono.nn.compute_average_loss(each, global_batch_size=4)
        optimizer.apply_gradients(zip(tape.gradient(loss, [w]), [w], strict=True))

    execute(how, strategy, replica_fn, args=(parts, sizes))
    every = jnp.concatenate([whole, whole[:1]])
    start = jnp.asarray([[1.0], [1.0]])
    slope = jax.grad(lambda a: jnp.mean(jnp.square(every @ a)))(start)
    np.testing.assert_allclose(w.numpy(), start - 0.1 * slope, rtol=1e-6)


# Cost.


def count_instructions(strategy, replica_fn, batch):
    """The instructions, and the collectives, of a compiled step."""
    step = unisono.function(lambda *parts: strategy.run(replica_fn, args=parts))
    lines = step.lowered(*batch).compile().as_text().splitlines()
    made = [line for line in lines if " = " in line]
    collectives = [m for m in made if re.search(r" all-(reduce|gather)\(", m)]
    return len(made), len(collectives)


@pytest.mark.parametrize("name", ["one device", "mirrored", "sharded"])
def test_a_step_with_a_tape_is_the_program_of_value_and_grad(name):
    strategy = STRATEGIES[name]()
    draw = np.random.default_rng(0)
    with strategy.scope():
        weights = [
            unisono.Variable(draw.normal(size=(8, 8)).astype("f")) for _ in range(3)
        ]
        biases = [unisono.Variable(jnp.zeros(8)) for _ in range(3)]
        trained = [*weights, *biases]
        optimizer = unisono.optimizers.Optimizer(optax.adam(1e-3), trained)

    def loss_fn(x, y):
        for w, b in zip(weights, biases, strict=True):
            x = jax.nn.relu(x @ w + b)
        each = optax.softmax_cross_entropy_with_integer_labels(x, y)
        return unisono.nn.compute_average_loss(each, global_batch_size=8)

    def with_tape(x, y):
        with GradientTape() as tape:
            loss = loss_fn(x, y)
        optimizer.minimize(loss, trained, tape=tape)
        return loss

    def with_function(x, y):
        loss, gradients = unisono.value_and_grad(lambda: loss_fn(x, y), trained)()
        optimizer.apply(gradients, trained)
        return loss

    n = strategy.num_replicas_in_sync
    batch = (
        per_replica(strategy, *[np.ones((4, 8), "f")] * n),
        per_replica(strategy, *[np.arange(4)] * n),
    )
    found, found_collectives = count_instructions(strategy, with_tape, batch)
    wanted, collectives = count_instructions(strategy, with_function, batch)
    assert found_collectives == collectives
    assert bool(collectives) == (n > 1)
    assert found <= wanted + 10, f"{found} instructions, {wanted} by value_and_grad"


def test_the_gradient_of_a_variable_for_itself_is_one():
    first, second = unisono.Variable(2.0), unisono.Variable(3.0)
    with unisono.GradientTape() as tape:
        result = first
    gradients = tape.gradient(result, [first, second])
    assert gradients[0] == 1 and gradients[1] is None
