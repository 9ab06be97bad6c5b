"""`TensorShape`: the sizes of an array, of which some or all may be unknown."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import SupportsIndex, TypeAlias, Union, final, overload

from unisono._src.foundation.public_names import publish

# By `Union`: the name of the class is a text here, and texts have no `|`.
ShapeLike: TypeAlias = Union["TensorShape", Iterable[int | None], int, None]


@final
class TensorShape:
    """The shape of an array, in which sizes may be unknown.

    The shapes of arrays and variables are plain tuples, which compare equal to this.

    Args:
        dims: the sizes; one number for a shape of one axis; None for any shape.

    Raises:
        TypeError: a size is no whole number.
        ValueError: a size is negative.

    >>> shape = TensorShape([None, 3])
    >>> shape, shape.rank, shape.as_list(), shape.is_fully_defined()
    (TensorShape([None, 3]), 2, [None, 3], False)
    >>> shape.is_compatible_with([5, 3]), TensorShape([2, 3]) == (2, 3)
    (True, True)
    """

    __slots__ = ("_dims",)

    def __init__(self, dims: ShapeLike) -> None:
        self._dims: tuple[int | None, ...] | None
        if isinstance(dims, TensorShape):
            dims = dims.dims
        if dims is None:
            self._dims = None
        elif isinstance(dims, str) or not isinstance(dims, Iterable):
            self._dims = (_dimension(dims),)
        else:
            self._dims = tuple(map(_dimension, dims))

    @property
    def rank(self) -> int | None:
        """The number of axes; None if it is unknown."""
        return None if self._dims is None else len(self._dims)

    @property
    def ndims(self) -> int | None:
        """The same as `rank`."""
        return self.rank

    @property
    def dims(self) -> list[int | None] | None:
        """The sizes, as `as_list` gives them; None if the rank is unknown."""
        return None if self._dims is None else list(self._dims)

    def as_list(self) -> list[int | None]:
        """Returns the sizes as a list.

        Raises:
            ValueError: the rank is unknown.

        >>> TensorShape([2, None]).as_list()
        [2, None]
        """
        if self._dims is None:
            raise ValueError("as_list() is not defined on an unknown TensorShape.")
        return list(self._dims)

    def num_elements(self) -> int | None:
        """Returns the number of elements; None if it is unknown.

        >>> TensorShape([2, 3]).num_elements()
        6
        """
        if self._dims is None:
            return None
        known = [d for d in self._dims if d is not None]
        return math.prod(known) if len(known) == len(self._dims) else None

    def is_fully_defined(self) -> bool:
        """Returns whether every size is known.

        >>> TensorShape([2, None]).is_fully_defined()
        False
        """
        return self.num_elements() is not None

    def is_compatible_with(self, other: ShapeLike) -> bool:
        """Returns whether one array could have both shapes.

        >>> TensorShape([2, None]).is_compatible_with([2, 5])
        True
        """
        a, b = self.dims, TensorShape(other).dims
        if a is None or b is None:
            return True
        return len(a) == len(b) and all(map(_may_be_same, a, b))

    def is_subtype_of(self, other: ShapeLike) -> bool:
        """Returns whether every array of this shape is one of the other shape.

        >>> TensorShape([2, 3]).is_subtype_of([2, None])
        True
        """
        a, b = self.dims, TensorShape(other).dims
        if b is None:
            return True
        if a is None or len(a) != len(b):
            return False
        return all(y is None or x == y for x, y in zip(a, b, strict=True))

    def most_specific_compatible_shape(self, other: ShapeLike) -> TensorShape:
        """Returns the shape of arrays of either shape.

        >>> TensorShape([2, 3]).most_specific_compatible_shape([4, 3])
        TensorShape([None, 3])
        """
        a, b = self.dims, TensorShape(other).dims
        if a is None or b is None or len(a) != len(b):
            return TensorShape(None)
        return TensorShape(x if x == y else None for x, y in zip(a, b, strict=True))

    def merge_with(self, other: ShapeLike) -> TensorShape:
        """Returns the shape of arrays that have both shapes.

        Raises:
            ValueError: there are none.

        >>> TensorShape([2, None]).merge_with([None, 3])
        TensorShape([2, 3])
        """
        found = TensorShape(other)
        if self._dims is None:
            return found
        if found._dims is None:
            return self
        if not self.is_compatible_with(found):
            raise ValueError(f"Shapes {self} and {found} are not compatible")
        return TensorShape(
            y if x is None else x for x, y in zip(self._dims, found._dims, strict=True)
        )

    def concatenate(self, other: ShapeLike) -> TensorShape:
        """Returns this shape with the axes of another one after its own.

        >>> TensorShape([2]).concatenate([3, None])
        TensorShape([2, 3, None])
        """
        found = TensorShape(other)
        if self._dims is None or found._dims is None:
            return TensorShape(None)
        return TensorShape((*self._dims, *found._dims))

    def with_rank(self, rank: int) -> TensorShape:
        """Returns this shape with a certain number of axes.

        Raises:
            ValueError: it has another number of axes.

        >>> TensorShape(None).with_rank(2)
        TensorShape([None, None])
        """
        if self._dims is None:
            return TensorShape([None] * rank)
        self.assert_has_rank(rank)
        return self

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """Returns this shape, which has at least `rank` axes.

        Raises:
            ValueError: it has fewer than `rank` axes.

        >>> TensorShape([2, 3]).with_rank_at_least(1)
        TensorShape([2, 3])
        """
        if self._dims is not None and len(self._dims) < rank:
            raise ValueError(f"Shape {self} must have rank at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """Returns this shape, which has at most `rank` axes.

        Raises:
            ValueError: it has more than `rank` axes.

        >>> TensorShape([2, 3]).with_rank_at_most(2)
        TensorShape([2, 3])
        """
        if self._dims is not None and len(self._dims) > rank:
            raise ValueError(f"Shape {self} must have rank at most {rank}")
        return self

    def assert_has_rank(self, rank: int) -> None:
        """Raises `ValueError` unless the shape may have `rank` axes.

        >>> TensorShape([2, 3]).assert_has_rank(2)
        """
        if self._dims is not None and len(self._dims) != rank:
            raise ValueError(f"Shape {self} must have rank {rank}")

    def assert_same_rank(self, other: ShapeLike) -> None:
        """Raises `ValueError` unless two shapes may have the same number of axes.

        >>> TensorShape([2, 3]).assert_same_rank([4, 5])
        """
        a, b = self, TensorShape(other)
        if None not in (a.rank, b.rank) and a.rank != b.rank:
            raise ValueError(f"Shapes {a} and {b} must have the same rank")

    def assert_is_compatible_with(self, other: ShapeLike) -> None:
        """Raises `ValueError` unless one array could have both shapes.

        >>> TensorShape([2, None]).assert_is_compatible_with([2, 5])
        """
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {other} are incompatible")

    def assert_is_fully_defined(self) -> None:
        """Raises `ValueError` unless every size is known.

        >>> TensorShape([2, 3]).assert_is_fully_defined()
        """
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def __len__(self) -> int:
        if self._dims is None:
            raise ValueError("Cannot take the length of shape with unknown rank.")
        return len(self._dims)

    # As in TensorFlow: true if the rank is known, also for the shape of a scalar.
    def __bool__(self) -> bool:
        return self._dims is not None

    def __iter__(self) -> Iterator[int | None]:
        if self._dims is None:
            raise ValueError("Cannot iterate over a shape with unknown rank.")
        return iter(self._dims)

    @overload
    def __getitem__(self, key: SupportsIndex) -> int | None: ...

    @overload
    def __getitem__(self, key: slice) -> TensorShape: ...

    def __getitem__(self, key: SupportsIndex | slice) -> int | TensorShape | None:
        if self._dims is not None:
            if isinstance(key, slice):
                return TensorShape(self._dims[key])
            return self._dims[key]
        if not isinstance(key, slice):
            return None
        # Of an unknown shape, as many axes are known to be unknown as are asked for.
        start, stop = key.start or 0, key.stop
        if stop is None or stop < 0 or start < 0 or key.step not in (None, 1):
            return TensorShape(None)
        return TensorShape([None] * max(stop - start, 0))

    def __add__(self, other: ShapeLike) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: ShapeLike) -> TensorShape:
        return TensorShape(other).concatenate(self)

    def __eq__(self, other: object) -> bool:
        if other is not None and not isinstance(other, (TensorShape, Sequence)):
            return NotImplemented
        try:
            return self._dims == TensorShape(other)._dims
        except (TypeError, ValueError):
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self._dims)

    def __reduce__(self) -> tuple[type[TensorShape], tuple[ShapeLike]]:
        return TensorShape, (self._dims,)

    def __str__(self) -> str:
        return "<unknown>" if self._dims is None else str(self._dims)

    def __repr__(self) -> str:
        return f"TensorShape({None if self._dims is None else list(self._dims)})"


def _dimension(value: object) -> int | None:
    """Returns a size as a Python number, or None for an unknown one."""
    if value is None:
        return None
    try:
        size = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            "Dimension value must be integer or None or have an __index__ method, got "
            f"value '{value!r}' with type '{type(value)!r}'"
        ) from None
    if size < 0:
        raise ValueError(f"Dimension {size} must be >= 0")
    return size


def _may_be_same(a: int | None, b: int | None) -> bool:
    return a is None or b is None or a == b


publish("unisono", TensorShape)
