"""Which pixels a pixel of a resized image is made of, and how much of each.

Everything is in float32 and in TensorFlow's order, so that the numbers are its own.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import final

import numpy as np

_F = np.float32
# Photos of a folder have many sizes.
MOST_SIZES = 1024
# Weights whose sum is less are left as they are.
_LEAST = _F(1000) * np.finfo(_F).tiny
# TensorFlow rounds the places of the cubic kernel to so many parts of a pixel.
_PARTS = 1024


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Taps:
    """The pixels along one axis that each pixel of the result is made of.

    Attributes:
        indices: for each of the taps, the pixel that each pixel of the result takes.
        weights: for each of the taps, how much of it is taken.
    """

    indices: np.ndarray
    weights: np.ndarray


@functools.lru_cache(MOST_SIZES)
def spread(taps: Taps, channels: int) -> Taps:
    """Returns the taps of the numbers of all channels in a row."""
    indices = taps.indices[..., None] * channels + np.arange(channels)
    return Taps(
        indices.reshape(len(taps.indices), -1),
        np.repeat(taps.weights, channels, axis=-1),
    )


@functools.lru_cache(MOST_SIZES)
def split(taps: Taps, step: int) -> list[tuple[slice, slice | np.ndarray, Taps]]:
    """Returns parts of the result, the pixels that each needs, and their taps."""
    found = []
    for start in range(0, taps.indices.shape[1], step):
        part = slice(start, start + step)
        pixels, places = np.unique(taps.indices[:, part], return_inverse=True)
        first, stop = int(pixels[0]), int(pixels[-1]) + 1
        # A slice is not copied. A much smaller image does not need all rows.
        needed = slice(first, stop) if stop - first == len(pixels) else pixels
        weights = taps.weights[:, part]
        found.append(
            (part, needed, Taps(places.reshape(len(taps.indices), -1), weights))
        )
    return found


def _places(given: int, wanted: int) -> np.ndarray:
    """Returns where the centres of the new pixels are, in old pixels."""
    scale = _F(given) / _F(wanted)
    places: np.ndarray = (np.arange(wanted, dtype=_F) + _F(0.5)) * scale
    return places


@functools.lru_cache(MOST_SIZES)
def nearest(given: int, wanted: int) -> Taps:
    """Returns one tap: the pixel that has the centre."""
    index = np.minimum(np.floor(_places(given, wanted)).astype(np.intp), given - 1)
    return Taps(index[None], np.ones((1, wanted), _F))


@functools.lru_cache(MOST_SIZES)
def linear(given: int, wanted: int) -> Taps:
    """Returns two taps; the weight is that of the second one."""
    places = _places(given, wanted) - _F(0.5)
    low = np.floor(places)
    indices = np.stack([np.maximum(low, 0), np.minimum(np.ceil(places), given - 1)])
    return Taps(indices.astype(np.intp), (places - low)[None])


@functools.lru_cache(MOST_SIZES)
def cubic(given: int, wanted: int) -> Taps:
    """Returns four taps of Keys' cubic kernel, without those outside the image."""
    places = _places(given, wanted) - _F(0.5)
    low = np.floor(places)
    part = np.rint((places - low) * _F(_PARTS)).astype(np.intp)
    near, far = _cubic_table()
    weights = np.stack([far[part], near[part], near[_PARTS - part], far[_PARTS - part]])
    indices = low.astype(np.intp) + np.arange(-1, 3)[:, None]
    bounded = indices.clip(0, given - 1)
    weights[indices != bounded] = 0
    return Taps(bounded, _normalize(weights))


@functools.cache
def _cubic_table() -> tuple[np.ndarray, np.ndarray]:
    """Returns the kernel at distances from 0 to 1, and from 1 to 2."""
    a, x = -0.5, (np.arange(_PARTS + 1) / _PARTS).astype(_F).astype(np.float64)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    x = x + 1
    return near.astype(_F), (((a * x - 5 * a) * x + 8 * a) * x - 4 * a).astype(_F)


def _normalize(weights: np.ndarray) -> np.ndarray:
    """Returns weights whose sum is 1 for each pixel of the result."""
    total = functools.reduce(np.add, weights)
    is_full = np.abs(total) >= _LEAST
    return weights * np.where(is_full, _F(1) / np.where(is_full, total, _F(1)), _F(1))


@functools.lru_cache(MOST_SIZES)
def area(given: int, wanted: int) -> Taps:
    """Returns the pixels that each new pixel covers, by how much of them it covers."""
    scale = _F(given) / _F(wanted)
    start = np.arange(wanted, dtype=_F) * scale
    stop = np.arange(1, wanted + 1, dtype=_F) * scale
    first, last = np.floor(start).astype(np.intp), np.ceil(stop).astype(np.intp)
    indices = first + np.arange((last - first).max())[:, None]
    at = indices.astype(_F)
    weights = np.where(
        at < start,
        np.where(at + 1 > stop, scale, at + 1 - start),
        np.where(at + 1 > stop, stop - at, _F(1)),
    )
    return Taps(indices.clip(0, given - 1), np.where(indices < last, weights, _F(0)))


@functools.lru_cache(MOST_SIZES)
def kernel(given: int, wanted: int, name: str, antialias: bool) -> Taps:
    """Returns the pixels within the radius of a kernel; it grows for smaller images."""
    radius, weigh = _KERNELS[name]
    inverse = _F(1 / float(_F(wanted) / _F(given)))
    wide = max(inverse, _F(1)) if antialias else _F(1)
    reach = _F(radius) * wide
    centre = (np.arange(wanted, dtype=_F) + _F(0.5)) * inverse
    first = np.ceil(centre - reach - _F(0.5)).clip(0, given - 1).astype(np.intp)
    last = np.floor(centre + reach - _F(0.5)).clip(0, given - 1).astype(np.intp)
    indices = first + np.arange((last - first).max() + 1)[:, None]
    distance = np.abs((indices.astype(_F) + _F(0.5) - centre) * (_F(1) / wide))
    is_used = (indices <= last) & (centre <= given)
    weights = np.where(is_used, weigh(distance).astype(_F), _F(0))
    return Taps(indices.clip(0, given - 1), _normalize(weights))


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.where(x < 1, 1 - x, 0)


def _cubic_kernel(
    near: tuple[np.float32, ...], far: tuple[np.float32, ...]
) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a kernel of two cubic polynomials, the highest coefficient first."""

    def weigh(x: np.ndarray) -> np.ndarray:
        first = ((near[0] * x + near[1]) * x + near[2]) * x + near[3]
        second = ((far[0] * x + far[1]) * x + far[2]) * x + far[3]
        return np.where(x < 1, first, np.where(x < 2, second, 0))

    return weigh


def _lanczos(radius: int) -> Callable[[np.ndarray], np.ndarray]:
    def weigh(x: np.ndarray) -> np.ndarray:
        pi, r = _F(np.pi), _F(radius)
        safe = np.where(x <= 1e-3, _F(1), x)
        found = r * np.sin(pi * safe) * np.sin(pi * safe / r) / (pi * pi * safe * safe)
        return np.where(x > r, 0, np.where(x <= 1e-3, 1, found))

    return weigh


def _gaussian(x: np.ndarray) -> np.ndarray:
    return np.where(x >= 1.5, 0, np.exp(-x * x / np.float64(0.5)))


# The radius and the weight by distance.
_KERNELS: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "triangle": (1, _triangle),
    "keyscubic": (
        2,
        _cubic_kernel(
            (_F(1.5), _F(-2.5), _F(0), _F(1)), (_F(-0.5), _F(2.5), _F(-4), _F(2))
        ),
    ),
    "mitchellcubic": (
        2,
        _cubic_kernel(
            (_F(7) / _F(6), _F(-2), _F(0), _F(8) / _F(9)),
            (_F(-7) / _F(18), _F(2), _F(-10) / _F(3), _F(16) / _F(9)),
        ),
    ),
    "lanczos3": (3, _lanczos(3)),
    "lanczos5": (5, _lanczos(5)),
    "gaussian": (1.5, _gaussian),
}
