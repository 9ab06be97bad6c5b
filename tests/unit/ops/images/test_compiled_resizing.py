"""The program that resizes photos gives NumPy's numbers, and only where it can run."""

import gc
import os
import threading

import jax
import numpy as np
import pytest

import unisono as tf
from unisono._src.foundation import ambient, jax_internals
from unisono._src.input.plan import elements
from unisono._src.ops.host import host_programs
from unisono._src.ops.images import compiled_resizing, resizing, sampling


@pytest.fixture(autouse=True)
def in_dataset(monkeypatch):
    """Resizes as in a dataset's function, and compiles for the second image."""
    monkeypatch.setattr(host_programs, "WORTH", 1)
    clear()
    before = ambient.enter_dataset(True)
    yield
    ambient.enter_dataset(before)
    clear()


def clear():
    resizing._programs.clear()
    compiled_resizing.find.cache_clear()


@pytest.fixture
def runs(monkeypatch):
    """Returns a list with the shape of each image that a program was run for."""
    made = []
    compile_program = host_programs.Program._compile

    def compile_noting(program, image):
        found = compile_program(program, image)
        if found is not None:
            program.compiled = lambda x: made.append(x.shape) or found(x)
        return program.compiled

    monkeypatch.setattr(host_programs.Program, "_compile", compile_noting)
    return made


def photo(*shape, dtype=np.uint8):
    return np.random.default_rng(3).integers(0, 256, shape).astype(dtype)


def with_numpy(image, size):
    taps = sampling.linear(image.shape[0], size[0])
    x = sampling.spread(sampling.linear(image.shape[1], size[1]), image.shape[2])
    flat = image.reshape(1, len(image), -1)
    return resizing._combine_linearly(np, flat, taps, x).reshape(*size, image.shape[2])


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((375, 500, 3), (224, 224)),
        ((99, 331, 1), (331, 99)),
        ((120, 97, 4), (359, 211)),
        ((1, 40_000, 3), (1, 31)),
    ],
)
def test_the_program_gives_the_numbers_of_numpy_to_the_last_bit(runs, shape, size):
    image = photo(*shape)
    first, second, third = (tf.image.resize(image, size) for _ in range(3))
    assert runs == [shape] * 2
    for found in (first, second, third):
        np.testing.assert_array_equal(found, with_numpy(image, size))


def test_a_resized_photo_may_be_changed_and_is_no_other_s(runs):
    image = photo(100, 120, 3)
    wanted = with_numpy(image, (50, 60))
    _, first, second = (tf.image.resize(image, [50, 60]) for _ in range(3))
    np.asarray(first)[:] = -1
    gc.collect()
    np.testing.assert_array_equal(second, wanted)
    np.testing.assert_array_equal(tf.image.resize(image, [50, 60]), wanted)
    assert (np.asarray(first) == -1).all()


def test_the_memory_of_a_resized_photo_outlives_all_but_its_views(runs):
    image = photo(100, 120, 3)
    rows = [tf.image.resize(image, [50, 60])[7] for _ in range(20)]
    wanted = with_numpy(image, (50, 60))[7]
    for row in rows:
        np.testing.assert_array_equal(row, wanted)


def test_an_empty_batch_has_no_images():
    for _ in range(2):
        found = tf.image.resize(photo(0, 100, 120, 3), [50, 60])
        assert found.shape == (0, 50, 60, 3)


def test_images_of_one_batch_are_resized_one_by_one(runs):
    images = photo(3, 100, 120, 3)
    found = tf.image.resize(images, [50, 60])
    assert len(runs) == 3
    for image, made in zip(images, found, strict=True):
        np.testing.assert_array_equal(made, with_numpy(image, (50, 60)))


@pytest.mark.parametrize(
    ("image", "options"),
    [
        (photo(8, 8, 3), {}),
        (photo(100, 120, 3, dtype=np.float32), {}),
        (photo(100, 120, 3), {"method": "nearest"}),
        (photo(100, 120, 3), {"antialias": True}),
    ],
)
def test_numpy_resizes_what_the_program_is_not_for(runs, image, options):
    for _ in range(3):
        tf.image.resize(image, [4, 4], **options)
    assert not runs


def test_a_function_that_jax_traces_compiles_no_program_and_uses_a_compiled_one(runs):
    image = photo(100, 120, 3)
    wanted = with_numpy(image, (50, 60))
    tf.image.resize(image, [50, 60])
    for count in (0, 2):
        traced = jax.jit(lambda x: x + np.asarray(tf.image.resize(image, [50, 60])))
        np.testing.assert_array_equal(traced(0), wanted)
        assert len(runs) == count
        np.testing.assert_array_equal(tf.image.resize(image, [50, 60]), wanted)


def test_numpy_resizes_where_jax_is_told_to_compile_nothing(runs):
    image = photo(100, 120, 3)
    for _ in range(3):
        tf.image.resize(image, [50, 60])
    with jax.disable_jit():
        found = tf.image.resize(image, [50, 60])
    np.testing.assert_array_equal(found, with_numpy(image, (50, 60)))


@pytest.mark.parametrize("size", [[50.0, 60.0], [True, True], [0, 60], [50], "ab"])
def test_a_size_is_refused_also_where_a_program_is_ready(runs, size):
    image = elements.present(photo(100, 120, 3))
    for _ in range(3):
        tf.image.resize(image, [50, 60])
        tf.image.resize(image, [1, 1])
    runs.clear()
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        tf.image.resize(image, size)
    assert not runs


def test_other_options_do_not_take_the_program_of_a_size(runs):
    image = elements.present(photo(100, 120, 3))
    for _ in range(3):
        tf.image.resize(image, [50, 60])
    runs.clear()
    nearest = tf.image.resize(image, [50, 60], "nearest")
    assert nearest.dtype == np.uint8
    assert tf.image.resize(image, [50, 60], antialias=True).dtype == np.float32
    assert tf.image.resize(tf.cast(image, tf.float32), [50, 60]).shape == (50, 60, 3)
    assert not runs


def test_numpy_resizes_where_jax_is_told_to_refuse_transfers():
    image = photo(100, 120, 3)
    with jax.transfer_guard("disallow_explicit"):
        for _ in range(3):
            found = tf.image.resize(image, [50, 60])
    np.testing.assert_array_equal(found, with_numpy(image, (50, 60)))


def test_numpy_resizes_if_jax_can_make_no_cpu(monkeypatch, runs):
    monkeypatch.setattr(jax_internals, "find_missing", lambda _: ["x"])
    for _ in range(3):
        tf.image.resize(photo(100, 120, 3), [50, 60])
    assert not runs


def test_threads_resize_photos_of_two_sizes_at_once():
    images = [photo(100, 120, 3), photo(120, 100, 3)]
    wanted = [with_numpy(image, (50, 60)) for image in images]
    mistakes = []

    def work(number):
        ambient.enter_dataset(True)
        for _ in range(20):
            found = tf.image.resize(images[number % 2], [50, 60])
            if not np.array_equal(found, wanted[number % 2]):
                mistakes.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not mistakes


def test_the_cpu_of_datasets_is_none_of_the_program_s_devices(monkeypatch):
    monkeypatch.setenv("PJRT_NPROC", "3")
    host_programs._make_device.cache_clear()
    device = host_programs.find_device()
    assert device.platform == "cpu" and device not in jax.devices()
    assert device is host_programs.find_device()
    assert os.environ["PJRT_NPROC"] == "3"
