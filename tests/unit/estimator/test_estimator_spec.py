"""What a model function returns is checked."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as uni
from tests.unit.estimator.models import (
    EVAL,
    PREDICT,
    TRAIN,
    make,
)

E = uni.estimator


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
