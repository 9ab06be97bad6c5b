import io
import random
import sys

import jax
import numpy as np
import pytest
from PIL import Image

import unisono as tf
from tests.unit.ops.images import cases
from unisono._src.ops.images import image_files

FILES = cases.read_files()


def test_a_folder_of_images_is_a_dataset(tmp_path):
    for number in range(5):
        file = tmp_path / f"{number}.jpg"
        file.write_bytes(FILES["jpeg 4:2:0"])

    def read(path):
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        image = tf.image.random_flip_left_right(tf.image.resize(image, [8, 8]))
        return image / 127.5 - 1.0

    files = tf.data.Dataset.list_files(str(tmp_path / "*.jpg"))
    data = files.map(read, num_parallel_calls=tf.data.AUTOTUNE).batch(2)
    shapes = [batch.shape for batch in data]
    assert shapes == [(2, 8, 8, 3), (2, 8, 8, 3), (1, 8, 8, 3)]
    whole = tf.image.resize(tf.io.decode_jpeg(FILES["jpeg 4:2:0"]), [8, 8])
    wanted = np.asarray(whole) / np.float32(127.5) - np.float32(1)
    image = next(iter(data))[0]
    assert any(np.array_equal(image, x) for x in (wanted, wanted[:, ::-1]))


def test_images_are_arrays_of_jax_outside_datasets():
    assert isinstance(tf.io.decode_jpeg(FILES["jpeg grey"]), jax.Array)


def test_a_broken_file_is_named(tmp_path):
    path = tmp_path / "broken.png"
    path.write_bytes(FILES["png cut"])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"broken\.png, a PNG"):
        tf.io.decode_image(tf.io.read_file(str(path)))


def test_broken_files_are_errors_and_never_a_crash():
    seed = random.Random(5)
    for name, whole in FILES.items():
        for _ in range(12):
            file = bytearray(whole)
            for _ in range(seed.randint(1, 8)):
                if file:
                    file[seed.randrange(len(file))] = seed.randrange(256)
            cut = bytes(file[: seed.randint(0, len(file))])
            for contents in (bytes(file), cut):
                try:
                    image = tf.io.decode_image(contents)
                except tf.errors.InvalidArgumentError as error:
                    assert str(len(contents)) in str(error) or "size" in str(error)
                else:
                    assert image.ndim in (3, 4), name


def test_a_file_that_claims_to_be_too_large_is_refused_before_it_is_read(monkeypatch):
    with pytest.raises(tf.errors.InvalidArgumentError, match="the limit is 268435456"):
        tf.io.decode_png(FILES["png that claims a size"])
    monkeypatch.setattr(image_files, "MOST_PIXELS", 20)
    tf.io.decode_image(FILES["gif"])
    tf.io.decode_image(FILES["bmp with 24 bits"])
    # Three frames have 60 pixels.
    for name in ("jpeg grey", "gif of 3 frames", "png with 3 × 8 bits"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="limit is 20"):
            tf.io.decode_image(FILES[name])


def test_a_file_that_ends_early_is_read_on_demand():
    with pytest.raises(tf.errors.InvalidArgumentError, match="Premature end"):
        tf.io.decode_jpeg(FILES["jpeg cut"])
    recovered = tf.io.decode_jpeg(FILES["jpeg cut"], try_recover_truncated=True)
    whole = tf.io.decode_jpeg(FILES["jpeg 4:2:0"])
    assert recovered.shape == whole.shape
    assert np.array_equal(recovered[:8], whole[:8])


def test_contents_that_are_no_string_are_refused():
    with pytest.raises(TypeError, match="contents of decode_png must be one string"):
        tf.io.decode_png(np.zeros((2, 2)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="format is not known"):
        tf.io.decode_png(b"")


@pytest.mark.parametrize("package", ["simplejpeg", "PIL"])
def test_a_missing_package_is_an_error_that_names_the_extra(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    file = "jpeg grey" if package == "simplejpeg" else "gif"
    with pytest.raises(ImportError, match=r"pip install 'unisono\[images\]'"):
        tf.io.decode_image(FILES[file])


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_files_keep_every_pixel(kind, channels):
    most = np.iinfo(kind).max
    image = np.random.RandomState(0).randint(0, most + 1, (5, 4, channels)).astype(kind)
    file = tf.io.encode_png(image).numpy()
    again = tf.io.decode_png(file, dtype=kind)
    assert again.dtype == kind
    assert np.array_equal(again, image)
    with Image.open(io.BytesIO(file)) as other:  # Others can read it.
        assert other.size == (4, 5)
        other.load()


def test_interlaced_png_files_of_16_bits_are_read():
    # Adam7 of 3 × 2 pixels: pass 1 has pixel (0, 0), 4 has (0, 2), 6 has (0, 1) and 7
    # has the second row.
    wanted = np.arange(6, dtype=np.uint16).reshape(2, 3, 1) * 9999
    rows = [wanted[0, :1], wanted[0, 2:], wanted[0, 1:2], wanted[1]]
    data = b"".join(b"\0" + row.astype(">u2").tobytes() for row in rows)
    assert np.array_equal(tf.io.decode_png(_png(3, 2, data), dtype=np.uint16), wanted)


def _png(width, height, data):
    import struct
    import zlib

    header = struct.pack(">IIBBBBB", width, height, 16, 0, 0, 0, 1)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(data)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(p)) + n + p + struct.pack(">I", zlib.crc32(n + p))
        for n, p in parts
    )


def test_jpeg_files_have_the_quality_that_was_asked_for():
    image = np.asarray(tf.io.decode_jpeg(FILES["jpeg 4:2:0"]))
    small, large = (tf.io.encode_jpeg(image, quality=q).numpy() for q in (20, 95))
    assert len(small) < len(large)
    off = np.abs(np.asarray(tf.io.decode_jpeg(large)).astype(int) - image)
    assert off.mean() < 4
    options = {"progressive": True, "density_unit": "cm", "xmp_metadata": "<x/>"}
    assert b"<x/>" in tf.io.encode_jpeg(image, **options).numpy()


def test_images_that_a_format_does_not_have_are_refused():
    with pytest.raises(tf.errors.InvalidArgumentError, match="takes uint8, received"):
        tf.io.encode_jpeg(np.zeros((2, 2, 3), np.float32))
    with pytest.raises(tf.errors.InvalidArgumentError, match="received shape"):
        tf.io.encode_png(np.zeros((0, 2, 3), np.uint8))
    with pytest.raises(tf.errors.InvalidArgumentError, match="format must be"):
        tf.io.encode_jpeg(np.zeros((2, 2, 3), np.uint8), format="cmyk")
    with pytest.raises(tf.errors.InvalidArgumentError, match="compression"):
        tf.io.encode_png(np.zeros((2, 2, 3), np.uint8), compression=10)


def test_a_png_file_without_its_palette_is_refused():
    file = io.BytesIO()
    Image.fromarray(np.zeros((2, 2), "uint8")).convert("P").save(file, "PNG")
    whole = file.getvalue()
    start = whole.index(b"PLTE") - 4
    end = start + 12 + int.from_bytes(whole[start : start + 4], "big")
    assert tf.io.decode_png(whole).shape == (2, 2, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="palette"):
        tf.io.decode_png(whole[:start] + whole[end:])


def test_a_broken_photo_in_a_dataset_is_named_and_the_others_are_read(tmp_path):
    paths = [tmp_path / name for name in ("a.jpg", "b.jpg", "c.jpg")]
    whole = bytes(tf.io.encode_jpeg(np.full((32, 40, 3), 90, np.uint8)).numpy())
    for path, data in zip(paths, (whole, whole[:300], whole), strict=True):
        path.write_bytes(data)
    read = tf.data.Dataset.from_tensor_slices(list(map(str, paths))).map(
        lambda path: tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"b\.jpg, a JPEG"):
        list(read)
    assert [x.shape for x in read.ignore_errors()] == [(32, 40, 3)] * 2
