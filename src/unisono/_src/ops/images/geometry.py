"""Which pixels an image has: crops, borders, flips and quarter turns."""

from __future__ import annotations

import functools

import jax
import numpy as np

from unisono._src.input.plan import elements
from unisono._src.ops import tensors
from unisono._src.ops.host import host_programs
from unisono._src.ops.images.image_functions import (
    ArrayModule,
    as_result,
    image_function,
    read_images,
    read_size,
)
from unisono._src.ops.tensors import TensorLike

__all__ = [
    "central_crop",
    "crop_to_bounding_box",
    "flip_left_right",
    "flip_up_down",
    "pad_to_bounding_box",
    "resize_with_crop_or_pad",
    "rot90",
]

# The types whose bits a program moves, by their size. JAX has none of 64 bits, unless
# it is told.
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32}
# To compile a program takes as long as NumPy takes longer than it for so many photos.
WORTH = 500
# Images of fewer numbers cost NumPy less than the call of a program.
_SMALL = 1 << 15


def _flip_photo(image: object, *more: object, **named: object) -> np.ndarray | None:
    """Returns a photo that a program has flipped; None for all else."""
    if more or named or type(image) is not elements.HostArray or image.ndim != 3:
        return None
    bits = _BITS.get(image.itemsize)
    if bits is None or image.dtype.kind not in "uf":
        return None
    found = _find_flip(image.shape, bits).run(image.view(bits))
    return None if found is None else found.view(image.dtype).view(elements.HostArray)


@image_function("image.flip_left_right", is_arithmetic=False, quick=_flip_photo)
def flip_left_right(xp: ArrayModule, image: TensorLike) -> jax.Array:
    """Returns images whose columns are in reverse order.

    >>> flip_left_right([[[1], [2], [3]]]).tolist()
    [[[3], [2], [1]]]
    """
    images = read_images(xp, "flip_left_right", image)
    if xp is not np:
        return images[..., ::-1, :]
    return as_result(_flip_on_host(np.asarray(images)))


def _flip_on_host(images: np.ndarray) -> np.ndarray:
    """Returns images whose columns are in reverse order.

    Not a view: a pixel has few numbers, and NumPy is slow with arrays whose rows end
    after each pixel.
    """
    if images.ndim == 3 and (bits := _BITS.get(images.itemsize)):
        program, given = _find_flip(images.shape, bits), images.view(bits)
        if images.size >= _SMALL and program.prepare(1, given):
            done = program.run(given)
            if done is not None:
                return done.view(images.dtype)
    made = np.empty(images.shape, images.dtype)
    for channel in range(images.shape[-1]):
        made[..., channel] = images[..., ::-1, channel]
    return made


@functools.lru_cache
def _find_flip(shape: tuple[int, ...], dtype: type) -> host_programs.Program:
    """Returns the program that flips images of one shape and type."""
    return host_programs.Program(lambda image: image[:, ::-1], WORTH)


@image_function("image.flip_up_down", is_arithmetic=False)
def flip_up_down(xp: ArrayModule, image: TensorLike) -> jax.Array:
    """Returns images whose rows are in reverse order.

    >>> flip_up_down([[[1]], [[2]]]).tolist()
    [[[2]], [[1]]]
    """
    return read_images(xp, "flip_up_down", image)[..., ::-1, :, :]


@image_function("image.rot90")
def rot90(
    xp: ArrayModule, image: TensorLike, k: int = 1, name: str | None = None
) -> jax.Array:
    """Returns images rotated counterclockwise by `k` times 90 degrees.

    >>> rot90([[[1], [2]]]).tolist()
    [[[2]], [[1]]]
    """
    turns = read_size("rot90", "k", k)
    found: jax.Array = xp.rot90(read_images(xp, "rot90", image), turns, axes=(-3, -2))
    return found


@image_function("image.central_crop")
def central_crop(
    xp: ArrayModule, image: TensorLike, central_fraction: float
) -> jax.Array:
    """Returns the central part of images.

    Args:
        xp: the array module.
        image: an image, or a batch of images.
        central_fraction: the fraction of the height and of the width to keep.

    Raises:
        ValueError: the fraction is not within (0, 1].

    >>> central_crop([[[1], [2], [3], [4]]], 0.5).tolist()
    [[[2], [3]]]
    """
    if not 0 < central_fraction <= 1:
        raise ValueError(
            f"central_fraction must be within (0, 1], received {central_fraction}."
        )
    images = read_images(xp, "central_crop", image)
    height, width = images.shape[-3:-1]
    top, left = (int((n - n * float(central_fraction)) / 2) for n in (height, width))
    return images[..., top : height - top, left : width - left, :]


@image_function("image.crop_to_bounding_box")
def crop_to_bounding_box(
    xp: ArrayModule,
    image: TensorLike,
    offset_height: int,
    offset_width: int,
    target_height: int,
    target_width: int,
) -> jax.Array:
    """Returns the part of images inside a box; the offsets are its upper left corner.

    Raises:
        ValueError: the box is not within the images.

    >>> crop_to_bounding_box([[[1], [2], [3]]], 0, 1, 1, 2).tolist()
    [[[2], [3]]]
    """
    name = "crop_to_bounding_box"
    images = read_images(xp, name, image)
    places = _read_box(name, offset_height, offset_width, target_height, target_width)
    for (start, size), given in zip(places, images.shape[-3:-1], strict=True):
        if start < 0 or size <= 0 or start + size > given:
            raise ValueError(
                f"The box must be within the images, whose height or width is {given}; "
                f"received offset {start} and size {size}, in {name}."
            )
    (top, height), (left, width) = places
    return images[..., top : top + height, left : left + width, :]


@image_function("image.pad_to_bounding_box")
def pad_to_bounding_box(
    xp: ArrayModule,
    image: TensorLike,
    offset_height: int,
    offset_width: int,
    target_height: int,
    target_width: int,
) -> jax.Array:
    """Returns images padded with zeros to the target size, at the given offsets.

    Raises:
        ValueError: the images do not fit into the target size.

    >>> pad_to_bounding_box([[[1], [2]]], 0, 1, 1, 4).tolist()
    [[[0], [1], [2], [0]]]
    """
    name = "pad_to_bounding_box"
    images = read_images(xp, name, image)
    places = _read_box(name, offset_height, offset_width, target_height, target_width)
    borders = [(0, 0)] * (images.ndim - 3)
    for (start, size), given in zip(places, images.shape[-3:-1], strict=True):
        if start < 0 or start + given > size:
            raise ValueError(
                f"The images, of height or width {given}, must be within the target; "
                f"received offset {start} and target {size}, in {name}."
            )
        borders.append((start, size - start - given))
    if xp is not np:
        padded: jax.Array = xp.pad(images, [*borders, (0, 0)])
        return padded
    # `numpy.pad` takes ten times as long.
    (top, height), (left, width) = places
    rows, columns, channels = images.shape[-3:]
    made = np.zeros((*images.shape[:-3], height, width, channels), images.dtype)
    made[..., top : top + rows, left : left + columns, :] = images
    return as_result(made)


@image_function("image.resize_with_crop_or_pad")
def resize_with_crop_or_pad(
    xp: ArrayModule, image: TensorLike, target_height: int, target_width: int
) -> jax.Array:
    """Returns images of the target size, centrally cropped or padded with zeros.

    Raises:
        ValueError: the target height or width is not positive.

    >>> resize_with_crop_or_pad([[[1], [2], [3]]], 2, 1).tolist()
    [[[2]], [[0]]]
    """
    name = "resize_with_crop_or_pad"
    images = read_images(xp, name, image)
    height = read_size(name, "target_height", target_height)
    width = read_size(name, "target_width", target_width)
    check_positive(name, height, width)
    rows, columns = images.shape[-3:-1]
    # As in TensorFlow, -3 // 2 is -2: an odd pixel is cut at the start, or added at the
    # end.
    cropped = crop_to_bounding_box(
        images,
        max(-(height - rows) // 2, 0),
        max(-(width - columns) // 2, 0),
        min(height, rows),
        min(width, columns),
    )
    return pad_to_bounding_box(
        cropped,
        max((height - rows) // 2, 0),
        max((width - columns) // 2, 0),
        height,
        width,
    )


def check_positive(name: str, height: int, width: int) -> None:
    """Raises `ValueError` unless a wanted size is positive."""
    if height <= 0 or width <= 0:
        raise ValueError(
            f"target_height and target_width must be > 0, received {height} and "
            f"{width}, in {name}."
        )


def _read_box(
    name: str, top: int, left: int, height: int, width: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the start and the size of a box, for rows and for columns."""
    given = tensors.require_known(name, "the box", [top, left, height, width])
    return (given[0], given[2]), (given[1], given[3])
