"""Hooks are called around every step, and may end a training."""

import dataclasses

import pytest

import unisono as uni
from tests.unit.estimator.models import (
    EVAL,
    PREDICT,
    TRAIN,
    data,
    four_batches,
    make,
    make_small,
    weight_fn,
)

E = uni.estimator


def test_hooks_see_every_step_and_may_end_training(tmp_path):
    order = []

    class Hook(E.SessionRunHook):
        def begin(self):
            order.append("begin")

        def after_create_session(self, session, coord):
            order.append("ready")

        def before_run(self, run_context):
            order.append("before")

        def after_run(self, run_context, run_values):
            order.append(run_values.results["global_step"])

        def end(self, session):
            order.append("end")

    estimator = make(tmp_path)
    stop = E.StopAtStepHook(num_steps=2)
    estimator.train(data(8), hooks=[Hook(), stop])
    assert order == ["begin", "ready", "before", 1, "before", 2, "end"]
    estimator.train(data(8), hooks=[E.StopAtStepHook(last_step=5)])
    assert estimator.get_variable_value("global_step") == 5


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
        return dataclasses.replace(weight_fn(features, mode), **{name: [of_spec]})

    estimator = make_small(tmp_path, fn)
    methods = {TRAIN: estimator.train, EVAL: estimator.evaluate}
    # Twice: a model function is not called again to compile.
    for _ in range(2):
        found = methods.get(mode, estimator.predict)(four_batches, hooks=[of_caller])
        assert mode != PREDICT or len(list(found)) == 8
        for name in ("spec", "caller"):
            assert [what for n, what in told if n == name] == ["begin", "ready", "end"]
        del told[:]
