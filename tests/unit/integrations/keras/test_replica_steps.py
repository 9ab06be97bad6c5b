"""Models with `train_step(self, data)` train on every strategy as on TensorFlow."""

import gc
import json
from typing import Any

import keras
import numpy as np
import pytest
from jax.experimental import sparse

import unisono as tf
from tests.unit.integrations.keras import replica_programs as programs
from unisono._src.integrations.keras import replica_steps
from unisono._src.strategies import call_context

RECORDED = json.loads(programs.FILE.read_text())
Taped: Any = programs.make_taped(tf, keras)


def mirrored(replicas):
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def check(found, wanted, at=""):
    """Raises unless two structures have the same numbers."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), at
        for name in wanted:
            check(found[name], wanted[name], f"{at} {name}")
    elif isinstance(wanted, list) and wanted and isinstance(wanted[0], list | dict):
        assert len(found) == len(wanted), at
        for i, pair in enumerate(zip(found, wanted, strict=True)):
            check(*pair, f"{at} {i}")
    else:
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6, err_msg=at)


@pytest.mark.parametrize("replicas", programs.REPLICAS)
@pytest.mark.parametrize("program", programs.PROGRAMS, ids=lambda p: p.__name__)
def test_a_step_of_replicas_has_the_numbers_of_tensorflow(program, replicas):
    found = program(tf, keras, mirrored(replicas))
    check(found, RECORDED[str(replicas)][program.__name__])


def make(strategy, kind=None, **options):
    kind = kind or Taped
    with programs.scope_of(strategy):
        model = kind()
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], **options)
    return model


def train(model, **given):
    """Trains a model on whole batches, with a validation; returns its weights."""
    x, y = programs.examples(8)
    given = {"batch_size": 4, "epochs": 2, "shuffle": False, "verbose": 0, **given}
    model.fit(x, y, validation_data=(x, y), **given)
    return programs.weights_of(model)


@pytest.fixture(scope="module")
def wanted():
    """The weights that `train` gives on one replica."""
    return train(make(mirrored(1)))


@pytest.mark.parametrize(
    "strategy",
    [
        lambda: None,
        tf.distribute.get_strategy,
        lambda: tf.distribute.OneDeviceStrategy("CPU:1"),
        lambda: tf.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"]),
        lambda: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], state="sharded"),
    ],
    ids=["none", "default", "one device", "central", "sharded"],
)
def test_every_strategy_trains_to_the_same_weights(strategy, wanted):
    model = make(strategy())
    np.testing.assert_allclose(train(model), wanted, rtol=1e-5)
    # The other loops go on with these weights, and `fit` with what they leave.
    x, y = programs.examples(8)
    before = model.evaluate(x, y, verbose=0)
    assert model.predict(x, verbose=0).shape == (8, 1)
    model.fit(x, y, verbose=0)
    assert model.evaluate(x, y, verbose=0)[0] < before[0]


@pytest.mark.parametrize("replicas", [1, 4])
def test_an_eager_step_trains_to_the_same_weights(replicas, wanted):
    # A validation in Keras' own way lies between the epochs.
    model = make(mirrored(replicas), run_eagerly=True)
    np.testing.assert_allclose(train(model), wanted, rtol=1e-5)


def test_datasets_are_cut_into_the_same_parts(wanted):
    strategy = mirrored(2)
    model = make(strategy)
    x, y = programs.examples(8)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    model.fit(data, verbose=0)
    model.fit(strategy.experimental_distribute_dataset(data), verbose=0)
    np.testing.assert_allclose(programs.weights_of(model), wanted, rtol=1e-5)


def test_a_step_is_traced_once_for_each_shape():
    shapes = []

    class Counted(Taped):
        def train_step(self, data):
            shapes.append(data[0].shape)
            return super().train_step(data)

    model = make(mirrored(2), Counted)
    x, y = programs.examples(10)
    for _ in range(2):
        model.fit(x, y, batch_size=4, epochs=3, verbose=0)
    # The uneven batch is traced for each replica, and may be traced once more.
    assert shapes.count((2, 3)) <= 2 and len(shapes) <= 4


def test_weights_can_be_read_after_an_error_and_training_goes_on():
    class Failing(Taped):
        def train_step(self, data):
            if data[0].shape[0] == 1:
                raise ArithmeticError("mine")
            return super().train_step(data)

    model = make(mirrored(2), Failing)
    x, y = programs.examples(10)
    with pytest.raises(ArithmeticError, match="mine"):
        model.fit(x, y, batch_size=4, verbose=0)
    gc.collect()  # Keras' list of callbacks has a thread, which ends with the list.
    before = programs.weights_of(model)
    assert np.isfinite(before).all() and int(model.optimizer.iterations) == 2
    model.fit(x[:8], y[:8], batch_size=4, verbose=0)
    assert programs.weights_of(model) != before


def test_a_model_that_is_never_called_builds_itself_in_its_step():
    class Inner(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.dense(x) - y) ** 2)
            variables = self.dense.trainable_variables
            self.optimizer.minimize(loss, variables, tape=tape)
            return {"error": loss}

    strategy = mirrored(2)
    with strategy.scope():
        model = Inner()
        # Keras would call the model to build the loss.
        model.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = programs.examples(8)
    losses = model.fit(x, y, batch_size=8, epochs=9, verbose=0).history["error"]
    assert losses[-1] < losses[0]
    assert model.dense.kernel.distribute_strategy is strategy


def test_what_is_wrong_with_a_model_is_told_in_its_step():
    class Wrong(Taped):
        def call(self, x, training=False):
            raise ArithmeticError("mine")

    model = make(mirrored(2), Wrong)
    x, y = programs.examples(8)
    with pytest.raises(ArithmeticError, match="mine"):
        model.fit(x, y, verbose=0)
    gc.collect()  # As above.


def test_former_names_of_compiled_losses_and_metrics_work_in_a_step():
    class Former(Taped):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                found = self(x, training=True)
                added = self.losses
                loss = self.compiled_loss(y, found, regularization_losses=added)
            gradients = tape.gradient(loss, self.trainable_variables)
            pairs = zip(gradients, self.trainable_variables)
            self.optimizer.apply_gradients(pairs)
            self.compiled_metrics.update_state(y, found)
            return {m.name: m.result() for m in self.metrics}

    x, y = programs.examples(8)
    given = {"batch_size": 4, "shuffle": False, "verbose": 0}
    one, two = make(mirrored(1), Former), make(mirrored(2), Former)
    found = [m.fit(x, y, **given).history for m in (one, two)]
    check(found[1], found[0])
    check(programs.weights_of(two), programs.weights_of(one))
    plain = make(mirrored(1)).fit(x, y, **given).history
    assert found[0]["mae"] == pytest.approx(plain["mae"])


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_replica_without_examples_looks_up_no_rows(run_eagerly):
    strategy = mirrored(4)
    with strategy.scope():
        table = keras.layers.Embedding(3, 1, embeddings_initializer="ones")
        model = keras.Sequential([keras.Input((), dtype="int32"), table])
        rate, options = keras.optimizers.SGD(1.0), {"run_eagerly": run_eagerly}
        model.compile(rate, "mse", per_replica=True, **options)
    # Two of the four replicas have an example each, whose gradient is 2 / 4.
    model.fit(np.array([2, 2]), np.zeros((2, 1)), batch_size=4, verbose=0)
    np.testing.assert_allclose(model.get_weights()[0].ravel(), [1.0, 1.0, 0.0])


def test_a_sparse_batch_is_refused_on_several_replicas():
    topology = call_context.find_placement(mirrored(2)).topology
    with pytest.raises(TypeError, match="sparse batch"):
        replica_steps.cut_rows(sparse.BCOO.fromdense(np.eye(4)), topology)


def test_a_step_of_keras_on_jax_stays_what_it_is():
    class Pure(keras.Sequential):
        def train_step(self, state, data):
            logs, state = super().train_step(state, data)
            return {**logs, "more": 1.0}, state

    class Open(keras.Sequential):
        def train_step(self, *args):
            return super().train_step(*args)

    for kind in (Pure, Open):
        model = kind([keras.Input((3,)), keras.layers.Dense(1)])
        assert not replica_steps.is_for_replicas(model, "train_step")
        model.compile("sgd", "mse")
        x, y = programs.examples(8)
        model.fit(x, y, verbose=0)


def make_normalized(strategy, **options):
    with strategy.scope():
        layers = [keras.Input((3,)), keras.layers.BatchNormalization(momentum=0.0)]
        model = keras.Sequential([*layers, keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse", **options)
    return model


def test_batch_statistics_are_those_of_the_batch_unless_a_replica_s_are_asked_for():
    x = np.repeat([[0.0], [1.0]], 4, axis=0).astype("f4") * np.ones(3, "f4")
    variances = {}
    for per_replica in (False, True):
        model = make_normalized(mirrored(2), per_replica=per_replica)
        model.fit(x, x[:, :1], batch_size=8, shuffle=False, verbose=0)
        variances[per_replica] = np.asarray(model.layers[0].moving_variance)
    # The first replica has all zeros, the second all ones.
    np.testing.assert_allclose(variances[False], 0.25)
    np.testing.assert_allclose(variances[True], 0.0)
    # Compiled without it, the model trains on whole batches again.
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(x, x[:, :1], batch_size=8, shuffle=False, verbose=0)
    np.testing.assert_allclose(model.layers[0].moving_variance, 0.25)


def test_a_step_for_whole_batches_cannot_be_asked_to_run_on_replicas():
    class Pure(keras.Sequential):
        def train_step(self, state, data):
            return super().train_step(state, data)

    model = Pure([keras.Input((3,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match=r"train_step\(self, data\)"):
        model.compile("sgd", "mse", per_replica=True)
