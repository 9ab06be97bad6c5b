"""Datasets of directories have the files of Keras, in its order."""

import importlib

import pytest

import unisono as tf
from unisono import keras

make = keras.utils.text_dataset_from_directory


@pytest.fixture
def folder(tmp_path):
    for name in ("good", "bad"):
        (tmp_path / name / "more").mkdir(parents=True)
        for i in range(5):
            (tmp_path / name / f"{i}.txt").write_text(f"{name} {i}\n")
        (tmp_path / name / "more" / "Z.TXT").write_text("below")
        (tmp_path / name / "left.out").touch()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "top.txt").write_text("top")
    return tmp_path


@pytest.mark.parametrize("labels", ["inferred", None])
@pytest.mark.parametrize("shuffle", [True, False])
def test_files_and_classes_are_those_of_keras(folder, labels, shuffle):
    utils = importlib.import_module("keras.src.utils.dataset_utils")
    paths, numbers, names = utils.index_directory(
        str(folder), labels, (".txt",), shuffle=shuffle, seed=5, verbose=False
    )
    made = make(folder, labels, shuffle=shuffle, seed=5, batch_size=None)
    assert (made.file_paths, made.class_names) == (paths, names)
    if not shuffle and labels:
        assert [int(y) for _, y in made] == numbers.tolist()


def test_a_part_is_kept_for_validation(folder):
    arguments = {"seed": 1, "validation_split": 0.25, "verbose": False}
    training, validation = make(folder, subset="both", **arguments)
    assert len(training.file_paths) == 9 and len(validation.file_paths) == 3
    for subset, part in (("training", training), ("validation", validation)):
        assert make(folder, subset=subset, **arguments).file_paths == part.file_paths
    assert not {*training.file_paths} & {*validation.file_paths}


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("int", ("int32", [0, 1])),
        ("binary", ("float32", [[0.0], [1.0]])),
        ("categorical", ("float32", [[1.0, 0.0], [0.0, 1.0]])),
    ],
)
def test_labels_have_their_mode(folder, mode, wanted):
    made = make(folder, label_mode=mode, shuffle=False, max_length=3, verbose=False)
    (texts, labels), *rest = made
    assert not rest
    assert (labels.dtype.name, labels[[0, -1]].tolist()) == wanted
    assert texts[[0, -1]].tolist() == [b"bad", b"bel"]


def test_classes_have_the_given_order(folder):
    made = make(folder, class_names=["good"], shuffle=False, verbose=False)
    assert made.class_names == ["good"] and len(made.file_paths) == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"label_mode": "x"}, "label_mode"),
        ({"labels": "x"}, "`labels`"),
        ({"labels": [1]}, "len"),
        ({"class_names": ["x"]}, "did not match"),
        ({"labels": None, "class_names": ["good"]}, "class_names"),
        ({"class_names": ["good"], "label_mode": "binary"}, "exactly 2"),
        ({"validation_split": 2, "subset": "both"}, "between 0 and 1"),
        ({"validation_split": 0.5}, "subset"),
        ({"validation_split": 0.5, "subset": "x", "seed": 1}, "subset"),
        ({"validation_split": 0.5, "subset": "both"}, "seed"),
        ({"validation_split": 0.01, "subset": "both", "seed": 1}, "No training files"),
        ({"format": "grain"}, "format"),
    ],
)
def test_arguments_that_do_not_fit_are_told(folder, arguments, said):
    with pytest.raises(ValueError, match=said):
        make(folder, verbose=False, **arguments)


def test_images_are_read_in_one_size(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for i, name in enumerate(("cat", "dog")):
        (tmp_path / name).mkdir()
        image.new("RGB", (6, 4), (100 * i, 50, 7)).save(tmp_path / name / "a.png")
    made = keras.preprocessing.image_dataset_from_directory(
        tmp_path, image_size=(2, 3), shuffle=False, verbose=False
    )
    (images, labels), *rest = made
    assert not rest and images.shape == (2, 2, 3, 3)
    assert images[1, 0, 0].tolist() == [100.0, 50.0, 7.0]
    assert labels.tolist() == [0, 1] and made.class_names == ["cat", "dog"]
    for more in (
        {"data_format": "channels_first"},
        {"crop_to_aspect_ratio": True},
        {"pad_to_aspect_ratio": True},
    ):
        made = keras.utils.image_dataset_from_directory(
            tmp_path, image_size=2, color_mode="grayscale", verbose=False, **more
        )
        shape = (2, 1, 2, 2) if "data_format" in more else (2, 2, 2, 1)
        assert next(iter(made))[0].shape == shape
    for wrong in ({"color_mode": "x"}, {"interpolation": "x"}, {"image_size": (1,)}):
        with pytest.raises(ValueError):
            keras.utils.image_dataset_from_directory(tmp_path, **wrong)


@pytest.mark.parametrize("name", ["StringLookup", "IntegerLookup", "TextVectorization"])
def test_layers_that_need_tensorflow_name_the_tables(name):
    with pytest.raises(AttributeError, match=r"lookup\.StaticHashTable"):
        getattr(tf.keras.layers, name)
