"""Input pipelines, written once, for unisono, tf.data and PyTorch's `DataLoader`.

`input.py` compares them. `python pipelines.py LIBRARY ROW FOLDER` reads an epoch for
each line of its standard input, and prints what it measured.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

IMAGES, PHOTOS, LINES, BATCH = 20_000, 200, 20_000, 128
WORDS = ("the", "a", "of", "training", "replica", "step", "device", "batch", "worker")


def arrays() -> tuple[np.ndarray, np.ndarray]:
    """Returns images of 28 × 28, and their labels."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (IMAGES, 28, 28), np.uint8)
    return images, rng.integers(0, 10, IMAGES).astype(np.int32)


def write_files(folder: pathlib.Path) -> None:
    """Writes the records, photos and lines that the pipelines read."""
    import simplejpeg

    import unisono as tf

    images, labels = arrays()
    with tf.io.TFRecordWriter(str(folder / "images.tfrecord")) as writer:
        for image, label in zip(images, labels, strict=True):
            pixels = tf.train.BytesList(value=[image.tobytes()])
            feature = {
                "image": tf.train.Feature(bytes_list=pixels),
                "label": tf.train.Feature(
                    int64_list=tf.train.Int64List(value=[int(label)])
                ),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    rng = np.random.default_rng(1)
    (folder / "photos").mkdir()
    (folder / "sizes").mkdir()
    for i in range(PHOTOS):
        # Smooth, as photos are: noise would take the decoder three times as long.
        small = rng.integers(0, 256, (15, 20, 3)).astype(np.float32)
        photo = np.kron(small, np.ones((25, 25, 1), np.float32))
        photo += rng.normal(0, 6, photo.shape)
        pixels = np.clip(photo, 0, 255).astype(np.uint8)
        data = simplejpeg.encode_jpeg(pixels, quality=90)
        (folder / "photos" / f"{i:04}.jpg").write_bytes(data)
        part = np.ascontiguousarray(pixels[: 375 - i % 120, : 500 - 7 * i % 150])
        data = simplejpeg.encode_jpeg(part, quality=90)
        (folder / "sizes" / f"{i:04}.jpg").write_bytes(data)
    rows = rng.normal(size=(LINES, 4)).round(4)
    lines = [
        ",".join(map(str, row)) + f",{i % 10},word{i % 7}" for i, row in enumerate(rows)
    ]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    texts = [" ".join(rng.choice(WORDS, rng.integers(3, 12))) for _ in range(LINES)]
    (folder / "lines.txt").write_text("\n".join(texts) + "\n")


# --------------------------------------- one program for unisono and for TensorFlow


def _scaled(tf: Any) -> Callable[[Any, Any], Any]:
    return lambda x, y: (tf.cast(x, tf.float32) / 255.0, y)


def _slices(tf: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices(arrays())


def _shuffled(tf: Any, folder: pathlib.Path) -> Any:
    return _slices(tf).shuffle(1000, seed=1).batch(BATCH)


def _mapped(tf: Any, folder: pathlib.Path) -> Any:
    return _slices(tf).map(_scaled(tf)).batch(BATCH)


def _tuned(tf: Any, folder: pathlib.Path) -> Any:
    auto = tf.data.AUTOTUNE
    return _slices(tf).map(_scaled(tf), auto).batch(BATCH).prefetch(auto)


def _batched(tf: Any, folder: pathlib.Path) -> Any:
    return _slices(tf).batch(BATCH).map(_scaled(tf))


def _padded(tf: Any, folder: pathlib.Path) -> Any:
    def prepare(x: Any, y: Any) -> Any:
        x = tf.pad(tf.cast(x, tf.float32), [[2, 2], [2, 2]])
        return x, tf.one_hot(y, 10)

    return _slices(tf).map(prepare).batch(BATCH)


def _records(tf: Any, folder: pathlib.Path) -> Any:
    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record: Any) -> Any:
        found = tf.io.parse_single_example(record, features)
        image = tf.reshape(tf.io.decode_raw(found["image"], tf.uint8), [28, 28])
        return image, found["label"]

    return (
        tf.data.TFRecordDataset(str(folder / "images.tfrecord")).map(parse).batch(BATCH)
    )


def _photos(tf: Any, folder: pathlib.Path) -> Any:
    def load(path: Any) -> Any:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        image = tf.image.resize(image, [224, 224])
        image = tf.image.flip_left_right(image)
        return image / 127.5 - 1.0

    files = tf.data.Dataset.list_files(str(folder / "photos" / "*.jpg"), shuffle=False)
    auto = tf.data.AUTOTUNE
    return files.map(load, num_parallel_calls=auto).batch(32).prefetch(auto)


def _photos_of_sizes(tf: Any, folder: pathlib.Path) -> Any:
    def load(path: Any) -> Any:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        image = tf.image.convert_image_dtype(image, tf.float32)
        return tf.image.resize(image, [224, 224])

    files = tf.data.Dataset.list_files(str(folder / "sizes" / "*.jpg"), shuffle=False)
    auto = tf.data.AUTOTUNE
    return files.map(load, num_parallel_calls=auto).batch(32).prefetch(auto)


def _csv(tf: Any, folder: pathlib.Path) -> Any:
    defaults = [0.0, 0.0, 0.0, 0.0, 0, ""]

    def parse(line: Any) -> Any:
        *features, label, _ = tf.io.decode_csv(line, defaults)
        return tf.stack(features), label

    return tf.data.TextLineDataset(str(folder / "rows.csv")).map(parse).batch(BATCH)


def _csv_batched(tf: Any, folder: pathlib.Path) -> Any:
    defaults = [0.0, 0.0, 0.0, 0.0, 0, ""]

    def parse(lines: Any) -> Any:
        *features, label, _ = tf.io.decode_csv(lines, defaults)
        return tf.stack(features, axis=1), label

    return tf.data.TextLineDataset(str(folder / "rows.csv")).batch(BATCH).map(parse)


def _tokens(tf: Any, folder: pathlib.Path) -> Any:
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(
            WORDS, range(1, len(WORDS) + 1), tf.string, tf.int64
        ),
        default_value=0,
    )

    def look_up(line: Any) -> Any:
        return table.lookup(tf.strings.split(tf.strings.lower(line)))

    lines = tf.data.TextLineDataset(str(folder / "lines.txt"))
    return lines.map(look_up).padded_batch(BATCH, padded_shapes=[12])


ROWS: dict[str, tuple[str, Callable[[Any, pathlib.Path], Any]]] = {
    "shuffled": ("shuffle(1000).batch(128)", _shuffled),
    "mapped": ("map(cast / 255).batch(128)", _mapped),
    "tuned": ("… with AUTOTUNE and prefetch", _tuned),
    "batched": ("batch(128).map(cast / 255)", _batched),
    "padded": ("map(cast, pad, one_hot).batch(128)", _padded),
    "records": ("TFRecords of Examples", _records),
    "photos": ("JPEGs: decode, resize, flip", _photos),
    "sizes": ("JPEGs of 200 sizes: as floats, resize", _photos_of_sizes),
    "csv": ("CSV lines, one by one", _csv),
    "csv_batched": ("CSV lines, in batches", _csv_batched),
    "tokens": ("text: split, look up, pad", _tokens),
}


# ---------------------------------------------------------------------- PyTorch


class _TorchRows:
    """The images and labels for a `DataLoader`, prepared one by one."""

    def __init__(self, row: str) -> None:
        self._row = row
        self._images, self._labels = arrays()

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, i: int) -> Any:
        import torch

        image, label = torch.from_numpy(self._images[i]), int(self._labels[i])
        if self._row == "shuffled":
            return image, label
        if self._row == "padded":
            padded = torch.nn.functional.pad(image.float(), (2, 2, 2, 2))
            return padded, torch.nn.functional.one_hot(torch.tensor(label), 10)
        return image.float() / 255.0, label


class _TorchPhotos:
    """The photos for a `DataLoader`, decoded, resized and flipped."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._paths = sorted((folder / "photos").iterdir())

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, i: int) -> Any:
        import simplejpeg
        import torch

        pixels = simplejpeg.decode_jpeg(self._paths[i].read_bytes(), fastdct=True)
        image = torch.from_numpy(pixels).permute(2, 0, 1)[None].float()
        image = torch.nn.functional.interpolate(image, (224, 224), mode="bilinear")
        return image[0].flip(-1) / 127.5 - 1.0


def _torch_loader(row: str, folder: pathlib.Path) -> Any:
    """Returns the `DataLoader` of a row; None if PyTorch has nothing like it."""
    from torch.utils.data import DataLoader

    if row == "photos":
        return DataLoader(_TorchPhotos(folder), 32, num_workers=2)
    if row == "tuned":
        return DataLoader(_TorchRows(row), BATCH, num_workers=2)
    if row in ("shuffled", "mapped", "padded"):
        return DataLoader(_TorchRows(row), BATCH, shuffle=row == "shuffled")
    return None


# ------------------------------------------------------------ one process of each


def _digest(batch: Any) -> str:
    """Returns a digest of the numbers of a batch, rounded to six digits."""
    parts = batch if isinstance(batch, (list, tuple)) else [batch]
    found = hashlib.sha256()
    for part in parts:
        array = np.asarray(part)
        if array.dtype.kind == "f":
            array = array.round(4) + 0.0
        found.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()[:12]


def _memory() -> int:
    """Returns the resident memory of this process, in MB."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) // 1024
    return 0


def serve(library: str, row: str, folder: pathlib.Path) -> None:
    """Reads an epoch for each line of standard input, and prints what it measured."""
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    dataset: Any
    if library == "torch":
        dataset = _torch_loader(row, folder)
    else:
        tf = __import__(library)
        dataset = ROWS[row][1](tf, folder)
    print(json.dumps(dataset is not None), flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        first, examples = None, 0
        for batch in dataset:
            first = batch if first is None else first
            examples += len(batch[0] if isinstance(batch, (list, tuple)) else batch)
        seconds = time.perf_counter() - begin
        told = {
            "rate": examples / seconds,
            "examples": examples,
            "memory": _memory(),
            "digest": _digest(first),
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]))
