"""Images of files' contents, and back: ``tf.io.decode_image`` and its like."""

from __future__ import annotations

import jax
import numpy as np

from unisono._src.foundation import dtypes, errors
from unisono._src.foundation.host_numbers import HostArray
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.input.plan import elements
from unisono._src.ops.images import (
    colours,
    files,
    image_files,
    jpeg_files,
    other_files,
    png_files,
)
from unisono._src.ops.images.files import Text
from unisono._src.ops.images.image_functions import ArrayModule, image_function
from unisono._src.ops.kinds import ElementType
from unisono._src.ops.tensors import TensorLike

__all__ = [
    "decode_bmp",
    "decode_gif",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "encode_jpeg",
    "encode_png",
]

_FORMATS = {
    jpeg_files.MAGIC: "JPEG",
    png_files.MAGIC: "PNG",
    other_files.GIF_MAGIC: "GIF",
    other_files.BMP_MAGIC: "BMP",
}
_LIMIT = f"An image of more than {image_files.MOST_PIXELS} pixels is an error."
_ANY = ("JPEG", "PNG", "GIF")
# The numbers of channels that can be asked for, where not all can.
_CHANNELS = {"JPEG": (0, 1, 3), "GIF": (0, 3), "BMP": (0, 3, 4)}


def _decode_photo(
    contents: object, channels: int = 0, *options: object, **more: object
) -> np.ndarray | None:
    """Returns the image of a JPEG file; None for all else, also for broken files."""
    if options or more or type(contents) is not HostArray or channels not in (0, 3):
        return None
    given = contents.item() if not contents.ndim else None
    if not isinstance(given, bytes) or not given.startswith(jpeg_files.MAGIC):
        return None
    try:
        return jpeg_files.decode(given, channels, _NO_OPTIONS).view(HostArray)
    except Exception:
        return None  # It is raised again, with the name of the file.


_NO_OPTIONS = jpeg_files.Options()


@image_function(
    "io.decode_jpeg",
    "image.decode_jpeg",
    difference=(
        f"{_LIMIT} The chroma subsampling must be 4:4:4, 4:2:2, 4:2:0, 4:4:0 or 4:1:1. "
        "`acceptable_fraction` has no effect. In a truncated file the pixels near the "
        "end may differ. A `ratio` other than 1 needs a height or width of at least 8."
    ),
    is_of_arrays=False,
    quick=_decode_photo,
)
def decode_jpeg(
    xp: ArrayModule,
    contents: Text,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1,
    dct_method: str = "",
    name: str | None = None,
) -> jax.Array:
    """Returns the image of a JPEG file as uint8, [height, width, channels].

    It also reads PNG files, and GIF files with one frame. It needs the extra
    ``unisono[images]``.

    Args:
        xp: the array module.
        contents: the bytes of the file.
        channels: 1 for grayscale, 3 for RGB, 0 for the number in the file.
        ratio: the number by which height and width are divided: 1, 2, 4 or 8.
        fancy_upscaling: whether subsampled colours are interpolated.
        try_recover_truncated: whether to read a truncated file, too.
        acceptable_fraction: accepted for compatibility with TensorFlow and ignored.
        dct_method: ``"INTEGER_ACCURATE"``, or ``"INTEGER_FAST"``, the default.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        ImportError: the packages of the extra are not installed.
        InvalidArgumentError: the file is corrupt, has another format, or is too large.
    """
    options = jpeg_files.Options(
        ratio, fancy_upscaling, try_recover_truncated, dct_method
    )
    found = _decode("decode_jpeg", contents, channels, _ANY, jpeg=options)
    return _only_frame(xp, "decode_jpeg", found)


@image_function(
    "io.decode_png",
    "image.decode_png",
    difference=(
        f"{_LIMIT} With channels=4, pixels of fewer than 8 bits are opaque; TensorFlow "
        "gives them an alpha of 15 or less."
    ),
    is_of_arrays=False,
)
def decode_png(
    xp: ArrayModule,
    contents: Text,
    channels: int = 0,
    dtype: ElementType = dtypes.uint8,
    name: str | None = None,
) -> jax.Array:
    """Returns the image of a PNG file as uint8 or uint16, [height, width, channels].

    It also reads JPEG files, and GIF files with one frame. It needs the extra
    ``unisono[images]``.

    Args:
        xp: the array module.
        contents: the bytes of the file.
        channels: 1 for grayscale, 3 for RGB, 4 for RGBA, 0 for the number in the file.
        dtype: uint8 or uint16.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        ImportError: the packages of the extra are not installed.
        InvalidArgumentError: the file is corrupt, has another format, or is too large.

    >>> import unisono
    >>> unisono.io.decode_png(unisono.io.encode_png([[[0], [65535]]])).tolist()
    Traceback (most recent call last):
        ...
    unisono.errors.InvalidArgumentError: encode_png takes uint8 and uint16, received ...
    """
    kind = np.dtype(dtype)
    if kind not in (np.uint8, np.uint16):
        raise errors.InvalidArgumentError(
            f"dtype of decode_png must be uint8 or uint16, received {kind}."
        )
    found = _decode("decode_png", contents, channels, _ANY, kind)
    return _only_frame(xp, "decode_png", found)


@image_function(
    "io.decode_gif",
    "image.decode_gif",
    difference=(
        f"{_LIMIT} The disposal method that restores the previous frame is applied; "
        "TensorFlow ignores it."
    ),
    is_of_arrays=False,
)
def decode_gif(xp: ArrayModule, contents: Text, name: str | None = None) -> jax.Array:
    """Returns the frames of a GIF file as uint8, [frames, height, width, 3].

    Raises:
        ImportError: the packages of the extra ``unisono[images]`` are not installed.
        InvalidArgumentError: the file is corrupt, has another format, or is too large.
    """
    found = _decode("decode_gif", contents, 3, _ANY)
    made: jax.Array = xp.asarray(found if found.ndim == 4 else found[None])
    return made


@image_function(
    "io.decode_bmp", "image.decode_bmp", difference=_LIMIT, is_of_arrays=False
)
def decode_bmp(
    xp: ArrayModule, contents: Text, channels: int = 0, name: str | None = None
) -> jax.Array:
    """Returns the image of a BMP file as uint8, [height, width, channels].

    Raises:
        InvalidArgumentError: the file is corrupt, has another format, or is too large.
    """
    made: jax.Array = xp.asarray(_decode("decode_bmp", contents, channels, ("BMP",)))
    return made


@image_function(
    "io.decode_image", "image.decode_image", difference=_LIMIT, is_of_arrays=False
)
def decode_image(
    xp: ArrayModule,
    contents: Text,
    channels: int | None = None,
    dtype: ElementType = dtypes.uint8,
    name: str | None = None,
    expand_animations: bool = True,
) -> jax.Array:
    """Returns the image of a JPEG, PNG, GIF or BMP file, [height, width, channels].

    It needs the extra ``unisono[images]``.

    Args:
        xp: the array module.
        contents: the bytes of the file.
        channels: 1 for grayscale, 3 for RGB, 4 for RGBA, 0 or None for the number in
            the file. Not every format supports each of them.
        dtype: the dtype of the image; see `image.convert_image_dtype`.
        name: accepted for compatibility with TensorFlow and ignored.
        expand_animations: whether to return all frames of a GIF file, [frames, height,
            width, channels], instead of the first one only.

    Raises:
        ImportError: the packages of the extra are not installed.
        InvalidArgumentError: the file is corrupt, has another format, or is too large.
    """
    kind = np.dtype(dtype)
    # TensorFlow decodes to 16 bits, and converts, unless it is one of these.
    first = kind if kind in (np.uint8, np.uint16, np.float32) else np.dtype(np.uint16)
    found = _decode(
        "decode_image",
        contents,
        channels or 0,
        tuple(_FORMATS.values()),
        first,
        only_first=not expand_animations,
    )
    if not expand_animations and found.ndim == 4:
        found = found[0]
    made: jax.Array = xp.asarray(found)
    return made if first == kind else colours.convert_image_dtype(made, kind)


def _only_frame(xp: ArrayModule, name: str, found: np.ndarray) -> jax.Array:
    """Returns an image; the frames of an animation are an error."""
    if found.ndim == 4:
        if len(found) > 1:
            raise errors.InvalidArgumentError(
                f"Got {len(found)} frames, but animated gifs can only be decoded by "
                f"io.decode_gif or io.decode_image, not {name}."
            )
        found = found[0]
    made: jax.Array = xp.asarray(found)
    return made


def _decode(
    name: str,
    contents: object,
    channels: int,
    formats: tuple[str, ...],
    dtype: np.dtype = dtypes.uint8,
    jpeg: jpeg_files.Options = _NO_OPTIONS,
    only_first: bool = False,
) -> np.ndarray:
    """Returns the image or frames of a file; errors name the function and the file."""
    if channels not in (0, 1, 3, 4):
        raise errors.InvalidArgumentError(
            f"channels of {name} must be 0, 1, 3 or 4, got {channels}."
        )
    given = files.read_text(name, "contents", contents)
    format = _find_format(given)
    if format not in formats:
        known = ", ".join(formats)
        what = f"it is a {format} file" if format else "its format is not known"
        raise errors.InvalidArgumentError(
            f"{name} cannot decode {_tell(contents, given)}: {what}. It takes {known}."
        )
    if channels not in _CHANNELS.get(format, (channels,)):
        raise errors.InvalidArgumentError(
            f"channels must be one of {_CHANNELS[format]} for a {format} file, got "
            f"{channels}, in {name}."
        )
    try:
        return _read(given, format, channels, dtype, jpeg, only_first)
    except ImportError:
        raise
    except Exception as error:  # The packages raise whatever a broken file causes.
        raise errors.InvalidArgumentError(
            f"{name} cannot decode {_tell(contents, given)}, a {format} file: {error}."
        ) from error


def _find_format(contents: bytes) -> str:
    """Returns the format that the first bytes of a file tell; "" if it is not known."""
    for magic, format in _FORMATS.items():
        if contents.startswith(magic):
            return format
    return ""


def _tell(contents: object, given: bytes) -> str:
    """Returns the words of errors for a file, which an array may know by its path."""
    path = getattr(contents, "path", "")
    return f"the file {path}" if path else f"contents of {len(given)} bytes"


def _read(
    contents: bytes,
    format: str,
    channels: int,
    dtype: np.dtype,
    jpeg: jpeg_files.Options,
    only_first: bool,
) -> np.ndarray:
    """Returns what a file has, in uint8, uint16 or float32."""
    if format == "PNG":
        pixels = png_files.decode(contents, channels, 8 if dtype == np.uint8 else 16)
    elif format == "JPEG":
        pixels = jpeg_files.decode(contents, channels, jpeg)
    elif format == "GIF":
        pixels = other_files.decode_gif(contents, only_first)
    else:
        pixels = other_files.decode_bmp(contents, channels)
    if pixels.dtype == dtype:
        return pixels
    if dtype == np.uint16:
        return pixels.astype(np.uint16) * np.uint16(256)
    return pixels.astype(np.float32) * np.float32(1 / np.iinfo(pixels.dtype).max)


def _read_pixels(
    name: str, image: TensorLike, types: tuple[type, ...], channels: tuple[int, ...]
) -> np.ndarray:
    """Returns an image that is to be written.

    Raises:
        InvalidArgumentError: the format has no such images.
    """
    found = np.asarray(elements.to_array(image))
    if found.dtype not in types:
        known = " and ".join(t.__name__ for t in types)
        raise errors.InvalidArgumentError(
            f"{name} takes {known}, received {found.dtype}."
        )
    if found.ndim != 3 or 0 in found.shape or found.shape[-1] not in channels:
        raise errors.InvalidArgumentError(
            f"{name} takes [height, width, channels] with {channels} channels, "
            f"received shape {list(found.shape)}."
        )
    return np.ascontiguousarray(found)


@everyday_name("io.encode_png", "image.encode_png")
def encode_png(
    image: TensorLike, compression: int = -1, name: str | None = None
) -> elements.HostArray:
    """Returns an image as the contents of a PNG file.

    Args:
        image: an image [height, width, channels] of uint8 or uint16, with one to four
            channels.
        compression: the level, from 0 (none) to 9; -1 for the default.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: the image has another dtype or shape, or `compression` is
            out of range.

    >>> import unisono
    >>> file = encode_png(np.array([[[0], [65535]]], np.uint16))
    >>> unisono.io.decode_png(file, dtype=np.uint16).tolist()
    [[[0], [65535]]]
    """
    pixels = _read_pixels("encode_png", image, (np.uint8, np.uint16), (1, 2, 3, 4))
    if not -1 <= compression <= 9:
        raise errors.InvalidArgumentError(
            f"compression should be in [-1, 9], got {compression}."
        )
    made: elements.HostArray = elements.present(png_files.encode(pixels, compression))
    return made


@everyday_name("io.encode_jpeg", "image.encode_jpeg")
def encode_jpeg(
    image: TensorLike,
    format: str = "",
    quality: int = 95,
    progressive: bool = False,
    optimize_size: bool = False,
    chroma_downsampling: bool = True,
    density_unit: str = "in",
    x_density: int = 300,
    y_density: int = 300,
    xmp_metadata: str = "",
    name: str | None = None,
) -> elements.HostArray:
    """Returns an image as the contents of a JPEG file.

    It needs the extra ``unisono[images]``.

    Args:
        image: an image [height, width, channels] of uint8, with one or three channels.
        format: ``"grayscale"`` or ``"rgb"``; if empty, the number of channels decides.
        quality: from 0 to 100.
        progressive: whether to write a progressive file, which begins with a coarse
            image.
        optimize_size: whether to spend more time to get a smaller file.
        chroma_downsampling: whether to store colours at half the resolution.
        density_unit: the unit of the densities, ``"in"`` or ``"cm"``.
        x_density: the horizontal number of pixels per unit.
        y_density: the vertical number of pixels per unit.
        xmp_metadata: XMP metadata to store in the file.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        ImportError: the packages of the extra are not installed.
        InvalidArgumentError: the image has another dtype or shape, or an argument has a
            value that is not allowed.
    """
    wanted = {"": (1, 3), "grayscale": (1,), "rgb": (3,)}.get(format)
    units = {"in": 1.0, "cm": 2.54}
    if wanted is None or density_unit not in units or not 0 <= quality <= 100:
        raise errors.InvalidArgumentError(
            "format must be '', 'grayscale' or 'rgb', density_unit 'in' or 'cm', and "
            f"quality within [0, 100]; received {format!r}, {density_unit!r} and "
            f"{quality}."
        )
    pixels = _read_pixels("encode_jpeg", image, (np.uint8,), wanted)
    written = jpeg_files.encode(
        pixels,
        chroma_downsampling,
        quality=quality,
        progressive=progressive,
        optimize=optimize_size,
        dpi=(x_density * units[density_unit], y_density * units[density_unit]),
        **({"xmp": xmp_metadata.encode()} if xmp_metadata else {}),
    )
    made: elements.HostArray = elements.present(written)
    return made
