"""`Estimator`: a model function trained, evaluated and used under strategies."""

import os

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as uni
from tests.unit.estimator.models import (
    EVAL,
    PREDICT,
    ROWS,
    STRATEGIES,
    TRAIN,
    X,
    Y,
    close,
    data,
    four_batches,
    make,
    make_small,
    mirrored,
    model_fn,
    replicas,
    step_of,
    values,
    weight_fn,
)

E = uni.estimator


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """Returns what one device comes to after 12 steps with batches of 8."""
    estimator = make(tmp_path_factory.mktemp("one"))
    estimator.train(data(8), steps=12)
    found = [p["y"] for p in estimator.predict(data(20, repeat=False))]
    return values(estimator), estimator.evaluate(data(8, repeat=False)), found


@pytest.mark.feature("V06")
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_gives_the_numbers_of_one_device(name, wanted, tmp_path):
    strategy = STRATEGIES[name]()
    own = 8 // replicas(strategy)
    estimator = make(tmp_path, strategy)
    assert estimator.train(data(own), steps=12) is estimator
    close(values(estimator), wanted[0], rtol=2e-5, atol=1e-6)
    assert values(estimator)["global_step"] == 12
    close(estimator.evaluate(data(own, repeat=False)), wanted[1], rtol=2e-4, atol=1e-6)
    found = [p["y"] for p in estimator.predict(data(20, repeat=False))]
    np.testing.assert_allclose(found, wanted[2], rtol=1e-4, atol=1e-6)


@pytest.mark.feature("V06")
def test_each_replica_takes_a_batch_of_its_own(tmp_path):
    seen = []

    def fn(features, mode):
        seen.append(features.shape)
        w = uni.Variable(0.0, name="w")
        train_op = E.minimize(optax.sgd(1.0), loss := w * jnp.mean(features))
        return E.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn(input_context):
        assert input_context.num_replicas_in_sync == 4
        assert input_context.num_input_pipelines == 1
        return uni.data.Dataset.range(16).map(lambda x: x / 1).batch(2)

    estimator = make(tmp_path, mirrored(4), fn)
    estimator.train(input_fn)
    assert set(seen) == {(2,)}
    # Two steps of four batches of two: the mean of all that was read, twice.
    assert estimator.get_variable_value("global_step") == 2
    assert estimator.get_variable_value("w") == pytest.approx(-(3.5 + 11.5))


def test_a_step_that_not_every_replica_has_a_batch_for_is_left_out(tmp_path):
    estimator = make(tmp_path, mirrored(4))
    estimator.train(data(5, repeat=False))  # Ten batches, the last one of three.
    assert estimator.get_variable_value("global_step") == 2
    assert np.isfinite(estimator.get_variable_value("w")).all()


def test_evaluation_counts_every_example_once_however_it_ends(tmp_path):
    one = make(tmp_path)
    one.train(data(8), steps=5)
    wanted = one.evaluate(data(48, repeat=False))
    for count in (2, 4):
        found = make(tmp_path, mirrored(count)).evaluate(data(5, repeat=False))
        assert found["error"] == pytest.approx(wanted["error"], rel=1e-5)
        assert found["signed"] == pytest.approx(wanted["signed"], rel=1e-4)
        assert np.isfinite(found["loss"])
        assert found["global_step"] == 5


def test_steps_count_on_and_max_steps_counts_from_the_checkpoint(tmp_path):
    estimator = make(tmp_path)
    estimator.train(data(8), steps=3)
    estimator.train(data(8), steps=2)
    assert estimator.get_variable_value("global_step") == 5
    estimator.train(data(8), max_steps=7)
    assert estimator.get_variable_value("global_step") == 7
    called = []
    estimator.train(lambda: called.append(1), max_steps=7)
    assert not called
    assert os.path.basename(estimator.latest_checkpoint()) == "model.ckpt-7"


def test_steps_compile_once_however_often_methods_are_called(tmp_path):
    calls = []

    def fn(features, labels, mode, params):
        calls.append(mode)
        return model_fn(features, labels, mode, params)

    estimator = make(tmp_path, None, fn)
    for _ in range(3):
        estimator.train(data(8), steps=2)
        estimator.evaluate(data(8), steps=1)
    # The variables are made in a first look, and again once they are there.
    assert calls.count(TRAIN) == calls.count(EVAL) == 3


def test_predictions_come_by_example_or_by_batch_and_by_key(tmp_path):
    estimator = make(tmp_path)
    estimator.train(data(8), steps=1)
    single = list(estimator.predict(data(20, repeat=False), predict_keys=["twice"]))
    assert len(single) == 48 and single[0].keys() == {"twice"}
    batches = list(
        estimator.predict(data(20, repeat=False), yield_single_examples=False)
    )
    assert [len(b["y"]) for b in batches] == [20, 20, 8]
    np.testing.assert_allclose(batches[0]["twice"], 2 * batches[0]["y"])
    with pytest.raises(ValueError, match="at least one output"):
        next(estimator.predict(data(20), predict_keys=["other"]))


def test_evaluation_of_another_checkpoint_leaves_training_alone(tmp_path):
    estimator = make(tmp_path, save_checkpoints_steps=2)
    estimator.train(data(8), steps=4)
    old = os.path.join(estimator.model_dir, "model.ckpt-2")
    assert estimator.evaluate(data(8), steps=1, checkpoint_path=old)["global_step"] == 2
    before = values(estimator)
    estimator.train(data(8), steps=1)
    assert values(estimator)["global_step"] == before["global_step"] + 1


def test_a_model_that_was_never_trained_is_evaluated_as_it_is_made(tmp_path):
    found = make(tmp_path).evaluate(data(48), steps=1)
    assert found["loss"] == pytest.approx(float(np.mean(Y**2)), rel=1e-5)
    assert found["global_step"] == 0


def test_without_a_checkpoint_variables_are_new(tmp_path):
    trained, fresh = make(tmp_path / "trained"), make(tmp_path / "fresh")
    trained.train(data(8), steps=3)
    path = trained.latest_checkpoint()
    wanted = fresh.evaluate(data(8), steps=1)["loss"]
    found = fresh.evaluate(data(8), steps=1, checkpoint_path=path)["loss"]
    assert found != wanted
    assert fresh.evaluate(data(8), steps=1)["loss"] == wanted


def test_warm_start_takes_trainable_variables_only(tmp_path):
    first = make(tmp_path / "first")
    first.train(data(8), steps=5)
    config = E.RunConfig(save_checkpoints_steps=100)
    second = E.Estimator(
        model_fn, tmp_path / "second", config, {"rate": 0.0}, str(tmp_path / "first")
    )
    second.train(data(8), steps=1)
    assert second.get_variable_value("global_step") == 1
    np.testing.assert_array_equal(
        second.get_variable_value("w"), first.get_variable_value("w")
    )


def test_wrong_calls_are_refused(tmp_path):
    estimator = make(tmp_path)
    with pytest.raises(ValueError, match="both steps and max_steps"):
        estimator.train(data(8), steps=1, max_steps=2)
    with pytest.raises(ValueError, match="> 0"):
        estimator.train(data(8), steps=0)
    with pytest.raises(TypeError, match="must return a dataset"):
        estimator.train(lambda: (X, Y))
    with pytest.raises(TypeError, match="`input_fn` must be callable"):
        estimator.train(data(8)())
    with pytest.raises(ValueError, match="is empty"):
        estimator.train(lambda: uni.data.Dataset.from_tensor_slices(X[:0]).batch(2))
    with pytest.raises(ValueError, match="Could not find trained model"):
        estimator.get_variable_names()
    with mirrored(2).scope(), pytest.raises(RuntimeError, match="RunConfig"):
        estimator.train(data(8))
    with pytest.raises(RuntimeError, match="inside the model_fn"):
        uni.train.get_global_step()
    with pytest.raises(TypeError, match="Optax"):
        E.minimize("adam", 1.0)


@pytest.mark.feature("V06")
def test_predictions_keep_their_weights_whatever_the_estimator_does_meanwhile(tmp_path):
    estimator = make_small(tmp_path / "model")
    estimator.train(four_batches)
    old = ROWS[:, 0] * estimator.get_variable_value("w")
    running = estimator.predict(four_batches)
    found = [next(running)]
    estimator.train(four_batches)
    new = ROWS[:, 0] * estimator.get_variable_value("w")
    np.testing.assert_allclose(list(estimator.predict(four_batches)), new, rtol=1e-6)
    found.append(next(running))
    receiver_fn = E.export.build_raw_serving_input_receiver_fn(ROWS)
    estimator.export_saved_model(tmp_path / "exported", receiver_fn)
    found += running
    np.testing.assert_allclose(found, old, rtol=1e-6)
    assert not np.allclose(old, new)


def test_an_evaluation_inside_another_leaves_its_numbers_alone(tmp_path):
    class Evaluate(E.SessionRunHook):
        def after_run(self, run_context, run_values):
            estimator.evaluate(four_batches, steps=1)

    estimator = make_small(tmp_path)
    estimator.train(four_batches)
    wanted = estimator.evaluate(four_batches)
    assert estimator.evaluate(four_batches, hooks=[Evaluate()]) == wanted


def test_predictions_one_after_the_other_compile_once(tmp_path):
    calls = []

    def fn(features, mode):
        calls.append(mode)
        return weight_fn(features, mode)

    estimator = make_small(tmp_path, fn)
    estimator.train(four_batches)
    for _ in range(3):
        list(estimator.predict(four_batches))
        # One that is given up, too, hands back what it used.
        running = estimator.predict(four_batches)
        next(running)
        running.close()
    # The variables are made in a first look, and again once they are there.
    assert calls.count(PREDICT) == 3


def test_data_with_fewer_batches_than_replicas_is_told_from_data_for_all(tmp_path):
    strategy = uni.distribute.MirroredStrategy([f"CPU:{i}" for i in range(4)])
    estimator = make_small(
        tmp_path, train_distribute=strategy, eval_distribute=strategy
    )

    def three_batches():
        return four_batches().take(3)

    with pytest.raises(ValueError, match="each of the 4 replicas takes a batch"):
        estimator.train(three_batches)
    assert step_of(estimator.train(four_batches)) == 1
    # An evaluation counts what there is.
    assert estimator.evaluate(three_batches)["global_step"] == 1
    with pytest.raises(ValueError, match="is empty"):
        estimator.evaluate(lambda: four_batches().take(0))
