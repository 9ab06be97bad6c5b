"""Frames decide what a read sees and a write changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.parity.programs import (
    EXECUTIONS,
    copies,
    execute,
    mirrored,
    number,
    numbers,
    on_read,
    plain,
    variable,
)
from tests.threads import at_once
from unisono._src.state import frames


def test_a_look_at_a_value_keeps_it_in_place():
    v = variable(mirrored(2), [1.0, 2.0])
    before = v.state_cell.escaped
    assert frames.peek(v.state_cell).tolist() == [1.0, 2.0]
    assert v.state_cell.escaped == before


@pytest.mark.parametrize("how", EXECUTIONS)
def test_a_failed_step_leaves_every_variable_readable(how):
    s = mirrored(2)
    v, w, u = variable(s, 1.0, "SUM"), on_read(s, 1.0), unisono.Variable(1.0)

    def fail():
        v.assign_add(number())
        w.assign_add(number())
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        execute(how, s, fail)
    assert np.isfinite([v.numpy(), w.numpy(), u.numpy()]).all()
    execute(how, s, lambda: v.assign(number()))
    assert copies(v) == [3.0, 3.0]


@pytest.mark.feature("C13")
@pytest.mark.parametrize(
    "body",
    [
        lambda v: jax.lax.scan(lambda c, _: (v.assign_add(c), None), 1.0, None, 2),
        lambda v: jax.lax.cond(True, lambda: v.assign(2.0), lambda: jnp.asarray(0.0)),
        lambda v: jax.lax.fori_loop(0, 2, lambda i, c: v.assign_add(c), 1.0),
        lambda v: jax.vmap(v.assign_add)(jnp.ones(2)),
        lambda v: jax.checkpoint(v.assign_add)(1.0),
        lambda v: jax.jit(v.assign_add)(1.0),
    ],
    ids=["scan", "cond", "fori_loop", "vmap", "checkpoint", "jit"],
)
def test_an_assignment_where_its_value_would_leak_is_refused(body):
    v = unisono.Variable(1.0, name="leaky")
    with pytest.raises(RuntimeError, match=r"'leaky'.*assign"):
        unisono.function(lambda: body(v))()
    with pytest.raises(RuntimeError, match="'leaky'"):
        body(v)
    assert plain(v) == 1.0
    assert plain(v.assign_add(1.0)) == 2.0


@pytest.mark.feature("R12")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_what_a_differentiated_function_assigns_is_kept_without_gradient(how):
    s = mirrored(2)
    v, moving, total = variable(s, 3.0), on_read(s), variable(s, 0.0, "SUM")

    def fn():
        def loss():
            moving.assign(v * number())
            total.assign_add(v * number())
            return v * v + moving * v

        value, gradient = unisono.value_and_grad(loss, v)()
        return value, gradient

    value, gradient = execute(how, s, fn)
    assert copies(moving) == [3.0, 6.0]
    assert copies(total) == [9.0, 9.0]
    found = [plain(x) for x in s.experimental_local_results((value, gradient))]
    # d(v² + m·v)/dv with m held fixed: 2v + m.
    assert found == [(18.0, 9.0), (27.0, 12.0)]


def test_numbers_and_random_keys_cannot_be_assigned_to_each_other():
    keys, scale = unisono.Variable(jax.random.key(0)), unisono.Variable(1.0)
    wanted = r"of type key<\w+>; assign a random key, such as jax.random.key\(0\)"
    for given in (jnp.ones(()), np.float32(1.0)):
        with pytest.raises(ValueError, match=wanted):
            keys.assign(given)
    for plain_number in (1.0, 1, True, [1, 2]):
        with pytest.raises(TypeError, match=wanted):
            keys.assign(plain_number)
    with pytest.raises(ValueError, match="of type float32; cast the value first"):
        scale.assign(jax.random.key(1))
    keys.assign(jax.random.key(1))
    assert keys.value() == jax.random.key(1)


@pytest.mark.needs_devices(4)
def test_threads_that_read_a_variable_first_get_its_parts():
    s = mirrored(4)
    v = on_read(s, 0.0)
    step = unisono.function(lambda x: s.run(lambda: v.assign(x * number())))
    for x in range(60):
        step(jnp.float32(x))
        seen: list = []
        at_once(*[lambda seen=seen: seen.append(copies(v))] * 3)
        assert seen == [[x * i for i in numbers(4)]] * 3


def test_an_array_that_was_assigned_to_a_component_outlives_the_next_step():
    v = variable(mirrored(2), jnp.zeros(2))
    given = [
        jax.device_put(jnp.ones(2), d) for d in v.state_cell.topology.local_devices
    ]
    step = unisono.function(lambda: v.assign_add(jnp.ones(2), read_value=False))
    step()
    for component, array in zip(v.values, given, strict=True):
        component.assign(array, read_value=False)
    step()
    assert [x.tolist() for x in given] == [[1.0, 1.0]] * 2
    assert v.numpy().tolist() == [2.0, 2.0]
