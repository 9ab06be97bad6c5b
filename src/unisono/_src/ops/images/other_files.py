"""GIF and BMP files."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np

from unisono._src.foundation import errors
from unisono._src.ops.images import image_files

GIF_MAGIC = b"GIF8"
BMP_MAGIC = b"BM"


def decode_gif(contents: bytes, only_first: bool) -> np.ndarray:
    """Returns the frames of a file, [frames, height, width, 3].

    Raises:
        InvalidArgumentError: it is too large.
        Exception: of the package that decodes it, if the file is broken.
    """
    try:
        from PIL import GifImagePlugin
    except ImportError as error:
        raise image_files.missing_package_error("pillow") from error
    if len(contents) < 10:
        raise errors.InvalidArgumentError("it has no header")
    width, height = struct.unpack("<HH", contents[6:10])
    image_files.check_pixels(height, width)
    image: Any = GifImagePlugin.GifImageFile(io.BytesIO(contents))
    count = 1 if only_first else image.n_frames
    image_files.check_pixels(height, width, count)
    made = np.zeros((count, height, width, 3), np.uint8)
    for number in range(count):
        image.seek(number)
        pixels = np.asarray(image.convert("RGBA"))
        # What a frame leaves open is that of the frame before, or black.
        made[number] = np.where(
            pixels[..., 3:] > 0, pixels[..., :3], made[number - 1] if number else 0
        )
    return made


def decode_bmp(contents: bytes, channels: int) -> np.ndarray:
    """Returns the image of a file as uint8; the numbers of a palette stay as they are.

    Raises:
        InvalidArgumentError: it is too large, too short, or of another kind.
    """
    if len(contents) < 32:
        raise errors.InvalidArgumentError("it has no header")
    (start,) = struct.unpack("<i", contents[10:14])
    width, height = struct.unpack("<ii", contents[18:26])
    (bits,) = struct.unpack("<h", contents[28:30])
    if bits not in (8, 24, 32):
        raise errors.InvalidArgumentError(
            f"its pixels have {bits} bits, and only 8, 24 and 32 are known"
        )
    count = bits // 8
    image_files.check_pixels(abs(height), width)
    length = (count * width + 3) // 4 * 4
    if start < 0 or len(contents) - start != length * abs(height):
        raise errors.InvalidArgumentError(
            f"it has {len(contents)} bytes instead of {start + length * abs(height)}"
        )
    rows = np.frombuffer(contents, np.uint8, offset=start).reshape(-1, length)
    pixels = rows[:, : width * count].reshape(-1, width, count)
    if height > 0:  # The last row is the first in the file.
        pixels = pixels[::-1]
    if count > 1:  # Blue, green, red.
        pixels = pixels[..., [2, 1, 0, 3][:count]]
    return image_files.fit_channels(pixels, channels)
