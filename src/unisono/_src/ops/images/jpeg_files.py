"""JPEG files: reading with simplejpeg, whose pixels are TensorFlow's, and writing."""

from __future__ import annotations

import dataclasses
import io
import math
from typing import Any, final

import numpy as np

from unisono._src.foundation import errors
from unisono._src.input.plan import host_buffers
from unisono._src.ops.images import image_files, image_functions

MAGIC = b"\xff\xd8\xff"
# What the warnings of libjpeg begin with; it reads on after them, and so does
# TensorFlow.
_WARNINGS = (
    "Corrupt JPEG data",
    "Inconsistent progression",
    "Invalid SOS parameters for sequential",
    "Unknown Adobe color",
    "Warning:",
)
_EARLY_END = "Premature end of JPEG file"


@final
@dataclasses.dataclass(frozen=True)
class Options:
    """How a file is read; the names and defaults are TensorFlow's.

    Attributes:
        ratio: by what a side is divided: 1, 2, 4 or 8.
        fancy_upscaling: whether colours are interpolated.
        try_recover_truncated: whether a file that ends too early is read.
        dct_method: ``"INTEGER_FAST"`` or ``"INTEGER_ACCURATE"``; the first if empty.
    """

    ratio: int = 1
    fancy_upscaling: bool = True
    try_recover_truncated: bool = False
    dct_method: str = ""

    def __post_init__(self) -> None:
        if self.ratio not in (1, 2, 4, 8):
            raise errors.InvalidArgumentError(
                f"ratio must be 1, 2, 4, or 8, got {self.ratio}."
            )
        methods = ("", "INTEGER_FAST", "INTEGER_ACCURATE")
        if self.dct_method not in methods:
            raise errors.InvalidArgumentError(
                f"dct_method must be one of {methods}, received {self.dct_method!r}."
            )


def decode(contents: bytes, channels: int, options: Options) -> np.ndarray:
    """Returns the image of a file as uint8.

    Raises:
        InvalidArgumentError: it is too large.
        ValueError: of the package that decodes it, if the file is broken.
    """
    try:
        import simplejpeg
    except ImportError as error:
        raise image_files.missing_package_error("simplejpeg") from error
    height, width, space, _ = simplejpeg.decode_jpeg_header(contents, strict=False)
    if not 0 < height * width <= image_files.MOST_PIXELS:
        image_files.check_pixels(height, width)
    if channels == 0:
        channels = 1 if space == "Gray" else 3
    is_ink = space in ("CMYK", "YCCK")
    if is_ink and channels == 1:
        raise errors.InvalidArgumentError("it has inks (CMYK), which give no grey")
    wanted = "CMYK" if is_ink else "GRAY" if channels == 1 else "RGB"
    given: dict[str, Any] = {
        "colorspace": wanted,
        "fastdct": options.dct_method != "INTEGER_ACCURATE",
        "fastupsample": not options.fancy_upscaling,
    }
    if options.ratio == 1:
        shape = height, width, len(wanted) if wanted != "GRAY" else 1
        is_large = 2 * math.prod(shape) >= host_buffers.LEAST_ROOM
        given["buffer"] = image_functions.buffers.allocate(
            shape, np.uint8, has_room=is_large
        )
    else:
        given |= _find_size(options.ratio, height, width)
    pixels: np.ndarray
    try:
        pixels = simplejpeg.decode_jpeg(contents, strict=True, **given)
    except ValueError as error:
        # The data have no marker of the end within them, and begin at the last marker
        # of a start. An early end may come after another warning.
        is_whole = contents.rfind(b"\xff\xd9") > contents.rfind(b"\xff\xda")
        is_harmless = is_whole or options.try_recover_truncated
        known = (*_WARNINGS, _EARLY_END) if not is_whole else _WARNINGS
        if not is_harmless or not str(error).startswith(known):
            raise
        pixels = simplejpeg.decode_jpeg(contents, strict=False, **given)
    return _to_colours(pixels, contents) if is_ink else pixels


def _find_size(ratio: int, height: int, width: int) -> dict[str, Any]:
    """Returns the arguments that say how many pixels there shall be.

    Raises:
        InvalidArgumentError: there are too few pixels for a ratio.
    """
    if max(height, width) < 8:
        # The package is told a size, and several ratios give one of so few pixels.
        raise errors.InvalidArgumentError(
            f"{height} × {width} pixels are too few for a ratio"
        )
    least = {"min_height": -(-height // ratio), "min_width": -(-width // ratio)}
    return least | {"min_factor": ratio}


def _to_colours(inks: np.ndarray, contents: bytes) -> np.ndarray:
    """Returns the colours of inks; Adobe's files have what is left without the ink."""
    left = inks.astype(np.uint16)
    if b"Adobe" not in contents[: contents.find(b"\xff\xda")]:
        left = 255 - left
    return (left[..., :3] * left[..., 3:] // 255).astype(np.uint8)


def encode(image: np.ndarray, chroma_downsampling: bool, **options: Any) -> bytes:
    """Returns a file of an image of uint8 with one or three channels."""
    try:
        from PIL import Image
    except ImportError as error:
        raise image_files.missing_package_error("pillow") from error
    written = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(
        written, "JPEG", subsampling=2 if chroma_downsampling else 0, **options
    )
    return written.getvalue()
