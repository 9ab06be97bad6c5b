"""How many compiled programs a function keeps, and the warning about many."""

import contextlib
import gc
import logging
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from unisono._src.execution import program_cache, programs


@pytest.fixture
def alive(monkeypatch):
    """Returns the programs that were made since and are still in memory."""
    made = weakref.WeakSet()
    plain = programs.Program.__init__

    def init(self, first):
        plain(self, first)
        made.add(self)

    monkeypatch.setattr(programs.Program, "__init__", init)

    def count():
        gc.collect()
        return len(made)

    return count


def ones(size):
    return np.ones(size, np.float32)


def test_a_function_keeps_the_programs_used_last():
    total = unisono.function(lambda x: x.sum(), max_programs=2)
    for size in (1, 2, 1, 3, 1, 2):
        assert float(total(ones(size))) == size
    # 2 was used before 1 when 3 came, so it was compiled again.
    assert total.experimental_get_tracing_count() == 4
    assert float(total(ones(1))) == 1.0
    assert total.experimental_get_tracing_count() == 4


def test_programs_that_are_not_kept_leave_the_memory(alive):
    total = unisono.function(lambda x: x.sum(), max_programs=3)
    for size in range(1, 11):
        assert float(total(ones(size))) == size
    assert alive() == 3
    # Numbers are part of the signature: each has a program under a key of its own.
    for number in range(10):
        assert float(total(jnp.float32(number))) == number
        total.get_concrete_function(ones(number))
    assert alive() == 3


def test_jax_lets_go_of_what_it_compiled_for_a_program_that_is_not_kept():
    holder = [jnp.arange(4.0)]
    gone = weakref.ref(holder[0])
    scaled = unisono.function(
        lambda x: (x * holder[0]).sum() if holder else x.sum(), max_programs=1
    )
    assert float(scaled(ones(1))) == 6.0
    holder.clear()
    gc.collect()
    # The program has captured the array.
    assert gone() is not None
    assert float(scaled(ones(3))) == 3.0
    gc.collect()
    assert gone() is None


def test_jax_forgets_its_functions_after_many_programs_and_computes_on(monkeypatch):
    monkeypatch.setattr(program_cache, "_GROUP", 4)
    monkeypatch.setattr(program_cache._DroppedPrograms, "count", 0)
    traces = []

    @jax.jit
    def inner(x):
        traces.append(x.shape)
        return 2.0 * x

    v = unisono.Variable(1.0)
    other = unisono.function(lambda x: v.assign_add(x.sum()))
    total = unisono.function(lambda x: inner(x).sum(), max_programs=1)
    assert float(inner(ones(()))) == 2.0
    assert float(other(ones(3))) == 4.0
    for size in (1, 2, 3, 4, 1):
        assert float(total(ones(size))) == 2.0 * size
    # JAX still knew `inner` of size 1; it forgot all sizes when that call had let the
    # fourth program go.
    assert float(total(ones(2))) == 4.0
    assert traces == [(), (1,), (2,), (3,), (4,), (2,)]
    # What was compiled runs on without another trace.
    assert float(inner(ones(()))) == 2.0
    assert float(other(ones(3))) == 7.0
    assert other.experimental_get_tracing_count() == 1
    assert len(traces) == 6


def test_no_variable_is_lost_with_a_program():
    class Model:
        w = None

        @unisono.function(max_programs=1)
        def step(self, x):
            if self.w is None:
                self.w = unisono.Variable(10.0)
                self.steps = unisono.Variable(0)
            self.steps.assign_add(1)
            return self.w.assign_add(jnp.sum(x))

    model = Model()
    found = [float(model.step(ones(size))) for size in (1, 2, 1, 2)]
    assert found == [11.0, 13.0, 14.0, 16.0]
    assert float(model.w.numpy()) == 16.0
    assert int(model.steps.numpy()) == 4


def test_the_functions_of_a_strategy_share_the_limit(alive):
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = unisono.Variable(0.0, aggregation=unisono.VariableAggregation.SUM)

    @unisono.function(max_programs=2)
    def step(x):
        if strategy is unisono.distribute.get_strategy():
            v.assign_add(jnp.sum(x))
        return x.sum()

    for size in (1, 2, 3, 1):
        strategy.run(step, (ones(size),))
    other = unisono.distribute.MirroredStrategy(["CPU:2", "CPU:3"])
    assert float(other.run(step, (ones(4),)).values[1]) == 4.0
    assert float(v.numpy()) == 2.0 * (1 + 2 + 3 + 1)
    assert alive() == 2


def test_what_a_function_runs_on_the_host_shares_the_limit(alive):
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = unisono.Variable(0.0, aggregation=unisono.VariableAggregation.SUM)

    @unisono.function(max_programs=2)
    def epoch(dataset, factor):
        for x in dataset:
            strategy.run(lambda x: v.assign_add(factor * jnp.sum(x)), (x,))

    data = unisono.data.Dataset.from_tensor_slices(ones(4)).batch(2)
    dataset = strategy.experimental_distribute_dataset(data)
    for factor in range(5):
        epoch(dataset, factor)
    assert float(v.numpy()) == 4.0 * sum(range(5))
    assert alive() <= 2


@pytest.mark.parametrize(
    ("given", "error"),
    [(0, ValueError), (-3, ValueError), (True, ValueError), (1.5, TypeError)],
)
def test_a_limit_that_is_no_positive_number_is_refused(given, error):
    with pytest.raises(error, match="max_programs must be"):
        unisono.function(max_programs=given)(lambda x: x)


def warnings_of(caplog):
    return [r.getMessage() for r in caplog.records if "was traced" in r.getMessage()]


def test_the_log_names_a_function_whose_shapes_keep_changing_once(caplog):
    def growing(x):
        return x.sum()

    total = unisono.function(growing)
    with caplog.at_level(logging.WARNING, "unisono"):
        for size in range(1, 32):
            total(ones(size))
        assert warnings_of(caplog) == []
        for size in range(32, 36):
            total(ones(size))
    (message,) = warnings_of(caplog)
    assert "growing' (" in message
    assert f"{__file__}:{growing.__code__.co_firstlineno}" in message
    assert "(32,)" in message
    assert "max_programs=16" in message


def test_the_log_names_the_users_function_under_a_strategy(caplog):
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    class Trainer:
        @unisono.function
        def replica_step(self, x):
            return x.sum()

    trainer = Trainer()
    with caplog.at_level(logging.WARNING, "unisono"):
        for size in range(1, 34):
            strategy.run(trainer.replica_step, (ones(size),))
    (message,) = warnings_of(caplog)
    assert "Trainer.replica_step' (" in message


def test_the_log_says_nothing_about_a_function_with_a_limit(caplog):
    total = unisono.function(lambda x: x.sum(), max_programs=2)
    with caplog.at_level(logging.WARNING, "unisono"):
        for size in range(1, 36):
            total(ones(size))
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("in_scope", [False, True])
def test_a_program_is_for_the_settings_of_jax_that_it_was_traced_with(in_scope):
    scope = unisono.distribute.OneDeviceStrategy("CPU:0").scope()
    product = unisono.function(lambda x: (x @ x, jnp.arange(2) * 1.0))

    def call():
        made = product(jnp.ones((2, 2), jnp.float32))
        text = product.lowered(jnp.ones((2, 2), jnp.float32)).as_text()
        return str(made[1].dtype), "HIGHEST" in text

    with scope if in_scope else contextlib.nullcontext():
        assert call() == ("float32", False)
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            assert [call(), call()] == [("float64", True)] * 2
        assert call() == ("float32", False)
    assert product.experimental_get_tracing_count() == 2
