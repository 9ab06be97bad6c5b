"""The numbers of images: types, grey, brightness, contrast, hue, saturation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import wide_numbers
from unisono._src.input.plan import host_buffers
from unisono._src.ops import kinds, tensors
from unisono._src.ops.images import image_functions
from unisono._src.ops.images.image_functions import (
    ArrayModule,
    as_result,
    image_function,
    read_array,
    read_images,
)
from unisono._src.ops.kinds import ElementType
from unisono._src.ops.tensors import TensorLike
from unisono._src.values import jax_tapes

__all__ = [
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "convert_image_dtype",
    "grayscale_to_rgb",
    "per_image_standardization",
    "rgb_to_grayscale",
]

_F = np.float32
_ROUNDING = (
    "Integer pixels that JAX computes may differ by 1, because its floats are rounded "
    "differently; in Dataset.map the pixels are the same as TensorFlow's."
)


@image_function(
    "image.convert_image_dtype",
    difference=(
        "Unless jax_enable_x64 is set, JAX refuses images of 64-bit integers, because "
        "their white is 2**63 - 1; in Dataset.map NumPy converts them. Floats that are "
        "out of range for an integer type become its nearest limit, also without "
        "`saturate`; in TensorFlow the result is undefined."
    ),
)
def convert_image_dtype(
    xp: ArrayModule,
    image: TensorLike,
    dtype: ElementType,
    saturate: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns images in another dtype; 1.0 stands for the largest integer.

    Args:
        xp: the array module.
        image: images of integers from 0 to the largest of their dtype, or of floats
            from 0 to 1.
        dtype: the dtype of the result.
        saturate: whether integers that are out of range are clipped; floats always
            are.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        TypeError: JAX does not have one of the dtypes.

    >>> convert_image_dtype(np.array([[[0, 51, 255]]], np.uint8), "float32").tolist()
    [[[0.0, 0.2..., 1.0]]]
    """
    _refuse_wide(xp, image, dtype)
    found = read_array(xp, "convert_image_dtype", image)
    wanted = np.dtype(dtype)
    kinds.check("convert_image_dtype", wanted, kinds.REAL)
    if found.dtype == wanted:
        return found
    is_whole = kinds.kind(found.dtype) == "i", kinds.kind(wanted) == "i"
    if is_whole == (True, True):
        return _convert_integers(xp, found, wanted, saturate)
    if is_whole == (True, False):
        made = _as_floats(xp, found, wanted)
        made *= wanted.type(1.0 / kinds.limits(found.dtype).max)
        return made
    if not is_whole[1]:
        return found.astype(wanted)
    found = found * np.dtype(found.dtype).type(kinds.limits(wanted).max + 0.5)
    return _to_integers(xp, found, wanted, saturate)


def _as_floats(xp: ArrayModule, image: jax.Array, wanted: np.dtype) -> jax.Array:
    """Returns a copy of an image in a type of floats; `resize` may read it in place."""
    if xp is not np or 2 * image.size * wanted.itemsize < host_buffers.LEAST_ROOM:
        return image.astype(wanted)
    return as_result(
        image_functions.buffers.copy(np.asarray(image), wanted, has_room=True)
    )


def _refuse_wide(xp: ArrayModule, image: object, dtype: ElementType) -> None:
    """Raises if JAX would take numbers of 64 bits for numbers of 32 bits."""
    if xp is np:
        return
    for kind in (getattr(image, "dtype", None), np.dtype(dtype)):
        is_wide = kind is not None and np.dtype(kind).kind in "iu"
        if is_wide and wide_numbers.usable_type(np.dtype(kind)) != kind:
            raise TypeError(
                f"JAX has no {kind} here, and images of another type have another "
                "white. Convert the image to float32, uint8 or uint16 in Dataset.map, "
                'or write jax.config.update("jax_enable_x64", True).'
            )


def _convert_integers(
    xp: ArrayModule, image: jax.Array, wanted: np.dtype, saturate: bool
) -> jax.Array:
    largest, most = kinds.limits(image.dtype).max, kinds.limits(wanted).max
    if largest > most:
        scaled = image // np.dtype(image.dtype).type((largest + 1) // (most + 1))
        return _to_integers(xp, scaled, wanted, saturate)
    scale = wanted.type((most + 1) // (largest + 1))
    found: jax.Array = _to_integers(xp, image, wanted, saturate) * scale
    return found


def _to_integers(
    xp: ArrayModule, numbers: jax.Array, wanted: np.dtype, saturate: bool
) -> jax.Array:
    """Returns numbers as integers of a type."""
    own, limits = kinds.limits(numbers.dtype), kinds.limits(wanted)
    if kinds.kind(numbers.dtype) == "f":
        # Without limits a float beyond them would become any number.
        low, high = _floats_within(np.dtype(numbers.dtype), limits.min, limits.max)
        numbers = xp.clip(numbers, low, high)
    elif saturate:
        low, high = max(own.min, limits.min), min(own.max, limits.max)
        numbers = xp.clip(numbers, low, high)
    return numbers.astype(wanted)


def _floats_within(kind: np.dtype, low: int, high: int) -> tuple[float, float]:
    """Returns the least and the largest float of a type that are within a range."""
    top = kind.type(min(high, kinds.limits(kind).max))
    if int(top) > high:
        top = np.nextafter(top, kind.type(0))
    return float(max(low, kinds.limits(kind).min)), float(top)


@image_function("image.rgb_to_grayscale", difference=_ROUNDING)
def rgb_to_grayscale(
    xp: ArrayModule, images: TensorLike, name: str | None = None
) -> jax.Array:
    """Returns RGB images as grayscale images, which have one channel.

    Raises:
        ValueError: the images do not have three channels.

    >>> rgb_to_grayscale([[[0.0, 1.0, 0.0]]]).tolist()
    [[[0.58...]]]
    """
    given, floats = _to_floats(xp, "rgb_to_grayscale", images)
    _check_channels("rgb_to_grayscale", floats)
    red, green, blue = (floats[..., c] for c in range(3))
    grey = red * _F(0.2989) + green * _F(0.587) + blue * _F(0.114)
    return _from_floats(xp, grey[..., None], given, saturate=False)


@image_function("image.grayscale_to_rgb")
def grayscale_to_rgb(
    xp: ArrayModule, images: TensorLike, name: str | None = None
) -> jax.Array:
    """Returns grayscale images as RGB images, which have three equal channels.

    Raises:
        ValueError: the images do not have one channel.

    >>> grayscale_to_rgb([[[7]]]).tolist()
    [[[7, 7, 7]]]
    """
    found = read_array(xp, "grayscale_to_rgb", images)
    if not found.ndim or found.shape[-1] != 1:
        raise ValueError(
            "Last dimension of a grayscale image should be size 1; received shape "
            f"{found.shape}."
        )
    made: jax.Array = xp.repeat(found, 3, axis=-1)
    return made


@image_function("image.per_image_standardization")
def per_image_standardization(xp: ArrayModule, image: TensorLike) -> jax.Array:
    """Returns images as float32, each with mean 0 and standard deviation 1.

    Images are divided by their standard deviation, but by at least
    ``1 / sqrt(number of elements)``.

    >>> per_image_standardization([[[1.0], [3.0]]]).tolist()
    [[[-1.0], [1.0]]]
    """
    name = "per_image_standardization"
    images = read_images(xp, name, image, range(3, 9)).astype(_F)
    axes = (-3, -2, -1)
    images = images - images.mean(axes, keepdims=True)
    deviation = xp.sqrt((images * images).mean(axes, keepdims=True))
    least = _F(1) / np.sqrt(_F(np.prod(images.shape[-3:])))
    found: jax.Array = images / xp.maximum(deviation, least)
    return found


@image_function("image.adjust_brightness", difference=_ROUNDING)
def adjust_brightness(xp: ArrayModule, image: TensorLike, delta: float) -> jax.Array:
    """Returns images with `delta` added to each channel, where white is 1.

    >>> adjust_brightness(np.array([[[0, 200]]], np.uint8), 0.4).tolist()
    [[[102, 255]]]
    """
    given, floats = _to_floats(xp, "adjust_brightness", image)
    return _from_floats(xp, floats + _number(xp, delta, floats), given, saturate=True)


@image_function("image.adjust_contrast", difference=_ROUNDING)
def adjust_contrast(
    xp: ArrayModule, images: TensorLike, contrast_factor: float
) -> jax.Array:
    """Returns images whose contrast is multiplied by `contrast_factor`.

    The factor applies to the distance of each pixel from the mean of its channel.

    >>> adjust_contrast([[[1.0], [3.0]]], 2.0).tolist()
    [[[0.0], [4.0]]]
    """
    given, floats = _to_floats(xp, "adjust_contrast", images)
    floats = read_images(xp, "adjust_contrast", floats, range(3, 9))
    *batch, height, width, channels = floats.shape
    pixels = floats.reshape(*batch, height * width, channels)
    mean = _add_by_halves(pixels) * (_F(1) / _F(pixels.shape[-2]))
    changed = mean + _number(xp, contrast_factor, pixels) * (pixels - mean)
    return _from_floats(xp, changed.reshape(floats.shape), given, saturate=True)


def _add_by_halves(pixels: jax.Array) -> jax.Array:
    """Returns the sum along the last axis but one, in TensorFlow's order."""
    while (count := pixels.shape[-2]) > 1:
        half = count // 2
        added = pixels[..., :half, :] + pixels[..., count - half :, :]
        if count % 2:
            xp = np if isinstance(pixels, np.ndarray) else jnp
            middle = pixels[..., half : half + 1, :]
            pixels = xp.concatenate([added, middle], axis=-2)
        else:
            pixels = added
    return pixels


@image_function("image.adjust_hue", difference=_ROUNDING)
def adjust_hue(
    xp: ArrayModule, image: TensorLike, delta: float, name: str | None = None
) -> jax.Array:
    """Returns RGB images whose hue is rotated by `delta`, a fraction of the circle.

    Raises:
        ValueError: `delta` is known and not within [-1, 1], or the images do not have
            three channels.

    >>> adjust_hue([[[1.0, 0.0, 0.0]]], 0.5).tolist()
    [[[0.0, 1.0, 1.0]]]
    """
    if not jax_tapes.is_traced(delta) and not -1 <= float(delta) <= 1:
        raise ValueError(f"delta must be in the interval [-1, 1], received {delta}.")
    given, floats = _to_floats(xp, "adjust_hue", image)
    _check_channels("adjust_hue", floats)
    red, green, blue = (floats[..., c] for c in range(3))
    least = xp.minimum(xp.minimum(red, green), blue)
    most = xp.maximum(xp.maximum(red, green), blue)
    middle = xp.maximum(
        xp.minimum(red, green), xp.minimum(xp.maximum(red, green), blue)
    )
    sector = xp.where(
        red < green,
        xp.where(blue < red, 1, xp.where(blue > green, 3, 2)),
        xp.where(blue < green, 0, xp.where(blue > red, 4, 5)),
    )
    part = (middle - least) / (most - least)
    part = xp.where(sector % 2 == 0, part, _F(1) - part)
    hue = xp.where(most == least, _F(0), sector.astype(_F) + part)
    hue = hue + _number(xp, delta, hue) * _F(6)
    hue = hue - _F(6) * xp.floor(hue / _F(6))
    # A number just below 0 is rounded to 6 by this.
    hue = xp.where(hue >= 6, hue - _F(6), hue)
    sector = hue.astype(np.int32)
    part = hue - sector.astype(_F)
    part = xp.where(sector % 2 == 0, part, _F(1) - part)
    middle = least + part * (most - least)
    return _from_floats(
        xp, _pick_channels(xp, sector, most, middle, least), given, saturate=False
    )


# For each sixth of the circle: whether a channel is the most, the middle or the least.
_RED, _GREEN, _BLUE = (0, 1, 2, 2, 1, 0), (1, 0, 0, 1, 2, 2), (2, 2, 1, 0, 0, 1)


def _pick_channels(
    xp: ArrayModule,
    sector: jax.Array,
    most: jax.Array,
    middle: jax.Array,
    least: jax.Array,
) -> jax.Array:
    """Returns the colours of a sixth of the circle of hues."""
    values = (most, middle, least)
    channels = []
    for ranks in (_RED, _GREEN, _BLUE):
        rank = np.array(ranks)[sector] if xp is np else jnp.array(ranks)[sector]
        channels.append(
            xp.where(rank == 0, values[0], xp.where(rank == 1, values[1], values[2]))
        )
    found: jax.Array = xp.stack(channels, axis=-1)
    return found


@image_function("image.adjust_saturation", difference=_ROUNDING)
def adjust_saturation(
    xp: ArrayModule,
    image: TensorLike,
    saturation_factor: float,
    name: str | None = None,
) -> jax.Array:
    """Returns RGB images whose saturation is multiplied, and limited to 1.

    Raises:
        ValueError: the images do not have three channels.

    >>> adjust_saturation([[[1.0, 0.5, 0.5]]], 2.0).tolist()
    [[[1.0, 0.0, 0.0]]]
    """
    given, floats = _to_floats(xp, "adjust_saturation", image)
    _check_channels("adjust_saturation", floats)
    red, green, blue = (floats[..., c] for c in range(3))
    most = xp.maximum(red, xp.maximum(green, blue))
    spread = most - xp.minimum(red, xp.minimum(green, blue))
    saturation = xp.where(most > 0, spread / most, _F(0))
    unit = _F(1) / (_F(6) * spread)
    # NumPy adds the constants in 64 bits, as TensorFlow does.
    hue = xp.where(
        red == most,
        unit * (green - blue),
        xp.where(
            green == most,
            (unit * (blue - red) + np.float64(2 / 6)).astype(_F),
            (unit * (red - green) + np.float64(4 / 6)).astype(_F),
        ),
    )
    hue = xp.where(spread <= 0, _F(0), hue)
    hue = xp.where(hue < 0, hue + _F(1), hue) * _F(6)
    factor = _number(xp, saturation_factor, saturation)
    chroma = xp.clip(saturation * factor, _F(0), _F(1)) * most
    least = most - chroma
    sector = hue.astype(np.int32)
    along = hue - _F(2) * xp.floor(hue / _F(2))
    middle = chroma * (_F(1) - xp.abs(along - _F(1)))
    colours = _pick_channels(xp, sector % 6, chroma, middle, xp.zeros_like(chroma))
    # TensorFlow has no colour for the hue 1, to which one just below 0 is rounded.
    colours = xp.where((sector < 6)[..., None], colours, _F(0))
    return _from_floats(xp, colours + least[..., None], given, saturate=False)


def _to_floats(xp: ArrayModule, name: str, image: object) -> tuple[np.dtype, jax.Array]:
    """Returns the type of images, and the images as float16 or float32."""
    _refuse_wide(xp, image, _F)
    found = read_array(xp, name, image)
    given = np.dtype(found.dtype)
    if given in (np.float16, np.float32):
        return given, found
    # Not a `HostArray`: what is computed with it changes arrays of its own in place.
    floats: jax.Array = xp.asarray(convert_image_dtype(found, _F))
    return given, floats


def _from_floats(
    xp: ArrayModule, floats: jax.Array, given: np.dtype, saturate: bool
) -> jax.Array:
    """Returns images in the type that they had."""
    return convert_image_dtype(floats, given, saturate)


def _check_channels(name: str, images: jax.Array) -> None:
    if images.ndim < 3 or images.shape[-1] != 3:
        raise ValueError(
            "input must be at least 3-D and have 3 channels; received shape "
            f"{images.shape}, in {name}."
        )


def _number(xp: ArrayModule, x: object, like: jax.Array) -> jax.Array:
    """Returns an argument that is one number in the type of images.

    Raises:
        ValueError: it has axes.
    """
    found = np.asarray(x) if xp is np else tensors.unwrap(x)
    if np.ndim(found):
        raise ValueError(f"Expected one number, received shape {np.shape(found)}.")
    number: jax.Array = xp.asarray(found).astype(like.dtype)
    return number
