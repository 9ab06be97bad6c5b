import keras
import numpy as np
import pytest

import unisono as uni
from tests import machine
from unisono._src.execution import call_modes
from unisono._src.training import gradient_taps

X = np.random.RandomState(0).randn(10, 3).astype("f")
Y = X.sum(1, keepdims=True)


def make_model(strategy, **options):
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.1), "mse", **options)
    return model


def fit(model):
    found = model.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    return found.history["loss"], model.get_weights()


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_an_observer_sees_every_batch_of_fit_and_its_numbers(steps_per_execution):
    options = {"steps_per_execution": steps_per_execution}
    strategy = uni.distribute.MirroredStrategy(machine.names(2))
    expected = fit(make_model(strategy, **options))
    model = make_model(strategy, **options)
    taps, seen = gradient_taps.GradientTaps(), []

    def observe(args, kwargs, start):
        before = model.get_weights()
        logs = start(args, kwargs)
        (kernel, _), rows = model.get_weights(), len(args[0][0])
        cell = model.trainable_variables[0]._kept.state_cell
        gradient = np.sum(taps.by_cell[cell].state_cell.array, axis=0)
        seen.append((rows, np.sign(kernel - before[0]), np.sign(gradient), logs))
        return logs

    with gradient_taps.collect(taps), call_modes.observe_calls(observe):
        found = fit(model)
    assert [rows for rows, *_ in seen] == [4, 4, 2] * 2
    # The first step of Adam goes against the gradient.
    np.testing.assert_array_equal(seen[0][1], -seen[0][2])
    assert all(np.isfinite(float(logs["loss"])) for *_, logs in seen)
    np.testing.assert_array_equal(found[0], expected[0])
    for a, b in zip(found[1], expected[1]):
        np.testing.assert_array_equal(a, b)


def test_an_error_of_an_observer_leaves_the_weights_of_the_last_step():
    model = make_model(uni.distribute.MirroredStrategy(machine.names(2)))
    seen = []

    def observe(args, kwargs, start):
        if seen:
            raise OSError("stop")
        seen.append((start(args, kwargs), model.get_weights()))
        return seen[0][0]

    with call_modes.observe_calls(observe), pytest.raises(OSError, match="stop"):
        fit(model)
    for a, b in zip(model.get_weights(), seen[0][1]):
        np.testing.assert_array_equal(a, b)


def test_an_observer_may_give_a_step_another_batch():
    strategy = uni.distribute.MirroredStrategy(machine.names(2))
    model, other = make_model(strategy), make_model(strategy)

    def observe(args, kwargs, start):
        return start(((np.zeros_like(X[:4]), np.ones_like(Y[:4])),), {})

    with call_modes.observe_calls(observe):
        model.fit(X[:4], Y[:4], verbose=0)
    other.fit(np.zeros_like(X[:4]), np.ones_like(Y[:4]), verbose=0)
    np.testing.assert_array_equal(model.get_weights()[1], other.get_weights()[1])
