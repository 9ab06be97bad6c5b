"""TensorFlow's answers and ours, for the module `host_functions`."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.unit.ops import everyday_programs


@pytest.mark.parametrize("wrong", [3.5, 300, np.float32([1.5])])
def test_a_result_of_another_kind_is_not_converted(wrong):
    def compute(x):
        return wrong

    spec = unisono.TensorSpec(np.shape(wrong), unisono.uint8)
    with pytest.raises(TypeError, match="does not fit Tout=uint8"):
        unisono.py_function(compute, [1], unisono.uint8)
    with pytest.raises(Exception, match="does not fit Tout=uint8"):
        unisono.function(lambda: unisono.py_function(compute, [1], spec))()
    # Eagerly TensorFlow's `numpy_function` does not look at `Tout`.
    found = unisono.numpy_function(compute, [1], unisono.uint8)
    np.testing.assert_array_equal(found, wrong)


def test_it_gives_what_tensorflow_gives():
    everyday_programs.check(unisono, "host_functions")


def test_a_compiled_step_calls_python_with_the_shape_it_was_told():
    spec = unisono.TensorSpec([3], unisono.int32)
    sort = unisono.function(lambda x: unisono.numpy_function(np.sort, [x], spec))
    assert sort(jnp.asarray([3, 1, 2])).tolist() == [1, 2, 3]
    with pytest.raises(TypeError, match="TensorSpec"):
        unisono.function(lambda x: unisono.py_function(abs, [x], unisono.int32))(
            jnp.asarray(1)
        )


def test_in_a_dataset_python_gets_and_gives_text_and_numbers_of_64_bits():
    def describe(text, number):
        return text.numpy() + b"!", number.numpy() * 2

    def measure(text, number):
        assert type(text) is bytes and type(number) is np.int64
        return np.float32(len(text)), [number, number + 1]

    words = unisono.data.Dataset.from_tensor_slices(
        (["a", "bcd"], np.array([2**40, 7], np.int64))
    )
    told = words.map(
        lambda *x: unisono.py_function(describe, x, [unisono.string, unisono.int64])
    )
    assert [(a.numpy(), b.numpy()) for a, b in told] == [(b"a!", 2**41), (b"bcd!", 14)]
    kinds = [unisono.float32, unisono.int64]
    sizes = words.map(lambda *x: unisono.numpy_function(measure, x, kinds))
    assert [(a.item(), b.tolist()) for a, b in sizes] == [
        (1.0, [2**40, 2**40 + 1]),
        (3.0, [7, 8]),
    ]
    assert [s.dtype for s in sizes.element_spec] == kinds
