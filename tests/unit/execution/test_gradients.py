"""value_and_grad and grad with respect to variables."""

import contextlib

import jax
import jax.numpy as jnp
import pytest

import unisono
from tests.parity.programs import (
    EAGER,
    EXECUTIONS,
    context,
    copies,
    execute,
    local,
    mirrored,
    number,
    on_read,
    plain,
    variable,
)


def both_ways(fn):
    """What `fn` gives eagerly, then compiled."""
    return fn(), unisono.function(fn)()


@pytest.mark.feature("V08")
def test_the_value_and_one_gradient_per_variable():
    v, w = unisono.Variable(3.0), unisono.Variable([1.0, 2.0])

    def loss(x, scale=1.0):
        return v * jnp.sum(w * x) * scale

    for value, gradients in both_ways(
        lambda: unisono.value_and_grad(loss, [v, w])(
            jnp.asarray([1.0, 10.0]), scale=2.0
        )
    ):
        assert type(gradients) is list
        assert plain([value, *gradients]) == [126.0, 42.0, [6.0, 60.0]]
    single = unisono.value_and_grad(loss, v)(1.0)
    assert plain(single) == (9.0, 3.0)
    assert plain(unisono.grad(loss, (v,))(1.0)) == [3.0]
    assert plain(unisono.grad(loss, v)(1.0)) == 3.0


def test_auxiliary_data_is_passed_on():
    v = unisono.Variable(3.0)

    def loss():
        return v * v, {"twice": v * 2.0, "name": "x"}

    (value, aux), gradient = unisono.value_and_grad(loss, v, has_aux=True)()
    assert (plain([value, gradient, aux["twice"]]), aux["name"]) == ([9, 6, 6], "x")
    gradients, aux = unisono.grad(loss, [v], has_aux=True)()
    assert plain([gradients[0], aux["twice"]]) == [6.0, 6.0]


def test_a_variable_that_is_not_used_has_gradient_zero():
    v, w = unisono.Variable(3.0), unisono.Variable([1.0, 2.0])
    for gradients in both_ways(lambda: unisono.grad(lambda: v * 2.0, [v, w])()):
        assert plain(gradients) == [2.0, [0.0, 0.0]]


def test_gradients_nest_and_mix_with_those_of_jax():
    v = unisono.Variable(3.0)
    for second in both_ways(
        lambda: unisono.grad(lambda: unisono.grad(lambda: v**3, v)(), v)()
    ):
        assert plain(second) == 18.0
    for mixed in both_ways(
        lambda: jax.grad(lambda x: x * unisono.grad(lambda: v * v * x, v)())(2.0)
    ):
        assert plain(mixed) == 24.0


def test_only_variables_can_be_differentiated():
    with pytest.raises(TypeError, match=r"jax\.value_and_grad"):
        unisono.value_and_grad(lambda: 1.0, [jnp.ones(())])


def test_a_value_per_replica_is_differentiated_in_replicas_only():
    s = mirrored(2)
    w = on_read(s)
    s.run(lambda: w.assign(number()))
    for in_scope in (True, False):
        with (
            s.scope() if in_scope else contextlib.nullcontext(),
            pytest.raises(ValueError, match="replica context"),
        ):
            unisono.grad(lambda: w * w, w)()


def test_where_a_gradient_function_is_made_does_not_matter():
    s = mirrored(2)
    w = on_read(s)
    s.run(lambda: w.assign(number()))
    with s.scope():
        gradient = unisono.grad(lambda: w * w, w)
    for how in EXECUTIONS:
        assert local(s, execute(how, s, gradient)) == [2.0, 4.0]


@pytest.mark.feature("C10")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2])
def test_replicas_differentiate_their_own_copies(how, n):
    s = mirrored(n)
    v, w = variable(s, 2.0), on_read(s)
    s.run(lambda: w.assign(number()))

    def fn():
        return unisono.grad(lambda: v * v * number() + w * w, [v, w])()

    a, b = execute(how, s, fn)
    assert local(s, a) == [4.0, 8.0][:n]
    assert local(s, b) == [2.0, 4.0][:n]


@pytest.mark.feature("R12")
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("how", EXECUTIONS)
def test_what_the_function_assigns_is_kept(how, n):
    s = mirrored(n)
    v, moving, count = variable(s, 2.0), on_read(s, 0.0, "MEAN"), variable(s, 0, "SUM")

    def fn():
        def loss():
            moving.assign(0.5 * moving + 0.5 * v * number())
            count.assign_add(jnp.asarray(number(), jnp.int32))
            return v * number()

        return unisono.value_and_grad(loss, v)()

    value, gradient = execute(how, s, fn)
    assert (local(s, value), local(s, gradient)) == ([2.0, 4.0][:n], [1.0, 2.0][:n])
    assert copies(moving) == [1.0, 2.0][:n]
    assert copies(count) == [n * (n + 1) // 2] * n


# Assigning the variable that is being differentiated: as with TensorFlow's tape, what
# is read afterwards is the new value, and every read counts.


@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2])
def test_a_value_assigned_before_use_is_differentiated_where_it_is_used(how, n):
    s = mirrored(n)
    v = variable(s, 5.0, "MEAN")

    def fn():
        def loss():
            v.assign(number())
            return v * v

        return unisono.value_and_grad(loss, v)()

    value, gradient = execute(how, s, fn)
    mean = sum(range(1, n + 1)) / n
    assert copies(v) == [mean] * n
    assert local(s, value) == [mean**2] * n
    assert local(s, gradient) == [2.0 * mean] * n


@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2])
def test_the_variable_may_be_added_to_while_it_is_differentiated(how, n):
    s = mirrored(n)
    v, w = variable(s, 5.0, "MEAN"), on_read(s, 5.0)

    def fn():
        def loss():
            v.assign_add(number() * 0.0 + 1.0)
            w.assign_add(number())
            return v * v + w * w

        return unisono.grad(loss, [v, w])()

    a, b = execute(how, s, fn)
    assert (copies(v), copies(w)) == ([6.0] * n, [6.0, 7.0][:n])
    assert local(s, a) == [12.0] * n
    assert local(s, b) == [12.0, 14.0][:n]


@pytest.mark.parametrize("how", [EAGER, "compiled"])
def test_a_plain_variable_may_be_assigned_while_it_is_differentiated(how):
    u = unisono.Variable(1.0)

    def loss():
        u.assign_add(1.0)
        return u * u

    gradient = unisono.grad(loss, u)
    found = gradient() if how == EAGER else unisono.function(gradient)()
    assert plain([found, u]) == [4.0, 2.0]


@pytest.mark.feature("L07")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_summed_gradients_are_those_of_the_summed_loss(how):
    s = mirrored(4)
    v = variable(s, jnp.asarray([1.0, 2.0]))

    def fn():
        gradient = unisono.grad(lambda: jnp.sum(v**2) * number(), v)()
        return context().all_reduce("SUM", gradient)

    assert local(s, execute(how, s, fn)) == [[20.0, 40.0]] * 4
