"""PNG files: reading with 8 or 16 bits a channel, and writing."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from unisono._src.foundation import errors
from unisono._src.ops.images import image_files

MAGIC = b"\x89PNG\r\n\x1a\n"
# How many channels a pixel has, by the colour type of the header.
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# The passes of an interlaced image: first row, first column, and the steps.
_PASSES = (
    (0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
    (1, 0, 2, 1),
)  # fmt: skip


def decode(contents: bytes, channels: int, bits: int) -> np.ndarray:
    """Returns the image of a file as uint8, or as uint16 for 16 bits.

    Raises:
        InvalidArgumentError: the image is too large, or its parts do not fit.
        Exception: of the package that decodes it, if the file is broken.
    """
    if len(contents) < 33 or contents[12:16] != b"IHDR":
        raise errors.InvalidArgumentError("it has no header")
    width, height, depth, kind = struct.unpack(">IIBB", contents[16:26])
    image_files.check_pixels(height, width)
    if depth == 16:
        pixels = _read_16_bits(contents, height, width, kind)
        pixels = image_files.fit_channels(pixels, channels)
        return pixels if bits == 16 else (pixels >> 8).astype(np.uint8)
    pixels = image_files.fit_channels(_read_with_pillow(contents, channels), channels)
    return pixels if bits == 8 else pixels.astype(np.uint16) * np.uint16(257)


def _read_with_pillow(contents: bytes, channels: int) -> np.ndarray:
    try:
        from PIL import PngImagePlugin
    except ImportError as error:
        raise image_files.missing_package_error("pillow") from error
    # Not by `Image.open`: it warns of large images, and there is a limit here.
    image: Any = PngImagePlugin.PngImageFile(io.BytesIO(contents))
    is_transparent = "transparency" in image.info
    if image.mode == "P":
        if image.palette is None:
            raise errors.InvalidArgumentError("it has no palette")
        image = image.convert("RGBA" if is_transparent else "RGB")
    elif channels == 4 and is_transparent:
        image = image.convert("RGBA")
    elif image.mode == "1":
        image = image.convert("L")
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[..., None]


def _read_16_bits(contents: bytes, height: int, width: int, kind: int) -> np.ndarray:
    """Returns an image of 16 bits a channel, which Pillow would cut to 8."""
    channels, is_interlaced = _CHANNELS[kind], contents[28]
    parts = [data for name, data in _chunks(contents) if name == b"IDAT"]
    passes = _PASSES if is_interlaced else ((0, 0, 1, 1),)
    made = np.zeros((height, width, channels), np.uint16)
    views = [made[top::down, left::right] for top, left, down, right in passes]
    size = sum(v.shape[0] * (1 + v.shape[1] * 2 * channels) for v in views if v.size)
    data = zlib.decompressobj().decompress(b"".join(parts), size)
    if len(data) < size:
        raise errors.InvalidArgumentError("its data end too early")
    at = 0
    for view in views:
        if view.size:
            rows, columns = view.shape[:2]
            length = rows * (1 + columns * 2 * channels)
            raw = np.frombuffer(data, np.uint8, length, at).reshape(rows, -1)
            found = _unfilter(raw, 2 * channels)
            view[...] = found.astype(np.uint8).view(">u2").reshape(view.shape)
            at += length
    return made


def _chunks(contents: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the name and the data of each part of a file."""
    at = len(MAGIC)
    while at + 12 <= len(contents):
        length = int.from_bytes(contents[at : at + 4], "big")
        name, data = contents[at + 4 : at + 8], contents[at + 8 : at + 8 + length]
        told = int.from_bytes(contents[at + 8 + length : at + 12 + length], "big")
        if zlib.crc32(name + data) != told:
            raise errors.InvalidArgumentError(f"its part {name!r} is damaged")
        yield name, data
        at += 12 + length


def _unfilter(raw: np.ndarray, size: int) -> np.ndarray:
    """Returns the bytes of pixels, [rows, columns, bytes of a pixel].

    A row tells by a filter how its bytes are guessed from the pixels to the left, above
    and before that; the file has the differences. All pixels on a diagonal depend on
    those of earlier diagonals only.

    Args:
        raw: for each row the filter, and the differences.
        size: the number of bytes of a pixel.
    """
    filters, differences = raw[:, 0], raw[:, 1:].reshape(len(raw), -1, size)
    if filters.max() > 4:
        raise errors.InvalidArgumentError("it has a filter that PNG does not have")
    rows, columns = differences.shape[:2]
    # A border of zeros above and to the left.
    made = np.zeros((rows + 1, columns + 1, size), np.int32)
    for diagonal in range(rows + columns - 1):
        y = np.arange(max(0, diagonal - columns + 1), min(rows, diagonal + 1))
        x = diagonal - y
        left, above, before = made[y + 1, x], made[y, x + 1], made[y, x]
        to_left, to_above = np.abs(above - before), np.abs(left - before)
        to_before = np.abs(left + above - 2 * before)
        nearest = np.where(
            (to_left <= to_above) & (to_left <= to_before),
            left,
            np.where(to_above <= to_before, above, before),
        )
        guesses = (np.zeros_like(left), left, above, (left + above) // 2, nearest)
        guess = np.choose(filters[y][:, None], guesses)
        made[y + 1, x + 1] = (differences[y, x] + guess) & 255
    return made[1:, 1:]


def encode(image: np.ndarray, compression: int) -> bytes:
    """Returns a file of an image of uint8 or uint16."""
    height, width, channels = image.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 8 * image.itemsize, kind, 0, 0, 0)
    big = image.astype(image.dtype.newbyteorder(">"))
    rows = np.frombuffer(big.tobytes(), np.uint8).reshape(height, -1)
    # Differences to the row above are smaller numbers, and make a smaller file.
    above = np.concatenate([np.zeros_like(rows[:1]), rows[:-1]])
    filtered = np.concatenate([np.full((height, 1), 2, np.uint8), rows - above], axis=1)
    data = zlib.compress(filtered.tobytes(), compression)
    return MAGIC + b"".join(
        struct.pack(">I", len(part))
        + name
        + part
        + struct.pack(">I", zlib.crc32(name + part))
        for name, part in ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    )
