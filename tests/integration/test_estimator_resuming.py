"""Estimators that go on: after they were cut short, with hooks, beside one another."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as uni

E = uni.estimator
TRAIN, EVAL, PREDICT = E.ModeKeys.TRAIN, E.ModeKeys.EVAL, E.ModeKeys.PREDICT
X = np.arange(1.0, 9.0, dtype="float32").reshape(8, 1)


def model_fn(features, mode):
    w = uni.Variable(1.0, name="w")
    if mode == PREDICT:
        return E.EstimatorSpec(mode, predictions=features[:, 0] * w.value())
    loss = w * jnp.mean(features)
    return E.EstimatorSpec(mode, loss=loss, train_op=E.minimize(optax.adam(0.1), loss))


def four_batches():
    return uni.data.Dataset.from_tensor_slices(X).batch(2)


def make(directory, fn=model_fn, **config):
    return E.Estimator(fn, directory, E.RunConfig(**config))


def step_of(estimator):
    return int(estimator.get_variable_value("global_step"))


class Killed(BaseException):
    """Stands for whatever ends a process."""


class KilledAfterSave(E.CheckpointSaverListener):
    def __init__(self, step):
        self.step = step

    def after_save(self, session, global_step_value):
        if global_step_value == self.step:
            raise Killed


def killed_at(directory, step):
    """Returns after a training with four batches has been killed at a step."""
    with pytest.raises(Killed):
        make(directory, save_checkpoints_steps=step).train(
            four_batches, saving_listeners=[KilledAfterSave(step)]
        )


@pytest.mark.feature("V06")
def test_a_training_killed_at_the_end_of_its_data_can_be_followed_by_others(tmp_path):
    killed_at(tmp_path, 4)
    found = []
    for _ in range(3):
        found.append(step_of(make(tmp_path).train(four_batches)))
    # The first finds that all was done; the others begin with the data anew.
    assert found == [4, 8, 12]


@pytest.mark.parametrize("mode", [TRAIN, EVAL, PREDICT])
def test_hooks_of_a_spec_are_called_as_those_of_the_caller(mode, tmp_path):
    told = []

    class Hook(E.SessionRunHook):
        def __init__(self, name):
            self.name = name

        def begin(self):
            told.append((self.name, "begin"))

        def after_create_session(self, session, coord):
            told.append((self.name, "ready"))

        def end(self, session):
            told.append((self.name, "end"))

    of_spec, of_caller = Hook("spec"), Hook("caller")
    kinds = {TRAIN: "training_hooks", EVAL: "evaluation_hooks"}

    def fn(features, mode):
        name = kinds.get(mode, "prediction_hooks")
        return dataclasses.replace(model_fn(features, mode), **{name: [of_spec]})

    estimator = make(tmp_path, fn)
    methods = {TRAIN: estimator.train, EVAL: estimator.evaluate}
    # Twice: a model function is not called again to compile.
    for _ in range(2):
        found = methods.get(mode, estimator.predict)(four_batches, hooks=[of_caller])
        assert mode != PREDICT or len(list(found)) == 8
        for name in ("spec", "caller"):
            assert [what for n, what in told if n == name] == ["begin", "ready", "end"]
        del told[:]
