"""`TFRecordOptions` say how a file is compressed."""

import pytest

import unisono as uni


@pytest.mark.parametrize("kind", ["", "GZIP", "ZLIB", None])
@pytest.mark.parametrize("level", [None, 1, 9])
def test_options_choose_the_compression(tmp_path, kind, level):
    path = tmp_path / "records"
    options = uni.io.TFRecordOptions(kind, compression_level=level)
    with uni.io.TFRecordWriter(path, options) as writer:
        writer.write(b"text" * 1000)
    assert (path.stat().st_size < 1000) is bool(kind)
    dataset = uni.data.TFRecordDataset(path, compression_type=kind)
    assert list(dataset.as_numpy_iterator()) == [b"text" * 1000]


def test_level_zero_stores_without_compressing(tmp_path):
    options = uni.io.TFRecordOptions("ZLIB", compression_level=0)
    with uni.io.TFRecordWriter(tmp_path / "records", options) as writer:
        writer.write(b"text" * 1000)
    assert (tmp_path / "records").stat().st_size > 4000


def test_unknown_options_are_errors():
    with pytest.raises(ValueError, match="'LZ4'"):
        uni.io.TFRecordOptions("LZ4")
    with pytest.raises(ValueError, match="received 10"):
        uni.io.TFRecordOptions("GZIP", compression_level=10)
