"""What workers are told to run with an estimator; as in `scenarios`."""

import jax.numpy as jnp
import numpy as np
import optax

import unisono as uni
from tests.multiprocess.scenarios import plain

E = uni.estimator
rng = np.random.default_rng(0)
X = rng.normal(size=(42, 3)).astype("float32")
Y = X @ np.array([1.0, 2.0, -1.0], "float32")


def model_fn(features, labels, mode):
    w = uni.Variable(jnp.zeros(3), name="w")
    found = features @ w
    if mode == E.ModeKeys.PREDICT:
        return E.EstimatorSpec(mode, predictions=found)
    loss = jnp.mean((found - labels) ** 2)
    ops = {"error": jnp.abs(found - labels)}
    train_op = E.minimize(optax.adam(0.1), loss)
    return E.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=ops)


def batches(repeat):
    def input_fn(input_context):
        found = uni.data.Dataset.from_tensor_slices((X, Y))
        found = (found.repeat() if repeat else found).batch(4)
        context = input_context
        return found.shard(context.num_input_pipelines, context.input_pipeline_id)

    return input_fn


def estimate(strategy, worker, directory, max_steps, save_secs=None):
    """Trains and evaluates; returns metrics, weights and a few predictions."""
    config = E.RunConfig(
        train_distribute=strategy,
        eval_distribute=strategy,
        save_checkpoints_steps=3 if save_secs is None else None,
        save_checkpoints_secs=save_secs,
    )
    estimator = E.Estimator(model_fn, directory, config)
    evaluation = E.EvalSpec(
        batches(False), steps=None, start_delay_secs=0, throttle_secs=0
    )
    results, _ = E.train_and_evaluate(
        estimator, E.TrainSpec(batches(True), max_steps=max_steps), evaluation
    )
    one = uni.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    found = list(estimator.predict(lambda: one))[:3]
    return plain([results, estimator.get_variable_value("w"), found])


def estimate_until_the_end(strategy, worker, directory):
    """Trains until one has no batch any more; returns the number of steps."""
    config = E.RunConfig(train_distribute=strategy)
    estimator = E.Estimator(model_fn, directory, config)
    estimator.train(batches(False))
    return int(estimator.get_variable_value("global_step"))


def estimate_and_export(strategy, worker, directory):
    """Exports in training and after; returns the directories and what they predict."""
    config = E.RunConfig(
        train_distribute=strategy, eval_distribute=strategy, save_checkpoints_steps=2
    )
    estimator = E.Estimator(model_fn, directory, config)
    receiver_fn = E.export.build_raw_serving_input_receiver_fn(X)
    evaluation = E.EvalSpec(
        batches(False),
        exporters=E.LatestExporter("latest", receiver_fn, 1),
        start_delay_secs=0,
        throttle_secs=0,
    )
    train = E.TrainSpec(batches(True), max_steps=4)
    _, (latest,) = E.train_and_evaluate(estimator, train, evaluation)
    made = estimator.export_saved_model(f"{directory}/own", receiver_fn)
    serve = uni.saved_model.load(made).signatures["serving_default"]
    wanted = X @ estimator.get_variable_value("w")
    return latest, made, bool(np.allclose(serve(X)["output"], wanted, atol=1e-5))
