"""Images of another size: `resize` and `resize_with_pad` of ``tf.image``."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import TypeAlias, final

import jax
import numpy as np

from unisono._src.foundation import errors
from unisono._src.foundation.tensorflow_names import everyday
from unisono._src.input.plan import elements
from unisono._src.ops import tensors
from unisono._src.ops.images import compiled_resizing, geometry, sampling
from unisono._src.ops.images.image_functions import (
    ArrayModule,
    as_result,
    image_function,
    read_images,
    read_size,
)
from unisono._src.ops.images.sampling import Taps
from unisono._src.ops.tensors import Sizes, TensorLike

__all__ = ["ResizeMethod", "resize", "resize_with_pad"]

_F = np.float32
# So many numbers of an image are computed at once on the host: few enough for the
# caches, and so many that threads do not wait for each other at every call of NumPy.
_BLOCK = 300_000


@final
class ResizeMethod(enum.StrEnum):
    """The methods of `resize`, as an enumeration of strings.

    >>> ResizeMethod.NEAREST_NEIGHBOR == "nearest"
    True
    """

    BILINEAR = "bilinear"
    NEAREST_NEIGHBOR = "nearest"
    BICUBIC = "bicubic"
    AREA = "area"
    LANCZOS3 = "lanczos3"
    LANCZOS5 = "lanczos5"
    GAUSSIAN = "gaussian"
    MITCHELLCUBIC = "mitchellcubic"


everyday.everyday_name("image.ResizeMethod")(ResizeMethod)

_COMPILED = (
    "For pixels up to 255, floats that JAX computes may differ by 2e-5; in Dataset.map "
    "they are the same as TensorFlow's, except that the Lanczos methods may differ by "
    "5e-7 of the largest value."
)


# By the shape and type of photos, and their height and width afterwards.
_Key: TypeAlias = tuple[tuple[int, ...], np.dtype, int, int]
_resizers: dict[_Key, compiled_resizing.Resizer] = {}
_MOST_RESIZERS = 1 << 12
_COMPILED_TYPES = (np.dtype(np.uint8), np.dtype(_F))


def _resize_photo(
    images: object, size: object = (), *options: object, **more: object
) -> np.ndarray | None:
    """Returns a photo that a program has resized; None for all else."""
    if options or more or type(size) is not list or len(size) != 2:
        return None
    height, width = size
    if type(height) is not int or type(width) is not int:
        return None
    if type(images) is not elements.HostArray:
        return None
    resizer = _resizers.get((images.shape, images.dtype, height, width))
    found = None if resizer is None else resizer.run_one(images)
    return None if found is None else found.view(elements.HostArray)


@image_function(
    "image.resize", difference=_COMPILED, is_arithmetic=False, quick=_resize_photo
)
def resize(
    xp: ArrayModule,
    images: TensorLike,
    size: Sizes,
    method: str = "bilinear",
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns resized images, as float32; the method "nearest" keeps the dtype.

    Args:
        xp: the array module.
        images: an image [height, width, channels], or a batch of images, [batch,
            height, width, channels].
        size: the new height and width, which must be known during compilation.
        method: a `ResizeMethod`, or its value.
        preserve_aspect_ratio: whether to keep the ratio of width to height. The images
            then get the largest size that fits into `size`.
        antialias: whether all pixels are used when images become smaller. Otherwise
            "bilinear" uses four pixels for each new one, and "bicubic" sixteen.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: the new height or width is not positive.
        ValueError: the images or `size` have another shape, or the method does not
            exist.

    >>> resize([[[0], [10]]], [1, 4]).tolist()
    [[[0.0], [2.5], [7.5], [10.0]]]
    """
    given = read_images(xp, "resize", images)
    height, width = _read_size(size)
    if preserve_aspect_ratio:
        height, width = _fit(given.shape[-3:-1], height, width)
    if height <= 0 or width <= 0:
        raise errors.InvalidArgumentError(
            f"output dimensions must be positive, received {height} and {width}."
        )
    rows, columns, channels = given.shape[-3:]
    make, combine = _choose(method, antialias)
    y, x = make(rows, height), make(columns, width)
    run = _run_on_host if xp is np else _run_whole
    found = run(xp, combine, given.reshape(-1, rows, columns, channels), y, x)
    if method == ResizeMethod.AREA:
        with np.errstate(all="ignore"):
            found *= _F(1 / float((_F(rows) / _F(height)) * (_F(columns) / _F(width))))
    return found.reshape(*given.shape[:-3], height, width, channels)


def _read_size(size: object) -> tuple[int, int]:
    """Returns the wanted height and width."""
    match size:
        case [int(height), int(width)] if bool not in (type(height), type(width)):
            return height, width
    try:
        found = tensors.sizes("resize", "size", size)
    except TypeError as error:
        raise ValueError(f"'size' must be a 1-D int32 Tensor: {error}") from error
    if len(found) != 2 or not np.issubdtype(np.asarray(found).dtype, np.integer):
        raise ValueError(
            "'size' must be a 1-D Tensor of 2 elements: new_height, new_width; "
            f"received {size!r}."
        )
    return int(found[0]), int(found[1])


def _fit(given: tuple[int, ...], height: int, width: int) -> tuple[int, int]:
    """Returns the largest size of the form of the images that is within a size."""
    scale = min(_F(height) / _F(given[0]), _F(width) / _F(given[1]))
    rows, columns = (int(np.round(scale * _F(n))) for n in given)
    return rows, columns


_Combine = Callable[[ArrayModule, jax.Array, Taps, Taps], jax.Array]


def _run_whole(
    xp: ArrayModule, combine: _Combine, images: jax.Array, y: Taps, x: Taps
) -> jax.Array:
    return combine(xp, _join_pixels(images), y, sampling.spread(x, images.shape[-1]))


def _join_pixels(images: jax.Array) -> jax.Array:
    """Returns images whose rows have all numbers of their pixels in one axis."""
    count, rows, columns, channels = images.shape
    return images.reshape(count, rows, columns * channels)


def _run_on_host(
    xp: ArrayModule, combine: _Combine, images: jax.Array, y: Taps, x: Taps
) -> jax.Array:
    """Returns what `combine` makes of images; a program does it for many photos."""
    if combine is _combine_linearly and images.dtype in _COMPILED_TYPES:
        sizes = y.indices.shape[1], x.indices.shape[1]
        key = (images.shape[1:], images.dtype, *sizes)
        resizer = _resizers.get(key)
        if resizer is None:
            if len(_resizers) >= _MOST_RESIZERS:
                _resizers.clear()
            resizer = compiled_resizing.Resizer(y, x, *key[:2])
            _resizers[key] = resizer
        done = resizer.run(np.asarray(images))
        if done is not None:
            return as_result(done)
    spread = sampling.spread(x, images.shape[-1])
    with np.errstate(all="ignore"):
        return _run_in_blocks(xp, combine, _join_pixels(images), y, spread)


def _run_in_blocks(
    xp: ArrayModule, combine: _Combine, images: jax.Array, y: Taps, x: Taps
) -> jax.Array:
    """Returns what `combine` makes of images, computed for a few rows at a time."""
    height, width = y.indices.shape[1], x.indices.shape[1]
    # For one row of the result there may be several of the image.
    several = min(max(1, images.shape[1] / height), len(y.indices))
    step = max(1, int(_BLOCK / width / several))
    is_copied = combine is _combine_by_copy
    made = np.empty((len(images), height, width), images.dtype if is_copied else _F)
    for number, image in enumerate(images):
        for part, needed, taps in sampling.split(y, step):
            made[number, part] = combine(xp, image[None, needed], taps, x)[0]
    return as_result(made)


def _take(
    xp: ArrayModule, images: jax.Array, index: np.ndarray, axis: int
) -> jax.Array:
    """Returns pixels that exist; each module has a mode that is fast at it."""
    mode = "wrap" if xp is np else "clip"
    found: jax.Array = xp.take(images, index, axis, mode=mode)
    return found


def _combine_by_copy(xp: ArrayModule, images: jax.Array, y: Taps, x: Taps) -> jax.Array:
    """Returns the pixels of one tap."""
    rows = _take(xp, images, y.indices[0], 1)
    return _take(xp, rows, x.indices[0], 2)


def _combine_linearly(
    xp: ArrayModule, images: jax.Array, y: Taps, x: Taps
) -> jax.Array:
    """Returns what is between two pixels: of the columns, and then of the rows."""
    for axis, taps, weight in ((2, x, x.weights[0]), (1, y, y.weights[0][:, None])):
        low, images = (
            _take(xp, images, index, axis).astype(_F, copy=False)
            for index in taps.indices
        )
        images -= low
        images *= weight
        images += low
    return images


def _combine_by_rows(xp: ArrayModule, images: jax.Array, y: Taps, x: Taps) -> jax.Array:
    """Returns weighted sums of the rows, and then of the columns."""
    return _add_columns(xp, _add_rows(xp, images, y), x)


def _combine_by_columns(
    xp: ArrayModule, images: jax.Array, y: Taps, x: Taps
) -> jax.Array:
    """Returns weighted sums of the columns, and then of the rows."""
    return _add_rows(xp, _add_columns(xp, images, x), y)


def _add_rows(xp: ArrayModule, images: jax.Array, taps: Taps) -> jax.Array:
    return _add(xp, images, taps.indices, taps.weights[..., None], 1)


def _add_columns(xp: ArrayModule, images: jax.Array, taps: Taps) -> jax.Array:
    return _add(xp, images, taps.indices, taps.weights, 2)


def _add(
    xp: ArrayModule,
    images: jax.Array,
    indices: np.ndarray,
    weights: np.ndarray,
    axis: int,
) -> jax.Array:
    """Returns the sum of the taps, in their order."""
    total: jax.Array | None = None
    for index, weight in zip(indices, weights, strict=True):
        part = _take(xp, images, index, axis)
        part = part.astype(_F, copy=False)
        part *= weight
        if total is None:
            total = part
        else:
            total += part
    assert total is not None
    return total


_Make = Callable[[int, int], Taps]
_METHODS: dict[str, tuple[_Make, _Combine]] = {
    "bilinear": (sampling.linear, _combine_linearly),
    "nearest": (sampling.nearest, _combine_by_copy),
    "bicubic": (sampling.cubic, _combine_by_rows),
    "area": (sampling.area, _combine_by_columns),
}
# Their kernels with `antialias`; the further methods have no others.
_KERNELS = {"bilinear": "triangle", "bicubic": "keyscubic"}


def _choose(method: str, antialias: bool) -> tuple[_Make, _Combine]:
    """Returns what makes the taps of a method, and what combines them.

    Raises:
        ValueError: there is no such method.
    """
    if method in _METHODS and not (antialias and method in _KERNELS):
        return _METHODS[method]
    if method not in list(ResizeMethod):
        known = ", ".join(ResizeMethod)
        raise ValueError(
            f"Resize method is not implemented: {method}. The methods are {known}."
        )
    kernel = _KERNELS.get(method, str(method))
    make = functools.partial(sampling.kernel, name=kernel, antialias=bool(antialias))
    return make, _combine_by_rows


@image_function("image.resize_with_pad", difference=_COMPILED)
def resize_with_pad(
    xp: ArrayModule,
    image: TensorLike,
    target_height: int,
    target_width: int,
    method: str = "bilinear",
    antialias: bool = False,
) -> jax.Array:
    """Returns resized images, padded with zeros to keep their aspect ratio.

    Raises:
        ValueError: the target height or width is not positive.

    >>> resize_with_pad([[[1, 2]]], 3, 1).tolist()
    [[[0.0, 0.0]], [[1.0, 2.0]], [[0.0, 0.0]]]
    """
    name = "resize_with_pad"
    images = read_images(xp, name, image)
    height = read_size(name, "target_height", target_height)
    width = read_size(name, "target_width", target_width)
    geometry.check_positive(name, height, width)
    rows, columns = map(_F, images.shape[-3:-1])
    ratio = max(columns / _F(width), rows / _F(height))
    sizes = [rows / ratio, columns / ratio]
    top, left = (
        max(0, int(np.floor((_F(wanted) - size) / 2)))
        for wanted, size in zip((height, width), sizes, strict=True)
    )
    resized = resize(images, [int(s) for s in sizes], method, antialias=antialias)
    return geometry.pad_to_bounding_box(resized, top, left, height, width)
