"""The loop of a training, which checks the loss."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as uni
from tests.unit.estimator.models import (
    make,
)

E = uni.estimator


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
