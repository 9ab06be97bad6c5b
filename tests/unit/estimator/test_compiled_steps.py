"""The steps of a model function on several replicas."""

import jax.numpy as jnp
import optax

import unisono as uni
from tests.unit.estimator.models import (
    close,
    data,
    make,
    mirrored,
    values,
)

E = uni.estimator


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
        return uni.data.Dataset.range(8).map(lambda x: x / 1).batch(2)

    make(tmp_path, mirrored(2), fn).train(input_fn, hooks=[Hook()])
    assert losses == [1.5, 5.5]


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
