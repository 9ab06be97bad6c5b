"""What all formats of image files have in common: limits, channels and errors."""

from __future__ import annotations

import numpy as np

from unisono._src.foundation import errors

# An image with more pixels is refused before memory is asked for: a small file may
# claim any size. 2**28 pixels of three colours are 0.8 GB. TensorFlow's limit is twice
# as much, for each frame of an animation.
MOST_PIXELS = 2**28

# The weights of colours in the grey of a PNG file, in parts of 2**15: libpng's.
_GREY = np.array([9797, 19234, 3737], np.uint32)


def check_pixels(height: int, width: int, frames: int = 1) -> None:
    """Raises `InvalidArgumentError` if an image is empty, or larger than the limit."""
    if height <= 0 or width <= 0 or frames <= 0:
        raise errors.InvalidArgumentError(
            f"the file has {frames} images of {height} × {width} pixels"
        )
    if height * width * frames > MOST_PIXELS:
        raise errors.InvalidArgumentError(
            f"the file has {frames} × {height} × {width} pixels, and the limit is "
            f"{MOST_PIXELS}"
        )


def missing_package_error(package: str) -> ImportError:
    """Returns the error for a package that decodes images and is not installed."""
    return ImportError(
        f"Image files need the package {package}: pip install 'unisono[images]'."
    )


def fit_channels(pixels: np.ndarray, channels: int) -> np.ndarray:
    """Returns an image with another number of channels; 0 for those that it has.

    Args:
        pixels: [height, width, channels]; two channels are grey and alpha.
        channels: 1 for grey, 3 for colours, 4 for colours and alpha.
    """
    given = pixels.shape[-1]
    if channels in (0, given):
        return pixels
    count = given - (given % 2 == 0)
    colours, alpha = pixels[..., :count], pixels[..., count:]
    if channels == 1 and count == 3:
        is_grey = (colours == colours[..., :1]).all(-1, keepdims=True)
        # libpng rounds numbers of 16 bits, and cuts those of 8.
        half = np.uint32((pixels.itemsize - 1) << 14)
        mixed = ((colours @ _GREY)[..., None] + half) >> np.uint32(15)
        return np.where(is_grey, colours[..., :1], mixed.astype(pixels.dtype))
    if channels >= 3 and count == 1:
        colours = np.repeat(colours, 3, axis=-1)
    if channels == 4:
        if not alpha.shape[-1]:
            alpha = np.full_like(pixels[..., :1], np.iinfo(pixels.dtype).max)
        colours = np.concatenate([colours, alpha], axis=-1)
    return colours
