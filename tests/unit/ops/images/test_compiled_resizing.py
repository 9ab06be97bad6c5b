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
    monkeypatch.setattr(compiled_resizing, "FIRST", 1)
    monkeypatch.setattr(compiled_resizing, "MORE", 0)
    clear()
    before = ambient.enter_dataset(True)
    yield
    ambient.enter_dataset(before)
    clear()


def clear():
    resizing._resizers.clear()
    compiled_resizing.find_program.cache_clear()


@pytest.fixture
def runs(monkeypatch):
    """Returns a list with the shape of each image that a program was run for."""
    made = []
    run_one = compiled_resizing.Resizer.run_one

    def run_noting(resizer, image):
        found = run_one(resizer, image)
        if found is not None:
            made.append(image.shape)
        return found

    monkeypatch.setattr(compiled_resizing.Resizer, "run_one", run_noting)
    return made


@pytest.fixture
def compilations(monkeypatch):
    """Returns a list with the shapes that each program was compiled for."""
    made = []
    compile_program = host_programs.Program._compile

    def compile_noting(program, *arguments):
        made.append([a.shape for a in arguments])
        return compile_program(program, *arguments)

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
        ((1, 40_000, 3), (1, 9_000)),
        ((9_000, 1, 3), (5_600, 1)),
        # Half of the rows are needed, and less.
        ((400, 300, 3), (100, 90)),
        ((1_000, 300, 3), (100, 90)),
        # More numbers than the first capacity has.
        ((700, 900, 3), (650, 880)),
        ((1_400, 1_500, 3), (224, 224)),
        ((1, 1, 3), (90, 100)),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_the_program_gives_the_numbers_of_numpy_to_the_last_bit(
    runs, shape, size, dtype
):
    image = photo(*shape, dtype=dtype)
    first, second, third = (tf.image.resize(image, size) for _ in range(3))
    assert runs == [shape] * 2
    for found in (first, second, third):
        np.testing.assert_array_equal(found, with_numpy(image, size))


def test_a_resized_photo_may_be_changed_and_is_no_other_s(runs):
    image = photo(100, 120, 3)
    wanted = with_numpy(image, (90, 100))
    _, first, second = (tf.image.resize(image, [90, 100]) for _ in range(3))
    np.asarray(first)[:] = -1
    gc.collect()
    np.testing.assert_array_equal(second, wanted)
    np.testing.assert_array_equal(tf.image.resize(image, [90, 100]), wanted)
    assert (np.asarray(first) == -1).all()


def test_the_memory_of_a_resized_photo_outlives_all_but_its_views(runs):
    image = photo(100, 120, 3)
    rows = [tf.image.resize(image, [90, 100])[7] for _ in range(20)]
    wanted = with_numpy(image, (90, 100))[7]
    for row in rows:
        np.testing.assert_array_equal(row, wanted)


def test_an_empty_batch_has_no_images():
    for _ in range(2):
        found = tf.image.resize(photo(0, 100, 120, 3), [90, 100])
        assert found.shape == (0, 90, 100, 3)


def test_images_of_one_batch_are_resized_one_by_one(runs):
    images = photo(3, 100, 120, 3)
    found = tf.image.resize(images, [90, 100])
    assert len(runs) == 3
    for image, made in zip(images, found, strict=True):
        np.testing.assert_array_equal(made, with_numpy(image, (90, 100)))


@pytest.mark.parametrize(
    ("image", "options"),
    [
        (photo(100, 120, 3, dtype=np.int32), {}),
        (photo(100, 120, 3, dtype=np.float64), {}),
        (photo(100, 120, 3), {"method": "nearest"}),
        (photo(100, 120, 3), {"antialias": True}),
    ],
)
def test_numpy_resizes_what_the_program_is_not_for(runs, image, options):
    for _ in range(3):
        tf.image.resize(image, [90, 100], **options)
    assert not runs


def test_numpy_makes_small_images(runs):
    for _ in range(3):
        tf.image.resize(photo(500, 400, 3), [70, 70])
    assert not runs


def test_one_program_resizes_photos_of_all_sizes(runs, compilations):
    shapes = [(100 + 7 * i, 300 - 11 * i, 3) for i in range(12)]
    images = [photo(*shape) for shape in shapes]
    found = [tf.image.resize(image, [90, 100]) for image in images]
    assert len(compilations) == 1 and runs == shapes[1:]
    for image, made in zip(images, found, strict=True):
        np.testing.assert_array_equal(made, with_numpy(image, (90, 100)))


def test_what_the_largest_photo_has_left_behind_is_not_read(runs):
    large, small = photo(600, 500, 3), photo(2, 2, 3)
    for _ in range(3):
        tf.image.resize(large, [90, 100])
        found = tf.image.resize(small, [90, 100])
    assert len(runs) == 5
    np.testing.assert_array_equal(found, with_numpy(small, (90, 100)))


def test_parts_and_views_of_photos_are_resized(runs):
    whole = photo(200, 240, 3)
    for image in (whole[::2, 10:-10], whole[::-1, ::-1], whole.transpose(1, 0, 2)):
        for _ in range(3):
            found = tf.image.resize(image, [90, 100])
        copied = np.ascontiguousarray(image)
        np.testing.assert_array_equal(found, with_numpy(copied, (90, 100)))
    assert runs


def test_functions_that_draw_sizes_compile_few_programs(monkeypatch, compilations):
    monkeypatch.setattr(compiled_resizing, "FIRST", 4)
    monkeypatch.setattr(compiled_resizing, "MORE", 32)
    image = photo(100, 120, 3)
    for number in range(120):
        tf.image.resize(image, [90 + number % 20, 100])
    assert len(compilations) == 1


def test_numbers_that_are_not_finite_are_those_of_numpy(runs):
    image = photo(100, 120, 3, dtype=np.float32)
    image[3, 4], image[50, 60], image[70, 80] = np.nan, np.inf, -np.inf
    image[90, 10], image[91, 11] = 3e38, -3e38
    with np.errstate(all="ignore"):
        wanted = with_numpy(image, (90, 100))
    for _ in range(3):
        np.testing.assert_array_equal(tf.image.resize(image, [90, 100]), wanted)
    assert len(runs) == 2


def test_a_function_that_jax_traces_compiles_no_program_and_uses_a_compiled_one(runs):
    image = photo(100, 120, 3)
    wanted = with_numpy(image, (90, 100))
    tf.image.resize(image, [90, 100])
    for count in (0, 2):
        traced = jax.jit(lambda x: x + np.asarray(tf.image.resize(image, [90, 100])))
        np.testing.assert_array_equal(traced(0), wanted)
        assert len(runs) == count
        np.testing.assert_array_equal(tf.image.resize(image, [90, 100]), wanted)


def test_numpy_resizes_where_jax_is_told_to_compile_nothing(runs):
    image = photo(100, 120, 3)
    for _ in range(3):
        tf.image.resize(image, [90, 100])
    with jax.disable_jit():
        found = tf.image.resize(image, [90, 100])
    np.testing.assert_array_equal(found, with_numpy(image, (90, 100)))


@pytest.mark.parametrize("size", [[90.0, 100.0], [True, True], [0, 100], [90], "ab"])
def test_a_size_is_refused_also_where_a_program_is_ready(runs, size):
    image = elements.present(photo(100, 120, 3))
    for _ in range(3):
        tf.image.resize(image, [90, 100])
        tf.image.resize(image, [1, 1])
    runs.clear()
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        tf.image.resize(image, size)
    assert not runs


def test_other_options_do_not_take_the_program_of_a_size(runs):
    image = elements.present(photo(100, 120, 3))
    for _ in range(3):
        tf.image.resize(image, [90, 100])
    runs.clear()
    nearest = tf.image.resize(image, [90, 100], "nearest")
    assert nearest.dtype == np.uint8
    assert tf.image.resize(image, [90, 100], antialias=True).dtype == np.float32
    assert tf.image.resize(tf.cast(image, tf.float32), [90, 100]).shape == (90, 100, 3)
    assert not runs


def test_numpy_resizes_where_jax_is_told_to_refuse_transfers():
    image = photo(100, 120, 3)
    with jax.transfer_guard("disallow_explicit"):
        for _ in range(3):
            found = tf.image.resize(image, [90, 100])
    np.testing.assert_array_equal(found, with_numpy(image, (90, 100)))


def a_mesh(**options):
    return jax.set_mesh(jax.make_mesh((1,), ("x",), **options))


@pytest.mark.parametrize(
    "setting",
    [
        a_mesh,
        lambda: a_mesh(axis_types=(jax.sharding.AxisType.Explicit,)),
        lambda: jax.no_tracing(True),
        lambda: jax.debug_nans(True),
        lambda: jax.enable_x64(True),
    ],
)
def test_settings_of_jax_do_not_disturb_a_dataset(setting):
    image = photo(100, 120, 3, dtype=np.float32)
    image[40, 50] = np.nan
    with np.errstate(all="ignore"):
        wanted = with_numpy(image, (90, 100))
    with setting():
        for _ in range(3):
            found = tf.image.resize(image, [90, 100])
            np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(tf.image.resize(image, [90, 100]), wanted)


def test_numpy_resizes_if_jax_can_make_no_cpu(monkeypatch, runs):
    monkeypatch.setattr(jax_internals, "find_missing", lambda _: ["x"])
    for _ in range(3):
        tf.image.resize(photo(100, 120, 3), [90, 100])
    assert not runs


def test_threads_resize_photos_of_two_sizes_at_once():
    images = [photo(100, 120, 3), photo(120, 100, 3)]
    wanted = [with_numpy(image, (90, 100)) for image in images]
    mistakes = []

    def work(number):
        ambient.enter_dataset(True)
        for _ in range(20):
            found = tf.image.resize(images[number % 2], [90, 100])
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
