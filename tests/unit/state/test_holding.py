"""Threads wait for code that changes a variable in several parts."""

import concurrent.futures
import logging
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import mirrored, variable
from tests.threads import at_once, repeated
from unisono._src.state import holding, storage


@pytest.fixture
def pool():
    """Threads for steps, none of which may wait for ever."""
    with concurrent.futures.ThreadPoolExecutor(3) as made:
        yield made


class Gate:
    """A callback that says when it is reached and waits until it may pass."""

    def __init__(self):
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, x):
        self.reached.set()
        assert self.open.wait(20)
        return np.asarray(x)


def through(gate, x):
    return jax.pure_callback(gate, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@pytest.mark.parametrize("has_callback", [False, True])
def test_no_change_of_another_thread_is_lost(pool, has_callback):
    v, gate, passed = tf.Variable(jnp.zeros(3)), Gate(), Gate()
    passed.open.set()

    @tf.function
    def slow():
        v.assign_add(through(gate, v + 1.0))

    @tf.function
    def other():
        v.assign_add(through(passed, v + 10.0) if has_callback else v + 10.0)

    first = pool.submit(slow)
    assert gate.reached.wait(20)
    second = pool.submit(other)
    with pytest.raises(concurrent.futures.TimeoutError):
        second.result(0.3)
    gate.open.set()
    first.result(20)
    second.result(20)
    assert v.numpy().tolist() == [12.0] * 3


def test_a_failed_assertion_is_raised_where_it_was_made(pool):
    gate = Gate()

    @tf.function
    def check(x):
        tf.debugging.assert_equal(through(gate, x), jnp.float32(1.0))
        return x

    wrong = pool.submit(check, jnp.float32(2.0))
    assert gate.reached.wait(20)
    right = pool.submit(check, jnp.float32(1.0))
    gate.open.set()
    with pytest.raises(tf.errors.InvalidArgumentError):
        wrong.result(20)
    assert right.result(20) == 1.0


def test_a_callback_may_use_variables_and_call_steps():
    v, seen = tf.Variable(jnp.ones(3)), tf.Variable(0.0)
    count = tf.function(lambda x: seen.assign_add(x))
    read = tf.function(lambda: tf.Variable.value(v) * 2.0)

    def look(x):
        count(jnp.float32(1.0))
        tf.function(lambda: jax.debug.callback(lambda y: None, seen + 0.0))()
        return np.asarray(x) + np.asarray(read()) + v.numpy()

    @tf.function
    def step():
        v.assign(through(look, v + 0.0))

    step()
    step()
    assert v.numpy().tolist() == [16.0] * 3
    assert seen.numpy() == 2.0


def test_a_change_that_the_step_would_undo_is_an_error():
    v = tf.Variable(1.0, name="weight")

    @tf.function
    def step():
        v.assign_add(through(lambda x: v.assign(7.0).numpy() + x, v + 0.0))

    with pytest.raises(RuntimeError, match="'weight' was changed while 'step' ran"):
        step()
    assert v.numpy() == 7.0


def test_a_step_that_calls_python_leaves_no_copy_for_the_next_one(monkeypatch):
    v = tf.Variable(jnp.ones(3))
    plain = tf.function(lambda: v.assign_add(jnp.ones(3)))
    told = tf.function(lambda: jax.debug.callback(lambda x: None, v + 0.0))
    plain(), told()
    monkeypatch.setattr(type(v.state_cell), "duplicate", lambda self: pytest.fail())
    plain(), told(), plain()
    assert v.numpy().tolist() == [4.0] * 3


def test_the_log_says_for_whom_a_step_waits(pool, monkeypatch, caplog):
    monkeypatch.setattr(holding, "_NEWS", 0.05)
    v, gate = tf.Variable(0.0), Gate()

    @tf.function
    def slow():
        v.assign_add(through(gate, v + 1.0))

    @tf.function
    def quick():
        v.assign_add(1.0)

    with caplog.at_level(logging.WARNING, "unisono"):
        first = pool.submit(slow)
        assert gate.reached.wait(20)
        second = pool.submit(quick)
        while not caplog.records:
            assert not second.done()
        gate.open.set()
        first.result(20)
        second.result(20)
    assert "The step 'quick' has waited 0 s for the step 'slow', which" in caplog.text


def test_an_eager_change_waits_for_a_step_that_calls_python(pool):
    v, other, gate = tf.Variable(1.0), tf.Variable(1.0), Gate()

    @tf.function
    def step():
        v.assign(through(gate, v * 2.0))

    running = pool.submit(step)
    assert gate.reached.wait(20)
    change = pool.submit(v.assign_add, 10.0)
    with pytest.raises(concurrent.futures.TimeoutError):
        change.result(0.2)
    # Readers and other variables wait for nobody.
    assert (
        pool.submit(lambda: float(v.numpy()) + float(other.assign(5.0))).result() == 6
    )
    gate.open.set()
    running.result(20)
    change.result(20)
    assert v.numpy() == 12.0


def test_eager_changes_and_steps_that_call_python_add_up():
    v = tf.Variable(0.0)

    @tf.function
    def step():
        jax.debug.callback(lambda x: None, v + 0.0)
        v.assign_add(1.0)

    step()
    at_once(repeated(step, 20), *[repeated(lambda: v.assign_add(1.0), 20)] * 2)
    assert v.numpy() == 61.0


def test_a_callback_that_waits_for_a_change_of_its_own_variable_is_told(
    pool, monkeypatch
):
    monkeypatch.setattr(holding, "_LIMIT", 0.1)
    v, seen = tf.Variable(1.0, name="weight"), []

    def ask(x):
        seen.append(pool.submit(v.assign_add, 1.0).exception(20))
        return np.asarray(x)

    @tf.function
    def step():
        v.assign(through(ask, v * 2.0))

    step()
    assert isinstance(seen[0], tf.errors.DeadlineExceededError)
    assert "change of the variable 'weight' has waited 0 s for the step" in str(seen[0])
    assert v.numpy() == 2.0


def test_a_step_that_fails_lets_others_go_on(pool):
    v = tf.Variable(1.0)

    @tf.function
    def step():
        v.assign(through(lambda x: 1 / 0, v * 2.0))

    with pytest.raises(Exception, match="division by zero"):
        step()
    assert pool.submit(v.assign_add, 1.0).result(20) == 2.0


@pytest.mark.needs_devices(2)
def test_others_see_an_update_of_copies_only_when_it_has_ended(pool):
    v, gate = variable(mirrored(2), 1.0), Gate()
    step = tf.function(lambda: v.assign_add(10.0))
    step()

    def change(copy):
        copy.assign_add(100.0)
        gate(0.0)

    update = pool.submit(mirrored(2).extended.update, v, change)
    assert gate.reached.wait(20)
    others = [pool.submit(step), pool.submit(v.numpy)]
    done, _ = concurrent.futures.wait(others, 0.2)
    assert not done
    gate.open.set()
    update.result(20)
    others[0].result(20)
    assert others[1].result(20) in (111.0, 121.0)
    assert v.numpy() == 121.0


def test_programs_look_for_holders_when_a_cell_is_held():
    v = tf.Variable(0.0)
    before = storage.Clock.escapes
    with holding.hold([v.state_cell], "a test"):
        assert storage.Clock.escapes > before
        inside = storage.Clock.escapes
        # What is held already is not held anew.
        with holding.hold([v.state_cell], "a test inside"):
            assert storage.Clock.escapes == inside
        assert v.state_cell.holder is not None
    assert v.state_cell.holder is None
