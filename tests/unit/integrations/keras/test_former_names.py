"""What programs of ``tf.keras`` use and Keras 3 has renamed works as it did."""

import numpy as np
import pytest

import unisono as tf

keras = pytest.importorskip("keras")


def make_model():
    return tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])


def test_reductions_are_what_losses_take():
    wanted = {"NONE": [1.0, 4.0], "SUM": 5.0, "SUM_OVER_BATCH_SIZE": 2.5, "AUTO": 2.5}
    for name, value in wanted.items():
        reduction = getattr(tf.keras.losses.Reduction, name)
        loss = tf.keras.losses.MeanSquaredError(reduction=reduction)
        assert np.allclose(loss([[0.0], [0.0]], [[1.0], [2.0]]), value)


def test_former_methods_of_metrics_and_optimizers_work():
    metric = tf.keras.metrics.Mean()
    metric.update_state(4.0)
    metric.reset_states()
    assert float(metric.result()) == 0
    optimizer = tf.keras.optimizers.SGD(0.5)
    optimizer.lr = 0.25
    assert optimizer.lr.numpy() == optimizer.learning_rate.numpy() == 0.25


def test_names_of_keras_at_the_root_of_tensorflow_are_those_of_keras():
    assert tf.optimizers.Adam is keras.optimizers.Adam
    assert tf.metrics.AUC is keras.metrics.AUC
    assert tf.losses.Huber is keras.losses.Huber
    assert tf.initializers.Zeros is keras.initializers.Zeros


def test_compile_takes_metrics_from_the_root_of_tensorflow():
    model = make_model()
    given = [
        tf.metrics.Accuracy(),
        tf.metrics.BinaryAccuracy(threshold=0.25),
        tf.metrics.CategoricalAccuracy(),
        tf.metrics.MeanAbsoluteError(name="error"),
        tf.metrics.MeanSquaredError(),
        tf.metrics.RootMeanSquaredError(),
        tf.metrics.SparseCategoricalAccuracy(),
    ]
    model.compile("sgd", "mse", metrics=given)
    found = model.evaluate(np.zeros((2, 2)), np.zeros((2, 1)), verbose=0)
    assert len(found) == 1 + len(given)
    made = model.get_compile_config()["metrics"]
    assert made[1]["config"]["threshold"] == 0.25
    assert made[3]["config"]["name"] == "error"


def test_a_model_tells_the_specs_of_its_inputs_when_they_are_known():
    class Model(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = tf.keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

    model = Model()
    assert model.save_spec() is None
    model(np.zeros((4, 2), np.float32))
    (spec,), keywords = model.save_spec()
    assert spec == tf.TensorSpec([None, 2], tf.float32) and keywords == {}


@pytest.mark.parametrize("save", ["method", "function", "tf"])
def test_a_path_without_ending_is_a_directory_that_can_be_loaded(tmp_path, save):
    model, path = make_model(), tmp_path / "model"
    if save == "function":
        tf.keras.models.save_model(model, path)
    else:
        model.save(path, **({"save_format": "tf"} if save == "tf" else {}))
    assert [p.name for p in tmp_path.iterdir()] == ["model"] and path.is_dir()
    model.save(path)  # It replaces the model.
    loaded = tf.keras.models.load_model(path, options=object())
    x = np.ones((3, 2), np.float32)
    assert np.array_equal(loaded(x), model(x))


def test_a_directory_with_something_else_is_not_replaced(tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ValueError, match="something else"):
        make_model().save(tmp_path)
    assert (tmp_path / "notes").read_text() == "mine"


def test_an_unknown_ending_is_refused_by_keras(tmp_path):
    with pytest.raises(ValueError, match="Invalid filepath extension"):
        make_model().save(tmp_path / "model.pt")


def test_an_exported_model_is_told_to_be_loaded_with_the_other_function(tmp_path):
    module = tf.Module()
    module.v = tf.Variable(1.0)
    tf.saved_model.save(module, tmp_path / "model")
    with pytest.raises(ValueError, match=r"unisono\.saved_model\.load"):
        tf.keras.models.load_model(tmp_path / "model")


@pytest.mark.parametrize("loss", ["recorded", "function"])
def test_a_keras_optimizer_minimizes_with_a_tape_in_run(loss):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = make_model()
        optimizer = tf.keras.optimizers.SGD(0.5)
    before = model.weights[0].numpy()
    x = np.ones((1, 2), np.float32)

    def step():
        if loss == "function":
            optimizer.minimize(
                lambda: model(x)[0, 0], lambda: model.trainable_variables
            )
            return
        with tf.GradientTape() as tape:
            value = model(x)[0, 0]
        optimizer.minimize(value, model.trainable_variables, tape=tape)

    strategy.run(step)
    # The gradient is one on each of two replicas, and gradients are summed.
    assert np.allclose(model.weights[0].numpy(), before - 1.0)


def test_minimizing_a_recorded_loss_needs_its_tape():
    with pytest.raises(ValueError, match="`tape` is required"):
        tf.keras.optimizers.SGD(0.5).minimize(np.float32(1.0), [])
