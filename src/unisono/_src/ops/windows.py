"""The axes of images and signals, with TensorFlow's formats of strides and paddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar, final

import jax

from unisono._src.foundation import errors
from unisono._src.ops import tensors
from unisono._src.ops.tensors import Sizes

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
