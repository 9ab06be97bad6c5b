"""Small models, data and estimators for the tests of this folder."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as uni
from tests import machine

E = uni.estimator
TRAIN, EVAL, PREDICT = E.ModeKeys.TRAIN, E.ModeKeys.EVAL, E.ModeKeys.PREDICT

rng = np.random.default_rng(0)
X = rng.normal(size=(48, 3)).astype("float32")
Y = X @ np.array([1.0, 2.0, -1.0], "float32") + 0.5
ROWS = np.arange(1.0, 9.0, dtype="float32").reshape(8, 1)


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


def weight_fn(features, mode):
    w = uni.Variable(1.0, name="w")
    if mode == PREDICT:
        return E.EstimatorSpec(mode, predictions=features[:, 0] * w.value())
    loss = w * jnp.mean(features)
    return E.EstimatorSpec(mode, loss=loss, train_op=E.minimize(optax.adam(0.1), loss))


def four_batches():
    return uni.data.Dataset.from_tensor_slices(ROWS).batch(2)


def make_small(directory, fn=weight_fn, **config):
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
        make_small(directory, save_checkpoints_steps=step).train(
            four_batches, saving_listeners=[KilledAfterSave(step)]
        )
