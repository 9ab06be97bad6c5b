"""Random changes of images: with state, and as a function of a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import errors
from unisono._src.ops import random_draws, random_state, stateless_draws, tensors
from unisono._src.ops.images import colours, geometry
from unisono._src.ops.images.image_functions import (
    ArrayModule,
    as_result,
    image_function,
    read_array,
    read_images,
)
from unisono._src.ops.stateless_draws import Seed
from unisono._src.ops.tensors import Sizes, TensorLike
from unisono._src.training import philox

__all__ = [
    "random_brightness",
    "random_contrast",
    "random_crop",
    "random_flip_left_right",
    "random_flip_up_down",
    "random_hue",
    "random_saturation",
    "stateless_random_brightness",
    "stateless_random_contrast",
    "stateless_random_crop",
    "stateless_random_flip_left_right",
    "stateless_random_flip_up_down",
    "stateless_random_hue",
    "stateless_random_saturation",
]

# Takes the array module, a shape, the ends of a range, and whether integers are wanted.
_Draw = Callable[..., jax.Array]
_LARGEST = 2**31 - 1
_OWN = (
    "In Dataset.map the random numbers differ from TensorFlow's; for the same numbers, "
    "use the function whose name begins with `stateless_`."
)


def _with_state(seed: int | None) -> _Draw:
    """Returns what draws new numbers at each call."""

    def draw(
        xp: ModuleType, shape: Sequence[int], low: float, high: float, dtype: str
    ) -> jax.Array:
        if xp is np:
            words = random_state.take_on_host(
                math.prod(shape), seed, f"uniform {dtype}"
            )
            return _draw_on_host(words, shape, low, high, dtype)
        return random_draws.uniform(shape, low, high, dtype, seed)

    return draw


def _from_seed(seed: Seed) -> _Draw:
    """Returns what draws the numbers that follow from a seed."""

    def draw(
        xp: ModuleType, shape: Sequence[int], low: float, high: float, dtype: str
    ) -> jax.Array:
        if xp is np:
            words = philox.scramble(np.asarray(stateless_draws.check_seed(seed)))
            return _draw_on_host(words, shape, low, high, dtype)
        return stateless_draws.stateless_uniform(shape, seed, low, high, dtype)

    return draw


def _draw_on_host(
    state: np.ndarray, shape: Sequence[int], low: float, high: float, dtype: str
) -> jax.Array:
    words = philox.host_words(state, math.prod(shape)).reshape(shape)
    if dtype == "int32":
        return as_result(words % np.uint32(int(high) - int(low)) + np.int64(low))
    first, last = np.float32(low), np.float32(high)
    return as_result(philox.fractions(words) * (last - first) + first)


def _flip(
    xp: ArrayModule,
    name: str,
    image: object,
    flip: Callable[..., jax.Array],
    draw: _Draw,
) -> jax.Array:
    """Returns images, each of them flipped with a probability of a half."""
    images = read_images(xp, name, image)
    drawn = draw(xp, images.shape[:-3], 0.0, 1.0, "float32")
    # TensorFlow flips one image for a low number, and an image of several for a high.
    is_flipped = drawn < 0.5 if images.ndim == 3 else drawn > 0.5
    if xp is np and images.ndim == 3:
        return flip(images) if is_flipped else images
    found: jax.Array = xp.where(is_flipped[..., None, None, None], flip(images), images)
    return found


@image_function("image.random_flip_left_right", difference=_OWN, is_of_arrays=False)
def random_flip_left_right(
    xp: ArrayModule, image: TensorLike, seed: int | None = None
) -> jax.Array:
    """Returns images, each flipped from left to right with a probability of 1/2.

    Args:
        xp: the array module.
        image: an image, or a batch of images, which are flipped independently.
        seed: a seed for this operation; see `random.set_seed`.

    >>> random_flip_left_right([[[1], [2]]]).shape
    (1, 2, 1)
    """
    name = "random_flip_left_right"
    return _flip(xp, name, image, geometry.flip_left_right, _with_state(seed))


@image_function("image.random_flip_up_down", difference=_OWN, is_of_arrays=False)
def random_flip_up_down(
    xp: ArrayModule, image: TensorLike, seed: int | None = None
) -> jax.Array:
    """Returns images, each flipped upside down with a probability of 1/2."""
    name = "random_flip_up_down"
    return _flip(xp, name, image, geometry.flip_up_down, _with_state(seed))


@image_function("image.stateless_random_flip_left_right", is_of_arrays=False)
def stateless_random_flip_left_right(
    xp: ArrayModule, image: TensorLike, seed: Seed
) -> jax.Array:
    """Returns images flipped from left to right at random, as determined by `seed`.

    >>> stateless_random_flip_left_right([[[1], [2]]], seed=[1, 2]).tolist()
    [[[1], [2]]]
    """
    name = "stateless_random_flip_left_right"
    return _flip(xp, name, image, geometry.flip_left_right, _from_seed(seed))


@image_function("image.stateless_random_flip_up_down", is_of_arrays=False)
def stateless_random_flip_up_down(
    xp: ArrayModule, image: TensorLike, seed: Seed
) -> jax.Array:
    """Returns images flipped upside down at random, as determined by `seed`."""
    name = "stateless_random_flip_up_down"
    return _flip(xp, name, image, geometry.flip_up_down, _from_seed(seed))


def _crop(
    xp: ArrayModule, name: str, value: object, size: Sizes, draw: _Draw
) -> jax.Array:
    """Returns a part of an array that begins at a random place."""
    array = read_array(xp, name, value)
    sizes = tensors.sizes(name, "size", size)
    if len(sizes) != array.ndim or any(
        n > given or n < 0 for n, given in zip(sizes, array.shape, strict=True)
    ):
        raise errors.InvalidArgumentError(
            f"Need value.shape >= size, got {list(array.shape)} and {list(sizes)}, in "
            f"{name}."
        )
    limits = np.array(array.shape, np.int64) - np.array(sizes, np.int64) + 1
    drawn = draw(xp, limits.shape, 0, _LARGEST, "int32")
    if xp is np:
        known = (drawn % limits).tolist()
        return array[tuple(map(slice, known, np.add(known, sizes).tolist()))]
    starts = drawn % jnp.asarray(limits.astype(np.int32))
    return jax.lax.dynamic_slice(array, list(starts), sizes)


@image_function("image.random_crop", difference=_OWN, is_of_arrays=False)
def random_crop(
    xp: ArrayModule,
    value: TensorLike,
    size: Sizes,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns a random crop of an array.

    Args:
        xp: the array module.
        value: an array with any number of axes.
        size: the size of the crop along each axis.
        seed: a seed for this operation; see `random.set_seed`.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: the crop does not fit into the array.

    >>> random_crop(np.zeros((8, 8, 3)), [4, 5, 3]).shape
    (4, 5, 3)
    """
    return _crop(xp, "random_crop", value, size, _with_state(seed))


@image_function("image.stateless_random_crop", is_of_arrays=False)
def stateless_random_crop(
    xp: ArrayModule,
    value: TensorLike,
    size: Sizes,
    seed: Seed,
    name: str | None = None,
) -> jax.Array:
    """Returns a random crop of an array, as determined by `seed`.

    Args:
        xp: the array module.
        value: an array with any number of axes.
        size: the size of the crop along each axis.
        seed: two integers.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: the crop does not fit into the array.

    >>> stateless_random_crop([1, 2, 3, 4], [2], seed=[1, 2]).tolist()
    [2, 3]
    """
    return _crop(xp, "stateless_random_crop", value, size, _from_seed(seed))


def _change(
    xp: ArrayModule,
    change: Callable[..., jax.Array],
    image: object,
    ends: tuple[float, float],
    draw: _Draw,
) -> jax.Array:
    return change(image, draw(xp, (), *ends, "float32"))


def _around_zero(max_delta: float, most: float = math.inf) -> tuple[float, float]:
    """Returns the range of a change by at most a number."""
    if not 0 <= max_delta <= most:
        told = "" if most == math.inf else f" and at most {most}"
        raise ValueError(f"max_delta must be non-negative{told}, received {max_delta}.")
    return -max_delta, max_delta


def _between(lower: float, upper: float) -> tuple[float, float]:
    """Returns the range of a factor."""
    if not 0 <= lower < upper:
        raise ValueError(
            "lower must be non-negative, and upper must be > lower; received "
            f"{lower} and {upper}."
        )
    return lower, upper


@image_function("image.random_brightness", difference=_OWN, is_of_arrays=False)
def random_brightness(
    xp: ArrayModule, image: TensorLike, max_delta: float, seed: int | None = None
) -> jax.Array:
    """Returns images with a random number in [-max_delta, max_delta) added.

    >>> random_brightness([[[0.5]]], 0.0).tolist()
    [[[0.5]]]
    """
    ends = _around_zero(max_delta)
    return _change(xp, colours.adjust_brightness, image, ends, _with_state(seed))


@image_function("image.stateless_random_brightness", is_of_arrays=False)
def stateless_random_brightness(
    xp: ArrayModule, image: TensorLike, max_delta: float, seed: Seed
) -> jax.Array:
    """Returns images whose brightness is changed as determined by `seed`.

    A number in [-max_delta, max_delta) is added to each channel, where white is 1.
    """
    ends = _around_zero(max_delta)
    return _change(xp, colours.adjust_brightness, image, ends, _from_seed(seed))


@image_function("image.random_hue", difference=_OWN, is_of_arrays=False)
def random_hue(
    xp: ArrayModule, image: TensorLike, max_delta: float, seed: int | None = None
) -> jax.Array:
    """Returns RGB images whose hue is changed at random.

    It is rotated by up to `max_delta`, a fraction of the circle, at most 0.5.
    """
    ends = _around_zero(max_delta, 0.5)
    return _change(xp, colours.adjust_hue, image, ends, _with_state(seed))


@image_function("image.stateless_random_hue", is_of_arrays=False)
def stateless_random_hue(
    xp: ArrayModule, image: TensorLike, max_delta: float, seed: Seed
) -> jax.Array:
    """Returns RGB images whose hue is changed as determined by `seed`.

    It is rotated by up to `max_delta`, a fraction of the circle, at most 0.5.
    """
    ends = _around_zero(max_delta, 0.5)
    return _change(xp, colours.adjust_hue, image, ends, _from_seed(seed))


@image_function("image.random_contrast", difference=_OWN, is_of_arrays=False)
def random_contrast(
    xp: ArrayModule,
    image: TensorLike,
    lower: float,
    upper: float,
    seed: int | None = None,
) -> jax.Array:
    """Returns images whose contrast is changed at random.

    It is multiplied by a factor in [lower, upper).
    """
    ends = _between(lower, upper)
    return _change(xp, colours.adjust_contrast, image, ends, _with_state(seed))


@image_function("image.stateless_random_contrast", is_of_arrays=False)
def stateless_random_contrast(
    xp: ArrayModule, image: TensorLike, lower: float, upper: float, seed: Seed
) -> jax.Array:
    """Returns images whose contrast is changed as determined by `seed`.

    It is multiplied by a factor in [lower, upper).
    """
    ends = _between(lower, upper)
    return _change(xp, colours.adjust_contrast, image, ends, _from_seed(seed))


@image_function("image.random_saturation", difference=_OWN, is_of_arrays=False)
def random_saturation(
    xp: ArrayModule,
    image: TensorLike,
    lower: float,
    upper: float,
    seed: int | None = None,
) -> jax.Array:
    """Returns RGB images whose saturation is changed at random.

    It is multiplied by a factor in [lower, upper), and limited to 1.
    """
    ends = _between(lower, upper)
    return _change(xp, colours.adjust_saturation, image, ends, _with_state(seed))


@image_function("image.stateless_random_saturation", is_of_arrays=False)
def stateless_random_saturation(
    xp: ArrayModule,
    image: TensorLike,
    lower: float,
    upper: float,
    seed: Seed | None = None,
) -> jax.Array:
    """Returns RGB images whose saturation is changed as determined by `seed`.

    It is multiplied by a factor in [lower, upper), and limited to 1.
    """
    ends = _between(lower, upper)
    given = [] if seed is None else seed
    return _change(xp, colours.adjust_saturation, image, ends, _from_seed(given))
