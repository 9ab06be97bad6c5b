"""Programs of Keras 2 save to paths of their own, and find what they saved."""

import numpy as np
import pytest

import unisono as tf

keras = pytest.importorskip("keras")
tf.keras.layers  # noqa: B018  The methods of `tf.keras` are there from now on.


def make_model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def are_equal(model, other):
    pairs = zip(model.get_weights(), other.get_weights(), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


X, Y = np.ones((4, 2), "f4"), np.zeros((4, 1), "f4")


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("a/x.tf", "x.weights.h5"),
        ("a/x", "x.weights.h5"),
        ("a/x.h5", "x.weights.h5"),
        ("a/x-0001.ckpt", "x-0001.ckpt.weights.h5"),
    ],
)
def test_weights_are_found_by_the_path_they_were_saved_to(tmp_path, path, file):
    model, other = make_model(), make_model()
    with pytest.warns(UserWarning, match=f"saved as .*{file}") as told:
        model.save_weights(tmp_path / path, save_format="tf")
    assert told[0].filename == __file__
    assert [x.name for x in (tmp_path / "a").iterdir()] == [file]
    other.load_weights(tmp_path / path)
    assert are_equal(model, other)


def test_paths_of_keras_3_are_left_alone(tmp_path):
    model, other = make_model(), make_model()
    model.save_weights(tmp_path / "x.weights.h5")
    model.save_weights(tmp_path / "y.weights.json", max_shard_size=1)
    other.load_weights(tmp_path / "x.weights.h5")
    assert are_equal(model, other)
    with pytest.raises(ValueError, match="File format not supported"):
        other.load_weights(tmp_path / "missing")


def test_a_checkpoint_of_weights_goes_on_from_the_latest(tmp_path):
    model, other = make_model(), make_model()
    with pytest.warns(UserWarning, match=r"cp-\{epoch:04d\}\.ckpt\.weights\.h5"):
        saver = keras.callbacks.ModelCheckpoint(
            str(tmp_path / "cp-{epoch:04d}.ckpt"), save_weights_only=True
        )
    model.fit(X, Y, epochs=2, verbose=0, callbacks=[saver])
    latest = tf.train.latest_checkpoint(tmp_path)
    assert latest == str(tmp_path / "cp-0002.ckpt.weights.h5")
    other.load_weights(latest)
    assert are_equal(model, other)


@pytest.mark.parametrize("path", ["model", "model.tf"])
def test_a_checkpoint_of_models_without_an_ending_is_a_directory(tmp_path, path):
    model = make_model()
    saver = keras.callbacks.ModelCheckpoint(str(tmp_path / path), options=object())
    model.fit(X, Y, epochs=2, verbose=0, callbacks=[saver])
    assert (tmp_path / path).is_dir()
    assert are_equal(model, keras.models.load_model(tmp_path / path))


def test_a_checkpoint_with_an_ending_of_keras_3_is_keras_own(tmp_path):
    model = make_model()
    saver = keras.callbacks.ModelCheckpoint(tmp_path / "m.keras", "loss", 0, False)
    model.fit(X, Y, verbose=0, callbacks=[saver])
    assert are_equal(model, keras.models.load_model(tmp_path / "m.keras"))
