"""Estimators: model functions trained, evaluated and used under strategies."""

import dataclasses
import os

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as uni
from tests import machine
from unisono._src.estimator import checkpointing

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies
E = uni.estimator
TRAIN, EVAL, PREDICT = E.ModeKeys.TRAIN, E.ModeKeys.EVAL, E.ModeKeys.PREDICT

rng = np.random.default_rng(0)
X = rng.normal(size=(48, 3)).astype("float32")
Y = X @ np.array([1.0, 2.0, -1.0], "float32") + 0.5


def mirrored(count):
    return uni.distribute.MirroredStrategy(machine.names(count))


STRATEGIES = {
    "none": lambda: None,
    "one": lambda: uni.distribute.OneDeviceStrategy(machine.another()),
    "mirrored-1": lambda: mirrored(1),
    "mirrored": lambda: mirrored(2),
    "mirrored-4": lambda: mirrored(4),
    "central": lambda: uni.distribute.experimental.CentralStorageStrategy(
        machine.names_up_to(2), machine.name(0)
    ),
}


def replicas(strategy):
    return 1 if strategy is None else strategy.num_replicas_in_sync


def model_fn(features, labels, mode, params):
    w = uni.compat.v1.get_variable("w", (3,), initializer=jnp.zeros)
    b = uni.Variable(0.0, name="b")
    found = features["x"] @ w + b
    if mode == PREDICT:
        return E.EstimatorSpec(
            mode, predictions={"y": found, "twice": 2 * found}, export_outputs=None
        )
    loss = jnp.mean((found - labels) ** 2)
    if mode == EVAL:
        error = uni.metrics.Mean(name="error")
        error.update_state(jnp.abs(found - labels))
        ops = {"error": error, "signed": found - labels}
        return E.EstimatorSpec(mode, loss=loss, eval_metric_ops=ops)
    step = uni.train.get_or_create_global_step()
    rate = params.get("rate", 0.1) * 0.99 ** step.value()
    train_op = E.minimize(optax.adam(rate), loss, global_step=step)
    return E.EstimatorSpec(mode, loss=loss, train_op=train_op)


def data(batch, repeat=True, shuffle=False):
    def input_fn():
        found = uni.data.Dataset.from_tensor_slices(({"x": X}, Y))
        found = found.shuffle(48, seed=3) if shuffle else found
        return (found.repeat() if repeat else found).batch(batch)

    return input_fn


def make(directory, strategy=None, fn=model_fn, **config):
    config.setdefault("save_checkpoints_steps", 100)
    run_config = E.RunConfig(
        train_distribute=strategy, eval_distribute=strategy, **config
    )
    return E.Estimator(fn, directory, run_config)


def values(estimator):
    names = estimator.get_variable_names()
    return {n: np.asarray(estimator.get_variable_value(n)) for n in names}


def close(a, b, **tolerance):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], **(tolerance or {"rtol": 1e-5}))


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
        return uni.data.Dataset.range(16).map(lambda x: x * 1.0).batch(2)

    estimator = make(tmp_path, mirrored(4), fn)
    estimator.train(input_fn)
    assert set(seen) == {(2,)}
    # Two steps of four batches of two: the mean of all that was read, twice.
    assert estimator.get_variable_value("global_step") == 2
    assert estimator.get_variable_value("w") == pytest.approx(-(3.5 + 11.5))


def test_the_loss_is_the_mean_over_replicas(tmp_path):
    losses = []

    class Hook(E.SessionRunHook):
        def after_run(self, run_context, run_values):
            losses.append(float(run_values.results["loss"]))

    def fn(features, mode):
        w = uni.Variable(1.0, name="w")
        loss = w * jnp.mean(features)
        return E.EstimatorSpec(
            mode, loss=loss, train_op=E.minimize(optax.sgd(0.0), loss)
        )

    def input_fn():
        return uni.data.Dataset.range(8).map(lambda x: x * 1.0).batch(2)

    make(tmp_path, mirrored(2), fn).train(input_fn, hooks=[Hook()])
    assert losses == [1.5, 5.5]


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
        return uni.data.Dataset.range(10).map(lambda x: x * 1.0).batch(1)

    estimator = make(tmp_path, None, fn, save_checkpoints_steps=1)
    estimator.train(input_fn, steps=3)
    estimator.train(input_fn, steps=3)
    assert estimator.get_variable_value("w") == -2 * (0 + 1 + 2)
    # Also where the last step was saved before it was known to be the last.
    for _ in range(2):
        estimator.train(input_fn)
    assert estimator.get_variable_value("w") == -2 * (3 + 45)
    assert estimator.get_variable_value("global_step") == 26


def test_train_op_may_be_a_function_that_does_it_all(tmp_path):
    def fn(features, labels, mode):
        w = uni.Variable(jnp.zeros(3), name="w")
        optimizer = uni.optimizers.Optimizer(optax.sgd(0.1), [w])

        def loss_fn():
            return jnp.mean((features["x"] @ w - labels) ** 2)

        def train_op():
            context = uni.distribute.get_replica_context()
            (gradient,) = uni.grad(loss_fn, [w])()
            optimizer.apply([gradient / context.num_replicas_in_sync])
            uni.train.get_global_step().assign_add(1)  # As older programs do.

        return E.EstimatorSpec(mode, loss=loss_fn(), train_op=train_op)

    one, two = make(tmp_path / "1", None, fn), make(tmp_path / "2", mirrored(2), fn)
    one.train(data(8), steps=4)
    two.train(data(4), steps=4)
    close(values(one), values(two), rtol=1e-5, atol=1e-6)
    assert one.get_variable_value("global_step") == 4


def test_variables_of_one_name_are_numbered_and_found_again(tmp_path):
    def fn(features, mode):
        kept = [uni.Variable(float(i), name="w") for i in range(3)]
        if mode == PREDICT:
            return E.EstimatorSpec(mode, predictions=features + sum(kept))
        loss = sum(kept) * jnp.mean(features)
        train_op = E.minimize(optax.sgd(1.0), loss, var_list=kept[1:])
        return E.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn():
        return uni.data.Dataset.from_tensor_slices(np.ones(2, "float32")).batch(2)

    estimator = make(tmp_path, None, fn)
    estimator.train(input_fn)
    assert estimator.get_variable_names() == [
        "global_step", "optimizer/iterations", "w", "w_1", "w_2",
    ]  # fmt: skip
    found = [float(estimator.get_variable_value(n)) for n in ("w", "w_1", "w_2")]
    assert found == [0.0, 0.0, 1.0]
    assert list(estimator.predict(input_fn)) == [2.0, 2.0]


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


def test_train_and_evaluate_evaluates_checkpoints_and_exports(tmp_path):
    evaluated = []

    class Hook(E.SessionRunHook):
        def begin(self):
            evaluated.append("begin")

    receiver = E.export.build_raw_serving_input_receiver_fn({"x": X})
    exporters = [
        E.LatestExporter("latest", receiver, 2),
        E.FinalExporter("final", receiver),
    ]
    estimator = make(tmp_path, mirrored(2), save_checkpoints_steps=4)
    train = E.TrainSpec(data(4), max_steps=10)
    evaluation = E.EvalSpec(
        data(4, repeat=False),
        steps=None,
        hooks=[Hook()],
        exporters=exporters,
        start_delay_secs=0,
        throttle_secs=0,
    )
    result, exports = E.train_and_evaluate(estimator, train, evaluation)
    assert result["global_step"] == 10
    assert len(evaluated) == 3  # After steps 4, 8 and 10.
    assert len(os.listdir(tmp_path / "export" / "latest")) == 2
    loaded = uni.saved_model.load(exports[1])
    found = loaded.signatures["serving_default"]({"x": X})
    wanted = [p["y"] for p in estimator.predict(data(48, repeat=False))]
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-5, atol=1e-6)
    # Throttled: only at the end.
    del evaluated[:]
    throttled = dataclasses.replace(evaluation, throttle_secs=600, start_delay_secs=600)
    E.train_and_evaluate(estimator, E.TrainSpec(data(4), max_steps=20), throttled)
    assert len(evaluated) == 1


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


def nan_at(step):
    def fn(features, mode):
        w = uni.Variable(1.0, name="w")
        done = uni.train.get_global_step().value()
        loss = jnp.where(done >= step, jnp.nan, 1.0) * w * jnp.mean(features)
        return E.EstimatorSpec(
            mode, loss=loss, train_op=E.minimize(optax.sgd(0.1), loss)
        )

    return fn


def test_a_loss_that_is_no_number_ends_training_before_it_is_saved(tmp_path):
    def input_fn():
        return uni.data.Dataset.from_tensors(np.ones(2, "float32")).repeat()

    estimator = make(tmp_path, None, nan_at(3), save_checkpoints_steps=2)
    with pytest.raises(E.NanLossDuringTrainingError, match="NaN loss"):
        estimator.train(input_fn, steps=6)
    assert estimator.get_variable_value("global_step") == 2
    hook = E.NanTensorHook(fail_on_nan_loss=True)
    estimator = make(tmp_path / "hook", None, nan_at(3))
    with pytest.raises(E.NanLossDuringTrainingError):
        estimator.train(input_fn, steps=6, hooks=[hook])


# What goes wrong is said.


def test_a_spec_needs_what_its_mode_needs():
    with pytest.raises(ValueError, match="Missing loss"):
        E.EstimatorSpec(TRAIN)
    with pytest.raises(ValueError, match="Missing train_op"):
        E.EstimatorSpec(TRAIN, loss=1.0)
    with pytest.raises(ValueError, match="Missing predictions"):
        E.EstimatorSpec(PREDICT)
    with pytest.raises(ValueError, match="Loss must be scalar"):
        E.EstimatorSpec(EVAL, loss=jnp.ones(3))
    with pytest.raises(TypeError, match="train_op must be"):
        E.EstimatorSpec(TRAIN, loss=1.0, train_op=3)
    with pytest.raises(TypeError, match="must be a dict"):
        E.EstimatorSpec(EVAL, loss=1.0, eval_metric_ops=[1])
    with pytest.raises(TypeError, match="SessionRunHook"):
        E.EstimatorSpec(EVAL, loss=1.0, evaluation_hooks=[1])
    with pytest.raises(ValueError, match="mode must be one of"):
        E.EstimatorSpec("other", loss=1.0)


def test_a_configuration_is_checked_and_replaced():
    assert E.RunConfig().save_checkpoints_secs == 600
    assert E.RunConfig(save_checkpoints_steps=5).save_checkpoints_secs is None
    changed = E.RunConfig(save_checkpoints_secs=5).replace(save_checkpoints_steps=7)
    assert (changed.save_checkpoints_steps, changed.save_checkpoints_secs) == (7, None)
    with pytest.raises(ValueError, match="cannot be both set"):
        E.RunConfig(save_checkpoints_steps=1, save_checkpoints_secs=1)
    with pytest.raises(ValueError, match="should be > 0"):
        E.RunConfig(save_checkpoints_steps=0)
    with pytest.raises(TypeError, match="must be a strategy"):
        E.RunConfig(train_distribute="mirrored")
    with pytest.raises(ValueError, match="not supported"):
        E.RunConfig().replace(colour="red")


def test_functions_with_other_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="must include features"):
        E.Estimator(lambda x: x)
    with pytest.raises(ValueError, match="does not include params"):
        E.Estimator(lambda features: 0, params={"a": 1})
    with pytest.raises(ValueError, match="not expected args"):
        E.Estimator(lambda features, colour: 0)
    with pytest.raises(ValueError, match="different values"):
        E.Estimator(model_fn, "a", E.RunConfig(model_dir="b"))
    unlabelled = make(tmp_path, None, lambda features, mode: None)
    with pytest.raises(ValueError, match="does not take labels"):
        unlabelled.train(data(8))
    silent = make(tmp_path, None, lambda features, labels: None)
    with pytest.raises(ValueError, match="should return an EstimatorSpec"):
        silent.train(data(8))


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


def test_a_model_that_has_changed_is_told_from_its_checkpoint(tmp_path):
    make(tmp_path).train(data(8), steps=1)

    def other(features, labels, mode, params):
        uni.Variable(1.0, name="new")
        return model_fn(features, labels, mode, params)

    with pytest.raises(uni.errors.NotFoundError, match="Has the model changed"):
        make(tmp_path, None, other).evaluate(data(8), steps=1)


def test_a_variable_that_the_model_function_did_not_make_is_refused(tmp_path):
    outer = uni.Variable(1.0)

    def fn(features, mode):
        loss = outer * jnp.mean(features)
        train_op = E.minimize(optax.sgd(0.1), loss, [outer])
        return E.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn():
        return uni.data.Dataset.from_tensors(np.ones(2, "float32"))

    with pytest.raises(ValueError, match="inside the model_fn"):
        make(tmp_path, None, fn).train(input_fn)


@hypothesis.given(st.text("ab./S_0", min_size=1, max_size=12))
def test_names_are_found_again_in_the_keys_of_checkpoints(name):
    assert checkpointing.name_of(checkpointing.key_of(name)) == name
