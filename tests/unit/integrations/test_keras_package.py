"""`unisono.keras` gives Keras' own objects, and tells what became of the others."""

import importlib
import inspect
import pickle

import pytest

import unisono as tf
from unisono._src.integrations import keras_package, keras_renames

keras = pytest.importorskip("keras")


@pytest.mark.parametrize(
    "path",
    [
        "Sequential", "Input", "layers.Dense", "losses.SparseCategoricalCrossentropy",
        "callbacks.ModelCheckpoint", "optimizers.schedules.ExponentialDecay",
        "utils.set_random_seed", "datasets.mnist.load_data", "backend.epsilon",
        "mixed_precision.set_global_policy", "applications.resnet50.ResNet50",
        "__version__",
    ],
)  # fmt: skip
def test_a_name_of_keras_is_the_object_of_keras(path):
    found, expected = tf.keras, keras
    for name in path.split("."):
        found, expected = getattr(found, name), getattr(expected, name)
    assert found is expected


def test_modules_can_be_imported_by_every_form_of_import():
    import unisono.keras.optimizers.schedules as schedules

    import unisono.keras.layers
    from unisono import keras as package
    from unisono.keras.layers import Dense

    layers = importlib.import_module("unisono.keras.layers")
    assert Dense is layers.Dense is unisono.keras.layers.Dense is keras.layers.Dense
    assert schedules.CosineDecay is keras.optimizers.schedules.CosineDecay
    assert package is tf.keras
    names: dict = {}
    exec("from unisono.keras.losses import *", names)
    # Some layers need TensorFlow: a star leaves them out.
    exec("from unisono.keras.layers import *", names)
    assert names["Dense"] is unisono.keras.layers.Dense
    assert names["Huber"] is keras.losses.Huber
    assert pickle.loads(pickle.dumps(Dense)) is keras.layers.Dense
    assert {"Dense", "experimental"} <= set(dir(layers))
    assert {"Sequential", "layers", "callbacks"} <= set(dir(tf.keras))


@pytest.mark.parametrize(
    ("path", "now"),
    [
        ("optimizers.legacy.Adam", "optimizers.Adam"),
        ("optimizers.experimental.AdamW", "optimizers.AdamW"),
        ("layers.experimental.preprocessing.Rescaling", "layers.Rescaling"),
        ("experimental.CosineDecay", "optimizers.schedules.CosineDecay"),
        ("backend.mean", "ops.mean"),
        ("losses.mse", "losses.mean_squared_error"),
    ],
)
def test_a_name_that_keras_3_has_elsewhere_is_found(path, now):
    found, expected = tf.keras, keras
    for name in path.split("."):
        found = getattr(found, name)
    for name in now.split("."):
        expected = getattr(expected, name)
    assert found is expected


def test_names_that_only_tensorflow_adds_are_found():
    image = tf.keras.preprocessing.image
    assert image.ImageDataGenerator.__module__.startswith("keras.")
    assert tf.keras.preprocessing.text.Tokenizer(5).num_words == 5


def test_functions_of_the_backend_have_the_defaults_that_they_had():
    former = importlib.import_module("keras._tf_keras.keras.backend")
    for name in keras_renames.OPERATIONS:
        old = list(inspect.signature(getattr(former, name)).parameters.values())
        new = list(inspect.signature(getattr(keras.ops, name)).parameters.values())
        for before, after in zip(old, new):
            is_required = before.default is inspect.Parameter.empty
            assert is_required or before.default == after.default, name


@pytest.mark.parametrize("path", sorted(keras_renames.TOLD))
def test_a_name_that_is_nowhere_is_told_with_what_to_write(path):
    told = keras_package.find_replacement(path)
    assert told is not None and f"tf.keras.{path}" in told
    owner, _, name = path.rpartition(".")
    if name.startswith("__") or path.count(".") > 1:
        return
    module = importlib.import_module(f"unisono.keras.{owner}".rstrip("."))
    with pytest.raises(AttributeError) as error:
        getattr(module, name)
    assert str(error.value) == told
    with pytest.raises(ImportError, match=r"^tf\.keras\."):
        exec(f"from {module.__name__} import {name}")


@pytest.mark.parametrize("name", ["Hashing", "StringLookup"])
def test_a_name_is_told_by_its_former_path_too(name):
    with pytest.raises(AttributeError, match="in the input pipeline"):
        getattr(tf.keras.layers.experimental.preprocessing, name)


def test_texts_and_numbers_are_hashed_as_keras_hashes_them():
    # Recorded from Hashing(3) of Keras on TensorFlow 2.21.
    texts = tf.data.Dataset.from_tensor_slices(["A", "B", "C", "D", "E"])
    made = texts.map(lambda x: tf.strings.to_hash_bucket_fast(x, 3))
    assert [x.item() for x in made.as_numpy_iterator()] == [1, 0, 1, 1, 2]
    made = tf.data.Dataset.range(5).map(
        lambda x: tf.strings.to_hash_bucket_fast(tf.strings.as_string(x), 3)
    )
    assert [x.item() for x in made.as_numpy_iterator()] == [1, 0, 1, 0, 2]


def test_an_unknown_name_says_which_keras_has_none():
    with pytest.raises(AttributeError, match=r"'Densee': Keras 3.* has none"):
        _ = tf.keras.layers.Densee
    with pytest.raises(ModuleNotFoundError, match=r"unisono\.keras\.nothing"):
        importlib.import_module("unisono.keras.nothing")
