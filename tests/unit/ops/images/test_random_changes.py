import numpy as np
import pytest

import unisono as tf
from unisono._src.foundation import ambient

IMAGE = np.random.RandomState(0).rand(6, 5, 3).astype(np.float32)
CHANGES = {
    "brightness": (0.3,),
    "contrast": (0.2, 1.8),
    "saturation": (0.2, 1.8),
    "hue": (0.3,),
    "flip_left_right": (),
    "flip_up_down": (),
}


def draw(name, is_on_host, **more):
    function = getattr(tf.image, f"random_{name}")
    before = ambient.enter_dataset(is_on_host)
    try:
        return np.asarray(function(IMAGE, *CHANGES[name], **more))
    finally:
        ambient.enter_dataset(before)


@pytest.mark.parametrize("name", CHANGES)
def test_both_bodies_draw_the_same_numbers_after_the_same_seed(name):
    given = []
    for is_on_host in (False, True):
        tf.random.set_seed(7)
        given.append([draw(name, is_on_host, seed=s) for s in (1, 1, 2, None, None)])
    np.testing.assert_allclose(given[0], given[1], rtol=1e-5, atol=1e-6)
    assert any(not np.array_equal(given[1][0], x) for x in given[1][1:])


def test_random_crops_are_all_crops():
    tf.random.set_seed(3)
    rows = np.arange(12).reshape(4, 3)
    data = tf.data.Dataset.from_tensors(rows).repeat(60)
    crops = data.map(lambda x: tf.image.random_crop(x, [3, 2]))
    wanted = [rows[i : i + 3, j : j + 2] for i in (0, 1) for j in (0, 1)]
    assert {x.tobytes() for x in crops} == {x.tobytes() for x in wanted}


def test_half_of_the_images_are_flipped():
    images = np.repeat(IMAGE[None], 200, axis=0)
    before = ambient.enter_dataset(True)
    try:
        flipped = tf.image.random_flip_left_right(images, seed=4)
    finally:
        ambient.enter_dataset(before)
    count = sum(not np.array_equal(x, IMAGE) for x in flipped)
    assert 70 < count < 130


def test_compiled_functions_draw_anew_at_each_call():
    @tf.function
    def crop(x):
        return tf.image.random_crop(x, [2, 2, 3])

    tf.random.set_seed(1)
    found = {np.asarray(crop(IMAGE)).tobytes() for _ in range(20)}
    assert len(found) > 3


def test_ranges_that_are_none_are_refused():
    with pytest.raises(ValueError, match="max_delta must be non-negative"):
        tf.image.random_brightness(IMAGE, -0.1)
    with pytest.raises(ValueError, match=r"at most 0\.5"):
        tf.image.stateless_random_hue(IMAGE, 0.7, seed=[1, 2])
    with pytest.raises(ValueError, match="upper must be > lower"):
        tf.image.random_contrast(IMAGE, 1.0, 0.5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="shape"):
        tf.image.stateless_random_saturation(IMAGE, 0.5, 1.5)
