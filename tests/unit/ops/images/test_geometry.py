"""Flipped photos have the same bits in reverse order, whoever moves them."""

import threading

import numpy as np
import pytest

import unisono as tf
from unisono._src.foundation import ambient
from unisono._src.ops.images import geometry


@pytest.fixture(autouse=True)
def in_dataset(monkeypatch):
    """Flips as in a dataset's function, and compiles for the second image."""
    monkeypatch.setattr(geometry, "WORTH", 1)
    geometry._find_flip.cache_clear()
    before = ambient.enter_dataset(True)
    yield
    ambient.enter_dataset(before)
    geometry._find_flip.cache_clear()


@pytest.mark.parametrize(
    "dtype", ["uint8", "int16", "float16", "float32", "int32", "float64", "int64"]
)
@pytest.mark.parametrize(
    "shape", [(120, 97, 3), (1, 40_000, 1), (40_000, 1, 1), (99, 120, 4), (1, 1, 3)]
)
def test_a_flipped_image_has_the_same_bits(shape, dtype):
    # All bits, those of NaN, too.
    size = np.dtype(dtype).itemsize * np.prod(shape)
    image = np.random.default_rng(0).integers(0, 256, size, np.uint8).view(dtype)
    image = image.reshape(shape)
    for _ in range(3):
        found = np.asarray(tf.image.flip_left_right(image))
        assert found.dtype == image.dtype and found.flags.writeable
        assert found.tobytes() == image[:, ::-1].tobytes()
        assert not np.shares_memory(found, image)


def test_images_of_a_batch_and_parts_of_an_image_are_flipped():
    images = np.random.default_rng(0).random((2, 120, 100, 3), np.float32)
    for given in (images, images[0, ::2], images[1, :, 3:-3], images[0].T):
        wanted = given[..., ::-1, :]
        for _ in range(3):
            np.testing.assert_array_equal(tf.image.flip_left_right(given), wanted)


def test_a_flipped_image_may_be_changed_without_the_one_before_it():
    image = np.random.default_rng(0).random((120, 100, 3), np.float32)
    made = [np.asarray(tf.image.flip_left_right(image)) for _ in range(3)]
    made[1][:] = 0
    for other in (made[0], made[2]):
        np.testing.assert_array_equal(other, image[:, ::-1])


def test_threads_flip_images_of_two_sizes_at_once():
    rng = np.random.default_rng(0)
    images = [rng.random(shape, np.float32) for shape in ((120, 100, 3), (90, 150, 3))]
    mistakes = []

    def work(number):
        ambient.enter_dataset(True)
        image = images[number % 2]
        for _ in range(20):
            if not np.array_equal(tf.image.flip_left_right(image), image[:, ::-1]):
                mistakes.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not mistakes
