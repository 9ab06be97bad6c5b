"""Arrays as bytes; `test_parsing` compares the results with TensorFlow's."""

import ml_dtypes
import numpy as np
import pytest

import unisono as uni
from unisono._src.ops.records import tensor_protos


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3), (2, 0, 3)])
@pytest.mark.parametrize("dtype", sorted(map(str, tensor_protos._BY_TYPE)))
def test_every_type_and_shape_comes_back(dtype, shape):
    if dtype == "object":
        array = np.full(shape, b"\0text\0", object)
        wanted = uni.string
    else:
        wanted = np.dtype(getattr(ml_dtypes, dtype, dtype))
        array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(wanted)
    found = uni.io.parse_tensor(uni.io.serialize_tensor(array), wanted)
    assert found.shape == shape and found.dtype == wanted
    assert np.array(found, wanted).tolist() == array.tolist()


def test_an_array_of_jax_and_a_variable_are_serialized():
    wanted = uni.io.serialize_tensor(np.array([1.5, 2.0], np.float32))
    assert uni.io.serialize_tensor(uni.constant([1.5, 2.0])) == wanted
    assert uni.io.serialize_tensor(uni.Variable([1.5, 2.0])) == wanted
    assert type(uni.io.serialize_tensor(1).numpy()) is bytes


def test_big_endian_and_strided_arrays_are_written_as_their_numbers():
    plain = np.arange(6, dtype=np.int32).reshape(2, 3)
    wanted = uni.io.serialize_tensor(plain.T.copy())
    assert uni.io.serialize_tensor(plain.T) == wanted
    assert uni.io.serialize_tensor(plain.T.astype(">i4")) == wanted


def test_a_compiled_function_cannot_serialize_what_it_computes():
    with pytest.raises(TypeError, match="outside"):
        uni.function(lambda x: uni.io.serialize_tensor(x) and x)(uni.constant([1.0]))


def make(**fields):
    return tensor_protos._tensor_class()(**fields).SerializeToString()


@pytest.mark.parametrize(
    "record",
    [
        make(dtype=1, tensor_shape={"dim": [{"size": 2**62}]}),
        make(dtype=1, tensor_shape={"dim": [{"size": 2**40}]}, float_val=[1.0]),
        make(dtype=7, tensor_shape={"dim": [{"size": 2**40}]}),
        make(dtype=1, tensor_shape={"dim": [{"size": 2**62}] * 4}, float_val=[1.0]),
        make(dtype=1, tensor_shape={"dim": [{"size": 0}, {"size": 2**62}]}),
        make(dtype=1, tensor_shape={"dim": [{"size": 1}] * 100}, float_val=[1.0]),
        make(dtype=1, tensor_shape={"dim": [{"size": -1}]}),
        make(dtype=1, tensor_shape={"dim": [{"size": 2}]}, tensor_content=b"abc"),
        make(dtype=-1),
        make(dtype=1, tensor_content=b"abcdefgh"),
    ],
)
def test_a_hostile_shape_is_an_error(record):
    dtype = uni.string if record.startswith(b"\x08\x07") else uni.float32
    with pytest.raises(uni.errors.InvalidArgumentError, match="Cannot parse tensor"):
        uni.io.parse_tensor(record, dtype)


def test_damaged_bytes_are_an_error_and_no_crash():
    random = np.random.default_rng(0)
    whole = uni.io.serialize_tensor(np.arange(6, dtype=np.int16).reshape(2, 3))
    for _ in range(2000):
        record = bytearray(whole[: random.integers(len(whole) + 1)])
        if record:
            record[random.integers(len(record))] = random.integers(256)
        try:
            uni.io.parse_tensor(bytes(record), uni.int16)
        except uni.errors.InvalidArgumentError:
            continue
