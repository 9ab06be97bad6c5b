"""Images, histograms, texts and sound, read back from the files that were written."""

import io
import wave

import numpy as np
import pytest

import unisono as uni
from unisono._src.foundation import messages

summary = uni.summary
EVENT = messages.make_classes(
    "test",
    Event="optional int64 step = 2; optional Summary summary = 5",
    Summary="repeated Value value = 1",
    Value="optional string tag = 1; optional bytes tensor = 8;"
    "optional Metadata metadata = 9",
    Metadata="optional Plugin plugin_data = 1; optional string summary_description = 3",
    Plugin="optional string plugin_name = 1; optional bytes content = 2",
)["Event"]


@pytest.fixture
def written(tmp_path):
    """A function that writes by a function of `summary`, and returns what is read."""

    def write(make, *args, **kwargs):
        writer = summary.create_file_writer(tmp_path)
        with writer.as_default(step=3):
            assert make(*args, **kwargs) is True
        writer.close()
        newest = max(tmp_path.iterdir(), key=lambda path: int(path.suffix[1:]))
        *_, last = uni.data.TFRecordDataset(str(newest)).as_numpy_iterator()
        event = EVENT.FromString(last)
        assert event.step == 3
        (value,) = event.summary.value
        return value

    return write


def read(value, dtype):
    return np.asarray(uni.io.parse_tensor(value.tensor, dtype))


def test_images_have_their_size_and_pixels(written):
    data = np.linspace(-0.2, 1.2, 12, dtype=np.float32).reshape(2, 2, 3, 1)
    value = written(summary.image, "img", data, max_outputs=1, description="d")
    assert value.tag == "img"
    assert value.metadata.plugin_data.plugin_name == "images"
    assert value.metadata.summary_description == "d"
    width, height, first = read(value, uni.string).tolist()
    assert (width, height) == (b"3", b"2")
    # As TensorFlow 2.21 writes them.
    pixels = [[[0], [0], [13]], [[46], [78], [111]]]
    assert np.asarray(uni.io.decode_png(first)).tolist() == pixels


@pytest.mark.parametrize(
    ("data", "pixel"),
    [(np.uint8(7), 7), (np.int32(300), 0), (np.uint16(40000), 156), (0.5, 127)],
)
def test_pixels_are_scaled_as_in_tensorflow(written, data, pixel):
    value = written(summary.image, "img", np.full([5, 1, 1, 1], data))
    found = read(value, uni.string).tolist()
    assert len(found) == 2 + 3
    assert np.asarray(uni.io.decode_png(found[2])).item() == pixel


def test_a_histogram_counts_in_equal_parts(written):
    value = written(summary.histogram, "h", uni.Variable([1.0, 2.0, 3.0, 10.0]))
    assert value.metadata.plugin_data.plugin_name == "histograms"
    table = read(value, np.float64)
    assert table.shape == (30, 3)
    assert table[9].tolist() == [3.6999999999999997, 4.0, 0.0]
    assert np.flatnonzero(table[:, 2]).tolist() == [0, 3, 6, 29]
    assert table[-1].tolist() == [9.7, 10.0, 1.0]


@pytest.mark.parametrize(
    ("data", "table"),
    [
        ([1, 2, 3, 4], [[1.0, 2.5, 2.0], [2.5, 4.0, 2.0]]),
        ([2.0, 2.0], [[2.0, 2.0, 0.0], [2.0, 2.0, 2.0]]),
        ([], [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        ([True, False, True], [[0.0, 0.5, 1.0], [0.5, 1.0, 2.0]]),
        ([np.nan, 1.0], [[np.nan, np.nan, 0.0], [np.nan, np.nan, 0.0]]),
        ([-np.inf, np.inf], [[np.nan, np.nan, 0.0], [np.nan, np.nan, 0.0]]),
    ],
)
def test_special_histograms_are_those_of_tensorboard(written, data, table):
    value = written(summary.histogram, "h", data, buckets=2)
    np.testing.assert_array_equal(read(value, np.float64), table)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("hello", b"hello"),
        ([["a", "b"], ["c", "ü"]], [[b"a", b"b"], [b"c", "ü".encode()]]),
        ([b"x"], [b"x"]),
    ],
)
def test_texts_keep_their_shape(written, text, wanted):
    value = written(summary.text, "t", text)
    assert value.metadata.plugin_data.plugin_name == "text"
    found = uni.io.parse_tensor(value.tensor, uni.string).numpy()
    assert getattr(found, "tolist", lambda: found)() == wanted


def test_sound_is_a_file_of_each_clip(written):
    clips = np.linspace(-1, 1.2, 6).reshape(1, 3, 2)
    value = written(summary.audio, "a", np.repeat(clips, 4, axis=0), 8000)
    assert value.metadata.plugin_data.plugin_name == "audio"
    assert value.metadata.plugin_data.content == b"\x10\x0b"
    pairs = read(value, uni.string)
    assert pairs.shape == (3, 2) and pairs[0, 1] == b""
    # As TensorFlow 2.21 writes it.
    assert pairs[0, 0][-12:] == b"\x00\x80R\xb8\xa4\xf0\xf6(Ha\xff\x7f"
    with wave.open(io.BytesIO(pairs[0, 0])) as file:
        assert file.getparams()[:4] == (2, 2, 8000, 3)


def test_what_cannot_be_shown_is_refused():
    with summary.create_noop_writer().as_default(step=1):
        with pytest.raises(ValueError, match=r"rank 4\. Received rank 3"):
            summary.image("x", np.zeros([2, 2, 3]))
        with pytest.raises(ValueError, match="channels, got 5"):
            summary.image("x", np.zeros([1, 2, 2, 5]))
        with pytest.raises(ValueError, match=r"rank 3\. Received rank 2"):
            summary.audio("x", np.zeros([2, 2]), 8000)
        with pytest.raises(ValueError, match="'mp3'"):
            summary.audio("x", np.zeros([2, 2, 1]), 8000, encoding="mp3")
        with pytest.raises(TypeError, match="must be of type string"):
            summary.text("x", 3)
        with pytest.raises(ValueError, match="received text"):
            summary.histogram("x", ["a"])


def test_a_compiled_step_writes_arrays_and_texts(tmp_path):
    writer = summary.create_file_writer(str(tmp_path))

    @uni.function
    def step(x):
        summary.histogram("numbers", x)
        summary.text("words", "as they are")
        summary.image("pixels", x)

    with writer.as_default(step=1):
        step(np.zeros([1, 2, 2, 3], "float32"))
        with pytest.raises(ValueError, match=r"rank 4\. Received rank 1"):
            step(np.zeros(3, "float32"))
    writer.close()
    (file,) = tmp_path.iterdir()
    data = file.read_bytes()
    assert [data.count(x) for x in (b"numbers", b"words", b"pixels")] == [2, 2, 1]


def test_without_a_writer_or_with_one_of_nothing_nothing_is_written():
    assert summary.text("x", "y", step=1) is False
    with summary.create_noop_writer().as_default(step=1):
        assert summary.text("x", "y") is False
        with summary.record_if(False):
            assert summary.image("x", lambda: pytest.fail("It was asked for.")) is False
    with (
        summary.create_noop_writer().as_default(),
        pytest.raises(ValueError, match="No step set"),
    ):
        summary.text("x", "y")
