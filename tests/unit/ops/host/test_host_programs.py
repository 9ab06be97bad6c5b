"""Programs for photos run once they are worth it, and leave the rest to NumPy."""

import threading

import numpy as np
import pytest

from unisono._src.ops.host import host_programs


@pytest.fixture(autouse=True)
def worth(monkeypatch):
    """Compiles for the third image."""
    monkeypatch.setattr(host_programs, "WORTH", 2)


def photos(count=1, side=120):
    return np.random.default_rng(0).random((count, side, side, 3), np.float32)


def test_a_program_runs_for_a_size_that_has_come_often_enough():
    program = host_programs.Program(lambda one, image: image + one, np.float32(1))
    image = photos()
    found = [program.run(image) for _ in range(4)]
    assert found[:2] == [None, None]
    for made in found[2:]:
        assert made is not None and made.flags.writeable
        np.testing.assert_array_equal(made, image + np.float32(1))


def test_images_of_a_batch_are_counted_and_computed_one_by_one():
    seen = []
    program = host_programs.Program(lambda x: seen.append(x.shape) or x[::-1])
    images = photos(3)
    np.testing.assert_array_equal(program.run(images), images[:, ::-1])
    assert seen == [(120, 120, 3)]


@pytest.mark.parametrize("count, side", [(5, 2), (0, 120)])
def test_numpy_computes_small_images_and_none(count, side):
    program = host_programs.Program(lambda x: x)
    assert [program.run(photos(count, side)) for _ in range(4)] == [None] * 4


def test_numpy_computes_while_another_thread_compiles():
    begun, done = threading.Event(), threading.Event()

    def compute(image):
        begun.set()
        assert done.wait(60)
        return image

    program = host_programs.Program(compute)
    images = photos(3)
    found = []
    thread = threading.Thread(target=lambda: found.append(program.run(images)))
    thread.start()
    assert begun.wait(60)
    assert program.run(images) is None
    done.set()
    thread.join()
    np.testing.assert_array_equal(found[0], images)
    np.testing.assert_array_equal(program.run(images), images)


def test_a_function_that_fails_is_told_and_tried_again():
    calls = []

    def fail_once(image):
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("not yet")
        return image

    program = host_programs.Program(fail_once)
    with pytest.raises(ValueError, match="not yet"):
        program.run(photos(3))
    np.testing.assert_array_equal(program.run(photos()), photos())
