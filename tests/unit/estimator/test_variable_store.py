"""Variables of a model function, which every call finds again."""

import jax.numpy as jnp
import numpy as np
import optax

import unisono as uni
from tests.unit.estimator.models import (
    PREDICT,
    make,
)

E = uni.estimator


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
