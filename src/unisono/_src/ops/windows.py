"""Windows over the axes of images and signals: TensorFlow's formats, and pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, final

import jax
import jax.numpy as jnp

from unisono._src.foundation import errors
from unisono._src.ops import kinds, tensors
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import Sizes, TensorLike

__all__ = [
    "avg_pool",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "max_pool",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
]


# "SAME", "VALID", or a pair for each axis.
Padding: TypeAlias = str | Sequence[Any]
Pairs: TypeAlias = tuple[tuple[int, int], ...]
# Strides, paddings and dilations along the axes of space.
How: TypeAlias = tuple[tuple[int, ...], str | Pairs, tuple[int, ...]]

_T = TypeVar("_T")

LETTERS = {1: "W", 2: "HW", 3: "DHW"}


@final
class Layout:
    """Where the axes of an input are.

    Args:
        name: the name that the program calls.
        rank: the number of axes of space.
        data_format: TensorFlow's letters, such as "NHWC"; None for channels last.
    """

    def __init__(self, name: str, rank: int, data_format: str | None) -> None:
        space = LETTERS[rank]
        last, first = f"N{space}C", f"NC{space}"
        self.name, self.rank = name, rank
        self.letters = last if data_format is None else data_format
        if self.letters not in (last, first):
            raise ValueError(
                f"data_format of {name} must be {last!r} or {first!r}, received "
                f"{data_format!r}."
            )
        # The first axis of space: behind the batch, or behind batch and channels.
        self.start = 2 if self.letters == first else 1

    def check(self, x: jax.Array) -> None:
        """Raises `InvalidArgumentError` unless an array has all axes."""
        if x.ndim != self.rank + 2:
            raise errors.InvalidArgumentError(
                f"{self.name} takes an array of {self.rank + 2} axes ({self.letters}), "
                f"received the shape {list(x.shape)}."
            )

    def space(self, what: str, x: Sizes) -> tuple[int, ...]:
        """Returns one number per axis of space; one number may stand for all axes."""
        found = tensors.sizes(self.name, what, x)
        if len(found) == 1:
            return found * self.rank
        if len(found) == self.rank:
            return found
        if len(found) != self.rank + 2:
            raise ValueError(
                f"`{what}` should be of length 1, {self.rank} or {self.rank + 2}, "
                f"received {x!r} in {self.name}."
            )
        rest = [n for i, n in enumerate(found) if i not in range(*self.span)]
        if set(rest) != {1}:
            raise errors.InvalidArgumentError(
                f"{self.name} has no {what} along batch and channels, received {x!r}."
            )
        return found[slice(*self.span)]

    @property
    def span(self) -> tuple[int, int]:
        """The first axis of space, and the axis after the last."""
        return self.start, self.start + self.rank

    def full(self, values: Sequence[_T], other: _T) -> tuple[_T, ...]:
        """Returns a value for each axis, from those of space."""
        made = [other] * (self.rank + 2)
        made[slice(*self.span)] = values
        return tuple(made)

    def padding(self, padding: Padding) -> str | Pairs:
        """Returns "SAME", "VALID", or pairs for the axes of space."""
        if isinstance(padding, str):
            if padding.upper() not in ("SAME", "VALID"):
                raise ValueError(
                    f"padding of {self.name} must be 'SAME', 'VALID' or a list of "
                    f"pairs, received {padding!r}."
                )
            return padding.upper()
        pairs = tensors.require_known(self.name, "padding", padding)
        if len(pairs) != self.rank + 2 or any(len(pair) != 2 for pair in pairs):
            raise ValueError(
                f"padding of {self.name} has a pair for each of {self.rank + 2} axes, "
                f"received {padding!r}."
            )
        found: Pairs = pairs[slice(*self.span)]
        return found

    def how(
        self, strides: Sizes | None, padding: Padding, dilations: Sizes | None
    ) -> How:
        """Returns strides, paddings and dilations; None stands for 1."""
        return (
            self.space("strides", 1 if strides is None else strides),
            self.padding(padding),
            self.space("dilations", 1 if dilations is None else dilations),
        )


# The sizes, strides and paddings of a window.
_Window: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], str | Pairs]
_Compute: TypeAlias = Callable[[Layout, TensorLike, _Window], jax.Array]


class Pool(Protocol):
    """A function that combines the elements of windows."""

    def __call__(
        self,
        input: TensorLike,
        ksize: Sizes,
        strides: Sizes,
        padding: Padding,
        data_format: str | None = None,
        name: str | None = None,
    ) -> jax.Array:
        """Returns a number for each window."""


def _make_pool(compute: _Compute, told: str, path: str, default: str = "") -> Pool:
    """Returns a function of windows, which has a path of TensorFlow.

    Args:
        compute: gives the numbers of the windows.
        told: what these numbers are.
        path: the path.
        default: the default of `data_format`; empty for inputs of any rank.
    """
    called = path.rpartition(".")[2]

    def pool(
        input: TensorLike,
        ksize: Sizes,
        strides: Sizes,
        padding: Padding,
        data_format: str | None = default or None,
        name: str | None = None,
    ) -> jax.Array:
        rank = (len(default) or tensors.tensor(input).ndim) - 2
        if rank not in LETTERS:
            raise ValueError(
                f"Input tensor must be of rank 3, 4 or 5 but was {rank + 2} in "
                f"{called}."
            )
        layout = Layout(called, rank, data_format)
        return compute(layout, input, _window(layout, ksize, strides, padding))

    axes = {"": "the spatial axes", "NWC": "one axis", "NHWC": "two axes"}
    pool.__doc__ = f"Returns {told} of windows over {axes.get(default, 'three axes')}."
    return array_function(path)(pool)


def _max_pool(layout: Layout, x: TensorLike, window: _Window) -> jax.Array:
    found = _pool_input(layout, x, kinds.REAL)
    is_float = kinds.kind(found.dtype) == "f"
    # The identity of `max`: only with this value does JAX recognize the
    # reduction, whose gradient it knows.
    lowest = -jnp.inf if is_float else kinds.limits(found.dtype).min
    made: jax.Array = tensors.call(
        layout.name,
        jax.lax.reduce_window,
        found,
        lowest,
        jax.lax.max,
        *window,
    )
    return made


def _avg_pool(layout: Layout, x: TensorLike, window: _Window) -> jax.Array:
    # Places beyond the edge do not count.
    found = _pool_input(layout, x, kinds.FLOAT)
    if not isinstance(window[2], str):
        raise ValueError(f"padding of {layout.name} must be 'SAME' or 'VALID'.")

    wide = jnp.promote_types(found.dtype, jnp.float32)

    def add_up(values: jax.Array) -> jax.Array:
        made: jax.Array = tensors.call(
            layout.name, jax.lax.reduce_window, values, 0.0, jax.lax.add, *window
        )
        return made

    # The second sum counts the elements of each window that are not padding.
    total = add_up(found.astype(wide)) / add_up(jnp.ones(found.shape, wide))
    return total.astype(found.dtype)


def _window(layout: Layout, ksize: Sizes, strides: Sizes, padding: Padding) -> _Window:
    """Returns the arguments of a window: its sizes, strides and paddings."""
    sizes = layout.full(layout.space("ksize", ksize), 1)
    steps = layout.full(layout.space("strides", strides), 1)
    edges = layout.padding(padding)
    return sizes, steps, edges if isinstance(edges, str) else layout.full(edges, (0, 0))


def _pool_input(layout: Layout, x: TensorLike, allowed: str) -> jax.Array:
    found = tensors.tensor(x)
    kinds.check(layout.name, found.dtype, allowed)
    layout.check(found)
    return found


_LARGEST = "the largest elements"
_MEANS = "the means"

max_pool = _make_pool(_max_pool, _LARGEST, "nn.max_pool")
max_pool1d = _make_pool(_max_pool, _LARGEST, "nn.max_pool1d", "NWC")
max_pool2d = _make_pool(_max_pool, _LARGEST, "nn.max_pool2d", "NHWC")
max_pool3d = _make_pool(_max_pool, _LARGEST, "nn.max_pool3d", "NDHWC")
avg_pool = _make_pool(_avg_pool, _MEANS, "nn.avg_pool")
avg_pool1d = _make_pool(_avg_pool, _MEANS, "nn.avg_pool1d", "NWC")
avg_pool2d = _make_pool(_avg_pool, _MEANS, "nn.avg_pool2d", "NHWC")
avg_pool3d = _make_pool(_avg_pool, _MEANS, "nn.avg_pool3d", "NDHWC")
