import logging
import random

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as uni
from tests import machine
from tests.zoo import builders

BATCHES = builders.batches(2)


@pytest.fixture
def s():
    return uni.distribute.MirroredStrategy(machine.names(2))


def check(step, s, batches=BATCHES, replicas=(1, 2), **options):
    return uni.testing.check_parity(step, batches, replicas, strategy=s, **options)


def mean_of_part(model, x, y):
    return jnp.mean(builders.errors(model, x, y))


@pytest.mark.needs_devices(3)
def test_a_right_step_is_the_same_on_any_number_of_replicas(s):
    report = check(builders.train(s, builders.mean_loss), s, replicas=(1, 2, 3))
    assert report and report.cause is None and not report.differences
    assert report.replicas == (2, 3) and report.steps == 2 and report.compared > 5
    assert 0 < report.floor < 1e-4 and report.largest < 1e-4
    assert "the same" in str(report)


def test_a_report_names_the_gradient_the_step_the_cause_and_the_line(s):
    step = builders.train(s, mean_of_part, tx=optax.adam(1e-3))
    report = check(step, s)
    first = report.differences[0]
    assert not report
    assert (first.kind, first.step, first.replicas) == ("gradient", 0, 2)
    assert first.name == "kernel_0" and first.size == pytest.approx(1.0, rel=1e-3)
    assert report.cause.code == "times-n"
    # The line that hands the gradients to the optimizer.
    assert "builders.py:" in report.line
    assert "cause:    times-n." in str(report) and "global_batch_size" in str(report)


def test_an_accident_of_rounding_is_no_difference(s):
    """As if rounding turned a relu on: on several replicas, from these weights."""
    with s.scope():
        model = builders.Model()
    first = model.kernels[0].numpy()
    optimizer = uni.optimizers.Optimizer(optax.sgd(0.1), model.variables)

    def step_with(is_accident):
        def replica(x, y):
            found = uni.grad(lambda: builders.mean_loss(model, x, y), model.variables)()
            is_here = s.num_replicas_in_sync > 1
            if is_accident:
                is_here = is_here & (model.kernels[0].value() == first).all()
            factor = jnp.where(is_here, 1.01, 1.0)
            optimizer.apply_gradients(zip([factor * g for g in found], model.variables))

        return uni.function(lambda x, y: s.run(replica, args=(x, y)))

    assert check(step_with(True), s)
    assert not check(step_with(False), s)


@pytest.mark.parametrize("factor, most", [(1.0, 30), (1.01, 45)])
def test_a_check_costs_at_most_three_times_the_runs_that_it_compares(
    s, caplog, factor, most
):
    """Three runs of five steps; each is compiled once, and one of them once more."""
    calls = []

    def change(gradients):
        return [g * (factor if s.num_replicas_in_sync > 1 else 1.0) for g in gradients]

    compiled = builders.train(s, builders.mean_loss, change=change)

    def step(x, y):
        calls.append(s.num_replicas_in_sync)
        return compiled(x, y)

    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        report = check(step, s, builders.batches(5), (1, 2, 4))
    told = [r.getMessage() for r in caplog.records]
    programs = [text for text in told if text.startswith("Compiling jit(step)")]
    assert bool(report) == (factor == 1.0)
    assert len(programs) == (3 if report else 4), told
    assert len(calls) <= most and calls.count(2) + calls.count(4) <= 20


def test_variables_and_random_states_are_as_before_also_after_an_error(s):
    step = builders.train(s, builders.mean_loss, tx=optax.adam(0.1))
    with s.scope():
        mean = uni.metrics.Mean()
    uni.random.set_seed(3)
    s.run(lambda: mean.update_state([1.0, 4.0]))
    generator = uni.random.Generator.from_seed(1)
    random.seed(5)
    np.random.seed(6)

    def fails(x, y):
        step(x, y)
        random.random()
        np.random.rand()
        uni.random.normal([2], seed=7)
        generator.normal([2])
        raise OSError("the disk is full")

    before = uni.random.normal([2], seed=7)
    uni.random.set_seed(3)
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            check(fails, s)
    assert check(step, s)
    expected = uni.random.Generator.from_seed(1).normal([3])
    np.testing.assert_array_equal(generator.normal([3]), expected)
    np.testing.assert_array_equal(uni.random.normal([2], seed=7), before)
    assert float(mean.result()) == 2.5
    assert random.random() == random.Random(5).random()
    assert np.random.rand() == np.random.RandomState(6).rand()


def test_a_step_goes_on_after_a_check_as_if_there_had_been_none(s):
    def losses(is_checked):
        step = builders.train(s, builders.mean_loss, tx=optax.adam(0.1))
        found = []
        for batch in s.experimental_distribute_dataset(BATCHES):
            found.append(float(step(*batch)))
            if is_checked:
                assert check(step, s)
        return found, step.experimental_get_tracing_count()

    plain, _ = losses(False)
    checked, _ = losses(True)
    assert plain == checked


def test_a_step_that_makes_variables_when_it_is_first_called_can_be_checked(s):
    made = []

    @uni.function
    def step(x, y):
        if not made:
            made.append(uni.Variable(2.0, aggregation=uni.VariableAggregation.SUM))

        def replica(x):
            made[0].assign_add(jnp.sum(x))

        s.run(replica, args=(x,))

    with s.scope():
        assert check(step, s)
    assert float(made[0].numpy()) == 2.0


def test_a_step_with_one_parameter_gets_the_batch(s):
    inner = builders.train(s, builders.mean_loss)
    assert check(lambda batch: inner(*batch), s)
    assert check(lambda batch: inner(batch["x"], batch["y"]), s, _dicts())


def _dicts():
    return [{"x": x, "y": y} for x, y in BATCHES]


def test_a_dataset_is_read_and_left_as_it_is(s):
    x, y = BATCHES[0]
    dataset = uni.data.Dataset.from_tensor_slices((x, y)).batch(16)
    assert check(builders.train(s, builders.mean_loss), s, dataset)


def test_a_result_of_each_replica_is_told_not_compared(s):
    report = check(uni.function(lambda x, y: s.run(lambda x, y: x.sum(), (x, y))), s)
    assert report.uncompared == ("result",) and "reduce it" in str(report)


def test_results_of_every_row_are_compared_row_by_row(s):
    report = check(uni.function(lambda x, y: s.run(lambda x, y: 2 * x, (x, y))), s)
    assert report and not report.uncompared


def test_numbers_that_are_not_finite_are_compared_too(s):
    @uni.function
    def step(x, y):
        return s.reduce("SUM", s.run(lambda x, y: jnp.log(-x).sum(), (x, y)), axis=None)

    assert check(step, s)


@pytest.mark.parametrize(
    "batches, replicas, error, said",
    [
        (iter(BATCHES), (1, 2), TypeError, "read once"),
        ([], (1, 2), ValueError, "no batches"),
        (BATCHES, (1,), ValueError, "larger than"),
        (BATCHES, (0, 2), ValueError, "larger than"),
        (BATCHES, (1, 4096), ValueError, "4096 devices"),
    ],
)
def test_bad_input_is_refused(s, batches, replicas, error, said):
    step = builders.train(s, builders.mean_loss)
    with pytest.raises(error, match=said):
        check(step, s, batches, replicas)


def test_a_strategy_with_a_fixed_number_of_replicas_is_refused():
    one = uni.distribute.OneDeviceStrategy(machine.name(0))
    with pytest.raises(ValueError, match="MirroredStrategy"):
        check(lambda x, y: 0.0, one)


def test_a_step_of_central_storage_is_checked_too():
    s = uni.distribute.experimental.CentralStorageStrategy(
        machine.names(2), machine.name(0)
    )
    right = builders.train(s, builders.mean_loss, tx=optax.adam(0.1))
    assert check(right, s, replicas=(1, 2, 3))
    assert check(builders.train(s, mean_of_part), s).cause.code == "times-n"


def test_random_numbers_without_a_seed_are_told_from_python_state(s):
    def loss(model, x, y):
        noise = uni.random.normal(x.shape)
        return builders.mean_loss(model, x + 0.3 * noise, y)

    assert check(builders.train(s, loss), s).cause.code == "random-different"


@pytest.mark.needs_devices(2)
def test_a_step_of_sharded_state_is_checked_too():
    s = uni.distribute.MirroredStrategy(
        machine.names(2), state="sharded", shard_above=1
    )
    right = builders.train(s, builders.mean_loss, tx=optax.adam(0.1))
    assert check(right, s)
    assert check(builders.train(s, mean_of_part), s).cause.code == "times-n"


def test_a_batch_smaller_than_the_number_of_replicas_is_checked(s):
    few = [(x[:1], y[:1]) for x, y in BATCHES]
    assert check(builders.train(s, builders.mean_loss), s, few)


def test_a_check_in_the_scope_of_the_strategy_is_like_one_outside(s):
    step = builders.train(s, builders.mean_loss)
    with s.scope():
        assert check(step, s)


def test_python_numbers_that_a_step_returns_are_rounded_as_jax_rounds(s):
    step = builders.train(s, builders.mean_loss)
    assert check(lambda x, y: {"loss": float(step(x, y)) / 3}, s, replicas=(1, 2))
