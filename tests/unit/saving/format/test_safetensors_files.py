"""Files of safetensors are read as they are, and damaged ones are named."""

import json

import ml_dtypes
import numpy as np
import pytest

import unisono as tf
from unisono._src.saving.format import safetensors_files

TYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16",
    "int32": "I32", "uint32": "U32", "int64": "I64", "uint64": "U64",
    "float16": "F16", "float32": "F32", "float64": "F64", "bfloat16": "BF16",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip


def encode(header, content=b""):
    """Returns the bytes of a file."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


def write(path, arrays, metadata=None):
    """Writes a file as the package ``safetensors`` does."""
    header = {} if metadata is None else {"__metadata__": metadata}
    content = b""
    for name, x in arrays.items():
        data = np.ascontiguousarray(x).tobytes()
        header[name] = {
            "dtype": TYPES[x.dtype.name],
            "shape": list(x.shape),
            "data_offsets": [len(content), len(content) + len(data)],
        }
        content += data
    # It pads the header with spaces, so that the arrays begin at eight bytes.
    text = json.dumps(header).encode()
    path.write_bytes(encode(text + b" " * (-len(text) % 8), content))
    return path


@pytest.mark.parametrize("kind", TYPES)
def test_arrays_of_every_type_are_read(tmp_path, kind):
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    arrays = {"a": np.arange(6).reshape(2, 3).astype(dtype), "b.c": np.ones((), dtype)}
    path = write(tmp_path / "x.safetensors", arrays, {"format": "pt"})
    found = safetensors_files.open_all(path)
    assert list(found) == ["a", "b.c"]
    for name, x in arrays.items():
        view = found[name].view()
        assert (view.dtype, view.shape) == (dtype, x.shape)
        assert view.tobytes() == x.tobytes()


def test_arrays_that_begin_at_odd_bytes_are_read(tmp_path):
    arrays = {"a": np.ones(3, bool), "b": np.arange(5.0), "none": np.zeros((0, 3))}
    found = safetensors_files.open_all(write(tmp_path / "x.safetensors", arrays))
    np.testing.assert_array_equal(found["b"].view(), arrays["b"])
    assert found["none"].view().shape == (0, 3)


def test_a_file_without_arrays_is_empty(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(encode({}))
    assert safetensors_files.open_all(tmp_path / "x.safetensors") == {}


def test_a_type_that_numpy_lacks_is_no_damage(tmp_path):
    header = {"a": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}}
    (tmp_path / "x.safetensors").write_bytes(encode(header, b"\0\0"))
    assert safetensors_files.open_all(tmp_path)["a"].dtype is None


ONE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
DAMAGED = {
    "nothing": (b"", "0 bytes"),
    "seven bytes": (b"\1" * 7, "7 bytes"),
    "a text": (b"this is no such file, but a long text", "header would have"),
    "a pickle": (b"\x80\x04" + bytes(30), "header would have"),
    "a short header": (encode({"a": ONE})[:30], "header would have"),
    "a large header": ((1 << 40).to_bytes(8, "little") + b"{}", "100,000,000 are"),
    "short arrays": (encode({"a": ONE}, bytes(7)), "0 to 8 of 7"),
    "bytes behind": (encode({"a": ONE}, bytes(9)), "1 bytes at its end"),
    "no JSON": (encode(b'{"a": '), "no JSON"),
    "a list": (encode(b"[]"), "does not begin"),
    "no text": (encode(b'{"\xff"}'), "no JSON"),
    "deep JSON": (encode(b'{"a":' + b"[" * 100_000), "no JSON"),
    "a name twice": (encode(b'{"a": 1, "a": 2}'), "twice"),
    "no description": (encode({"a": 1}), "no dtype"),
    "no type": (encode({"a": {**ONE, "dtype": "F33"}}, bytes(8)), "unknown type"),
    "a type as a list": (encode({"a": {**ONE, "dtype": ["F32"]}}), "unknown type"),
    "a negative shape": (encode({"a": {**ONE, "shape": [-2]}}, bytes(8)), "shape"),
    "a huge shape": (encode({"a": {**ONE, "shape": [2**70]}}, bytes(8)), "larger"),
    "another shape": (encode({"a": {**ONE, "shape": [3]}}, bytes(8)), "takes 12"),
    "an offset": (encode({"a": {**ONE, "data_offsets": [0]}}, bytes(8)), "two offsets"),
    "turned offsets": (
        encode({"a": {**ONE, "data_offsets": [8, 0]}}, bytes(8)), "8 to",
    ),
    "negative offsets": (
        encode({"a": {**ONE, "data_offsets": [-8, 0]}}, bytes(8)), "-8 to",
    ),
    "true as an offset": (
        encode({"a": {**ONE, "data_offsets": [False, 8]}}, bytes(8)), "two offsets",
    ),
    "an overlap": (
        encode({"a": ONE, "b": {**ONE, "data_offsets": [4, 12]}}, bytes(12)), "overlap",
    ),
    "the same place": (encode({"a": ONE, "b": ONE}, bytes(8)), "overlap"),
    "a hole": (
        encode({"a": ONE, "b": {**ONE, "data_offsets": [10, 18]}}, bytes(18)), "of no",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_file_is_named_with_the_reason(tmp_path, kind):
    content, reason = DAMAGED[kind]
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(tf.errors.DataLossError) as error:
        safetensors_files.open_all(path)
    assert "x.safetensors is damaged" in str(error.value)
    assert reason in str(error.value)


@pytest.mark.parametrize("at", range(0, 120, 7))
def test_no_changed_byte_of_a_header_is_another_error(tmp_path, at):
    path = write(tmp_path / "x.safetensors", {"a": np.ones(4), "b": np.ones((2, 3))})
    content = bytearray(path.read_bytes())
    for value in (0, 0x22, 0x2D, 0x39, 0x7B, 0xFF):
        content[at] = value
        path.write_bytes(content)
        try:
            for tensor in safetensors_files.open_all(path).values():
                tensor.view()
        except tf.errors.DataLossError:
            pass


# Several files.


def make_parts(folder, index=None):
    write(folder / "model-1-of-2.safetensors", {"a": np.ones(2)})
    write(folder / "model-2-of-2.safetensors", {"b": np.zeros(3)})
    places = {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}
    index = {"metadata": {"total_size": 40}, "weight_map": places | (index or {})}
    text = json.dumps(index)
    (folder / "model.safetensors.index.json").write_text(text)


def test_a_folder_with_an_index_is_one_model(tmp_path):
    make_parts(tmp_path)
    (tmp_path / "other.safetensors").write_bytes(b"not of this model")
    for path in (tmp_path, tmp_path / "model.safetensors.index.json"):
        assert {*safetensors_files.open_all(path)} == {"a", "b"}


def test_files_may_be_given_in_a_list(tmp_path):
    make_parts(tmp_path)
    paths = sorted(tmp_path.glob("*.safetensors"))
    assert {*safetensors_files.open_all(paths)} == {"a", "b"}
    with pytest.raises(tf.errors.InvalidArgumentError, match="both have a tensor 'a'"):
        safetensors_files.open_all([paths[0], str(paths[0])])


@pytest.mark.parametrize(
    "place", ["../x", "/etc/passwd", "", ".", "..", "a\\b", 5, None, "a\0b"]
)
def test_an_index_names_files_of_its_folder_only(tmp_path, place):
    make_parts(tmp_path, {"c": place})
    with pytest.raises(tf.errors.DataLossError, match="weight_map"):
        safetensors_files.open_all(tmp_path)


def test_an_index_that_names_other_tensors_is_damaged(tmp_path):
    make_parts(tmp_path, {"c": "model-1-of-2.safetensors"})
    with pytest.raises(tf.errors.DataLossError, match="no tensor 'c'"):
        safetensors_files.open_all(tmp_path)


def test_what_is_not_there_is_told(tmp_path):
    with pytest.raises(tf.errors.NotFoundError, match="no file that ends"):
        safetensors_files.open_all(tmp_path)
    with pytest.raises(tf.errors.NotFoundError, match="no file"):
        safetensors_files.open_all(tmp_path / "x.safetensors")
    make_parts(tmp_path, {"c": "model-3.safetensors"})
    with pytest.raises(tf.errors.NotFoundError, match="model-3"):
        safetensors_files.open_all(tmp_path)


def test_a_folder_of_several_files_without_an_index_is_refused(tmp_path):
    make_parts(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"2 files .* in a list"):
        safetensors_files.open_all(tmp_path)
