"""Model functions that make a Keras model on every call."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as uni
from tests.integration.programs import examples, mirrored

keras = pytest.importorskip("keras")
E = uni.estimator
X, Y = examples(40, classes=2)


def data(batch, repeat=True):
    def input_fn():
        found = uni.data.Dataset.from_tensor_slices((X, Y))
        return (found.repeat() if repeat else found).batch(batch)

    return input_fn


def loss_of(logits, labels):
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


def keras_fn(features, labels, mode, params):
    layers = keras.layers
    first = layers.Dense(6, "tanh", kernel_initializer=keras.initializers.Constant(0.1))
    ones = keras.initializers.RandomNormal(seed=3)
    model = keras.Sequential([first, layers.Dense(2, kernel_initializer=ones)])
    logits = model(features, training=mode == E.ModeKeys.TRAIN)
    if mode == E.ModeKeys.PREDICT:
        return E.EstimatorSpec(mode, predictions=logits)
    loss = loss_of(logits, labels)
    if mode == E.ModeKeys.EVAL:
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        accuracy.update_state(labels, logits)
        ops = {"accuracy": accuracy, "mine": logits.argmax(-1) == labels}
        return E.EstimatorSpec(mode, loss=loss, eval_metric_ops=ops)
    if params["optimizer"] == "keras":
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        train_op = E.minimize(optimizer, loss, model.trainable_variables)
    else:
        train_op = E.minimize(optax.sgd(0.1, momentum=0.9), loss)
    return E.EstimatorSpec(mode, loss=loss, train_op=train_op)


def run(directory, replicas, fn, **params):
    strategy = mirrored(replicas)
    config = E.RunConfig(train_distribute=strategy, eval_distribute=strategy)
    estimator = E.Estimator(fn, directory, config, params or None)
    own = 8 // (replicas or 1)
    for _ in range(2):
        estimator.train(data(own), steps=3)
    results = estimator.evaluate(data(own, repeat=False))
    found = list(estimator.predict(data(16, repeat=False)))
    names = estimator.get_variable_names()
    return results, np.array(found), names


@pytest.mark.feature("V06", "V05")
def test_a_keras_model_made_in_the_model_function_is_one_model(tmp_path):
    wanted, predicted, names = run(tmp_path / "1", None, keras_fn, optimizer="optax")
    assert "sequential/dense/kernel" in names and "sequential/dense_1/bias" in names
    assert not [n for n in names if "dense_2" in n]
    assert wanted["global_step"] == 6
    assert wanted["accuracy"] == pytest.approx(wanted["mine"])
    for optimizer in ("optax", "keras"):
        found, same, _ = run(tmp_path / optimizer, 2, keras_fn, optimizer=optimizer)
        np.testing.assert_allclose(same, predicted, rtol=1e-4, atol=1e-5)
        assert found["accuracy"] == pytest.approx(wanted["accuracy"])
        assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-4)


def test_a_keras_model_made_in_the_model_function_takes_uneven_batches(tmp_path):
    config = E.RunConfig(train_distribute=mirrored(2), eval_distribute=mirrored(2))
    estimator = E.Estimator(keras_fn, tmp_path, config, {"optimizer": "keras"})
    estimator.train(data(12, repeat=False))  # 12 and 12, then 12 and 4.
    assert estimator.get_variable_value("global_step") == 2
    one = E.Estimator(keras_fn, tmp_path, None, {"optimizer": "keras"})
    found, wanted = (e.evaluate(data(12, repeat=False)) for e in (estimator, one))
    assert found["accuracy"] == pytest.approx(wanted["accuracy"])


def test_a_keras_optimizer_needs_to_know_the_variables():
    with pytest.raises(ValueError, match=r"model\.trainable_variables"):
        E.minimize(keras.optimizers.SGD(0.1), 1.0)


def test_a_flax_module_made_in_the_model_function_is_refused(tmp_path):
    nnx = pytest.importorskip("flax.nnx")

    def flax_fn(features, labels, mode):
        loss = loss_of(nnx.Linear(5, 2, rngs=nnx.Rngs(0))(features), labels)
        train_op = E.minimize(optax.sgd(0.1), loss)
        return E.EstimatorSpec(mode, loss=loss, train_op=train_op)

    with pytest.raises(ValueError, match="Flax module"):
        E.Estimator(flax_fn, tmp_path).train(data(8), steps=1)
