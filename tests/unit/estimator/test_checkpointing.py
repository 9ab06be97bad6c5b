"""What an estimator saves, and how a training goes on after it was cut short."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as uni
from tests.unit.estimator.models import (
    ROWS,
    STRATEGIES,
    close,
    data,
    four_batches,
    killed_at,
    make,
    make_small,
    model_fn,
    replicas,
    step_of,
    values,
    weight_fn,
)
from unisono._src.estimator import checkpointing

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies
E = uni.estimator


def test_checkpoints_are_saved_before_between_and_after(tmp_path):
    saved = []

    class Listener(E.CheckpointSaverListener):
        def begin(self):
            saved.append("begin")

        def before_save(self, session, global_step_value):
            saved.append(-global_step_value)

        def after_save(self, session, global_step_value):
            saved.append(global_step_value)

        def end(self, session, global_step_value):
            saved.append(("end", global_step_value))

    estimator = make(tmp_path, save_checkpoints_steps=3, keep_checkpoint_max=2)
    estimator.train(data(8), steps=7, saving_listeners=[Listener()])
    assert saved == ["begin", 0, 0, -3, 3, -6, 6, -7, 7, ("end", 7)]
    assert sorted(p.name for p in tmp_path.iterdir() if "ckpt" in p.name) == [
        "model.ckpt-6",
        "model.ckpt-7",
    ]


class Stop(Exception):
    """Stands for whatever ends a process."""


class StopAt(E.SessionRunHook):
    def __init__(self, step):
        self.step = step

    def after_run(self, run_context, run_values):
        if run_values.results["global_step"] == self.step:
            raise Stop


@pytest.mark.parametrize("name", ["none", "mirrored"])
def test_a_training_that_was_cut_short_goes_on_where_its_data_stood(name, tmp_path):
    strategy = STRATEGIES[name]()
    own = 8 // replicas(strategy)
    calm = make(tmp_path / "calm", strategy)
    calm.train(data(own, shuffle=True), max_steps=14)
    for step in (5, 9):
        # A new estimator each time, as in a new process.
        estimator = make(tmp_path / "cut", strategy, save_checkpoints_steps=4)
        with pytest.raises(Stop):
            estimator.train(data(own, shuffle=True), max_steps=14, hooks=[StopAt(step)])
        assert estimator.get_variable_value("global_step") == step - 1
    estimator = make(tmp_path / "cut", strategy)
    estimator.train(data(own, shuffle=True), max_steps=14)
    close(values(estimator), values(calm), rtol=0, atol=0)


def test_a_training_that_ended_begins_with_its_data_anew(tmp_path):
    def fn(features, mode):
        w = uni.Variable(0.0, name="w")
        loss = w * features[0]
        return E.EstimatorSpec(
            mode, loss=loss, train_op=E.minimize(optax.sgd(1.0), loss)
        )

    def input_fn():
        return uni.data.Dataset.range(10).map(lambda x: x / 1).batch(1)

    estimator = make(tmp_path, None, fn, save_checkpoints_steps=1)
    estimator.train(input_fn, steps=3)
    estimator.train(input_fn, steps=3)
    assert estimator.get_variable_value("w") == -2 * (0 + 1 + 2)
    # Also where the last step was saved before it was known to be the last.
    for _ in range(2):
        estimator.train(input_fn)
    assert estimator.get_variable_value("w") == -2 * (3 + 45)
    assert estimator.get_variable_value("global_step") == 26


def test_a_model_that_has_changed_is_told_from_its_checkpoint(tmp_path):
    make(tmp_path).train(data(8), steps=1)

    def other(features, labels, mode, params):
        uni.Variable(1.0, name="new")
        return model_fn(features, labels, mode, params)

    with pytest.raises(uni.errors.NotFoundError, match="Has the model changed"):
        make(tmp_path, None, other).evaluate(data(8), steps=1)


@hypothesis.given(st.text("ab./S_0", min_size=1, max_size=12))
def test_names_are_found_again_in_the_keys_of_checkpoints(name):
    assert checkpointing.name_of(checkpointing.key_of(name)) == name


@pytest.mark.feature("V06")
def test_a_training_killed_at_the_end_of_its_data_can_be_followed_by_others(tmp_path):
    killed_at(tmp_path, 4)
    found = []
    for _ in range(3):
        found.append(step_of(make_small(tmp_path).train(four_batches)))
    # The first finds that all was done; the others begin with the data anew.
    assert found == [4, 8, 12]


def test_a_position_of_other_data_is_told_and_can_be_left_out(tmp_path):
    killed_at(tmp_path, 2)

    def others():
        return uni.data.Dataset.from_tensor_slices(ROWS).shuffle(8, seed=1).batch(4)

    with pytest.raises(ValueError, match=r"RunConfig\(keep_input_position=False\)"):
        make_small(tmp_path).train(others)
    # With that, all of the other data is taken; and without, as it was before.
    assert step_of(make_small(tmp_path, keep_input_position=False).train(others)) == 4
    assert step_of(make_small(tmp_path).train(others)) == 6


@pytest.mark.parametrize("is_trainable", [True, False])
def test_a_model_that_has_gained_a_variable_is_told(is_trainable, tmp_path):
    make_small(tmp_path).train(four_batches)

    def fn(features, mode):
        # It comes first, so that the state of the optimizer has other shapes too.
        uni.Variable(jnp.zeros(3), name="new", trainable=is_trainable)
        return weight_fn(features, mode)

    for method in ("train", "evaluate"):
        estimator = make_small(tmp_path, fn)
        with pytest.raises((ValueError, FileNotFoundError), match="model changed"):
            getattr(estimator, method)(four_batches)


@pytest.mark.parametrize("other", [np.zeros(3, "float32"), np.zeros((), "int32")])
def test_a_model_whose_variable_is_another_now_is_told(other, tmp_path):
    make_small(tmp_path).train(four_batches)

    def fn(features, mode):
        uni.Variable(other, name="w")
        return E.EstimatorSpec(mode, loss=jnp.mean(features), train_op=lambda: None)

    for method in ("train", "evaluate"):
        with pytest.raises(ValueError, match="model changed"):
            getattr(make_small(tmp_path, fn), method)(four_batches)
