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


class Recorder(E.Exporter):
    """Remembers for which step it was called, and whether for the last time."""

    name = "recorder"

    def __init__(self):
        self.told = []

    def export(
        self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export
    ):
        assert checkpoint_path.endswith(f"-{eval_result['global_step']}")
        self.told.append((int(eval_result["global_step"]), is_the_final_export))


class Count(E.SessionRunHook):
    def __init__(self):
        self.count = 0

    def end(self, session):
        self.count += 1


def train_and_evaluate(estimator, input_fn, max_steps=None, throttle_secs=0):
    """Returns for which steps there were exports, and how many evaluations."""
    recorder, count = Recorder(), Count()
    evaluation = E.EvalSpec(
        four_batches,
        hooks=[count],
        exporters=recorder,
        start_delay_secs=0,
        throttle_secs=throttle_secs,
    )
    train = E.TrainSpec(input_fn, max_steps=max_steps)
    E.train_and_evaluate(estimator, train, evaluation)
    return recorder.told, count.count


@pytest.mark.feature("V06")
def test_every_checkpoint_is_evaluated_once_also_of_a_training_that_goes_on(tmp_path):
    def endless():
        return four_batches().repeat()

    estimator = make(tmp_path, save_checkpoints_steps=2)
    found = train_and_evaluate(estimator, endless, 6)
    assert found == ([(2, False), (4, False), (6, True)], 3)
    found = train_and_evaluate(estimator, endless, 12)
    assert found == ([(8, False), (10, False), (12, True)], 3)
    # Nothing is left to train.
    assert train_and_evaluate(estimator, endless, 12) == ([(12, True)], 1)


def test_a_training_that_its_data_ends_is_exported_for_the_last_time_once(tmp_path):
    estimator = make(tmp_path, save_checkpoints_steps=2)
    # That step 4 is the last was not known when it was saved first.
    found = train_and_evaluate(estimator, four_batches)
    assert found == ([(2, False), (4, False), (4, True)], 2)
    found = train_and_evaluate(estimator, four_batches, throttle_secs=600)
    assert found == ([(6, False), (8, True)], 2)
    # Killed when all was done: the first call only finishes that.
    killed_at(tmp_path / "killed", 4)
    estimator = make(tmp_path / "killed", save_checkpoints_steps=2)
    assert train_and_evaluate(estimator, four_batches) == ([(4, True)], 1)


@pytest.mark.feature("V06")
def test_predictions_keep_their_weights_whatever_the_estimator_does_meanwhile(tmp_path):
    estimator = make(tmp_path / "model")
    estimator.train(four_batches)
    old = X[:, 0] * estimator.get_variable_value("w")
    running = estimator.predict(four_batches)
    found = [next(running)]
    estimator.train(four_batches)
    new = X[:, 0] * estimator.get_variable_value("w")
    np.testing.assert_allclose(list(estimator.predict(four_batches)), new, rtol=1e-6)
    found.append(next(running))
    receiver_fn = E.export.build_raw_serving_input_receiver_fn(X)
    estimator.export_saved_model(tmp_path / "exported", receiver_fn)
    found += running
    np.testing.assert_allclose(found, old, rtol=1e-6)
    assert not np.allclose(old, new)


def test_an_evaluation_inside_another_leaves_its_numbers_alone(tmp_path):
    class Evaluate(E.SessionRunHook):
        def after_run(self, run_context, run_values):
            estimator.evaluate(four_batches, steps=1)

    estimator = make(tmp_path)
    estimator.train(four_batches)
    wanted = estimator.evaluate(four_batches)
    assert estimator.evaluate(four_batches, hooks=[Evaluate()]) == wanted


def test_predictions_one_after_the_other_compile_once(tmp_path):
    calls = []

    def fn(features, mode):
        calls.append(mode)
        return model_fn(features, mode)

    estimator = make(tmp_path, fn)
    estimator.train(four_batches)
    for _ in range(3):
        list(estimator.predict(four_batches))
        # One that is given up, too, hands back what it used.
        running = estimator.predict(four_batches)
        next(running)
        running.close()
    # The variables are made in a first look, and again once they are there.
    assert calls.count(PREDICT) == 3


# What goes wrong is said.


def test_data_with_fewer_batches_than_replicas_is_told_from_data_for_all(tmp_path):
    strategy = uni.distribute.MirroredStrategy([f"CPU:{i}" for i in range(4)])
    estimator = make(tmp_path, train_distribute=strategy, eval_distribute=strategy)

    def three_batches():
        return four_batches().take(3)

    with pytest.raises(ValueError, match="each of the 4 replicas takes a batch"):
        estimator.train(three_batches)
    assert step_of(estimator.train(four_batches)) == 1
    # An evaluation counts what there is.
    assert estimator.evaluate(three_batches)["global_step"] == 1
    with pytest.raises(ValueError, match="is empty"):
        estimator.evaluate(lambda: four_batches().take(0))


def test_a_position_of_other_data_is_told_and_can_be_left_out(tmp_path):
    killed_at(tmp_path, 2)

    def others():
        return uni.data.Dataset.from_tensor_slices(X).shuffle(8, seed=1).batch(4)

    with pytest.raises(ValueError, match=r"RunConfig\(keep_input_position=False\)"):
        make(tmp_path).train(others)
    # With that, all of the other data is taken; and without, as it was before.
    assert step_of(make(tmp_path, keep_input_position=False).train(others)) == 4
    assert step_of(make(tmp_path).train(others)) == 6


@pytest.mark.parametrize("is_trainable", [True, False])
def test_a_model_that_has_gained_a_variable_is_told(is_trainable, tmp_path):
    make(tmp_path).train(four_batches)

    def fn(features, mode):
        # It comes first, so that the state of the optimizer has other shapes too.
        uni.Variable(jnp.zeros(3), name="new", trainable=is_trainable)
        return model_fn(features, mode)

    for method in ("train", "evaluate"):
        estimator = make(tmp_path, fn)
        with pytest.raises((ValueError, FileNotFoundError), match="model changed"):
            getattr(estimator, method)(four_batches)


@pytest.mark.parametrize("other", [np.zeros(3, "float32"), np.zeros((), "int32")])
def test_a_model_whose_variable_is_another_now_is_told(other, tmp_path):
    make(tmp_path).train(four_batches)

    def fn(features, mode):
        uni.Variable(other, name="w")
        return E.EstimatorSpec(mode, loss=jnp.mean(features), train_op=lambda: None)

    for method in ("train", "evaluate"):
        with pytest.raises(ValueError, match="model changed"):
            getattr(make(tmp_path, fn), method)(four_batches)
