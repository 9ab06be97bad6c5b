"""`TensorShape`: the sizes of an array, of which some or all may be unknown."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, SupportsIndex, TypeAlias, Union, final, overload

from unisono._src.foundation.tensorflow_names.everyday import everyday_name

# By `Union`: the name of the class is a text here, and texts have no `|`.
ShapeLike: TypeAlias = Union["TensorShape", Iterable[int | None], int, None]


@final
class _AnyRank:
    """The one entry of a shape whose rank is unknown.

    It is no size, so that code which reads the entries of a tuple without asking the
    shape, as code in C may do, raises instead of taking the shape for that of a scalar.
    """


_ANY_RANK: Final = _AnyRank()


@everyday_name(
    "TensorShape",
    difference="The shape of an array is a plain tuple; `dims` are numbers.",
)
@final
class TensorShape(tuple[Any, ...]):
    """The shape of an array, in which sizes may be unknown.

    It is a tuple of the sizes, which JAX and NumPy accept like any other tuple. In
    nested structures it is one value, as in TensorFlow: `unisono.nest` and `jax.tree`
    do not flatten it.

    Args:
        dims: the sizes; one number for a shape with one axis; None for any shape.

    Raises:
        TypeError: a size is not a whole number.
        ValueError: a size is negative.

    >>> shape = TensorShape([None, 3])
    >>> shape, shape.rank, shape.as_list(), shape.is_fully_defined()
    (TensorShape([None, 3]), 2, [None, 3], False)
    >>> shape.is_compatible_with([5, 3]), TensorShape([2, 3]) == (2, 3)
    (True, True)
    >>> [10] + TensorShape([2, 3])[1:], tuple(TensorShape([2, 3]))
    (TensorShape([10, 3]), (2, 3))
    """

    __slots__ = ()

    def __new__(cls, dims: ShapeLike) -> TensorShape:
        if isinstance(dims, TensorShape):
            return dims
        sizes: tuple[object, ...]
        if dims is None:
            sizes = (_ANY_RANK,)
        elif isinstance(dims, str) or not isinstance(dims, Iterable):
            sizes = (_dimension(dims),)
        else:
            sizes = tuple(map(_dimension, dims))
        return super().__new__(cls, sizes)

    @property
    def _dims(self) -> tuple[int | None, ...] | None:
        """The sizes as a plain tuple; None if the rank is unknown."""
        sizes = tuple(super().__iter__())
        return None if sizes == (_ANY_RANK,) else sizes

    @property
    def rank(self) -> int | None:
        """The number of axes; None if it is unknown."""
        sizes = self._dims
        return None if sizes is None else len(sizes)

    @property
    def ndims(self) -> int | None:
        """The same as `rank`."""
        return self.rank

    @property
    def dims(self) -> list[int | None] | None:
        """The sizes as a list; None if the rank is unknown."""
        sizes = self._dims
        return None if sizes is None else list(sizes)

    def as_list(self) -> list[int | None]:
        """Returns the sizes as a list.

        Raises:
            ValueError: the rank is unknown.

        >>> TensorShape([2, None]).as_list()
        [2, None]
        """
        sizes = self._dims
        if sizes is None:
            raise ValueError("as_list() is not defined on an unknown TensorShape.")
        return list(sizes)

    def num_elements(self) -> int | None:
        """Returns the number of elements; None if it is unknown.

        >>> TensorShape([2, 3]).num_elements()
        6
        """
        sizes = self._dims
        if sizes is None:
            return None
        known = [d for d in sizes if d is not None]
        return math.prod(known) if len(known) == len(sizes) else None

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
        """Returns whether every array of this shape also has the other shape.

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
        """Returns the most specific shape that includes both shapes.

        >>> TensorShape([2, 3]).most_specific_compatible_shape([4, 3])
        TensorShape([None, 3])
        """
        a, b = self.dims, TensorShape(other).dims
        if a is None or b is None or len(a) != len(b):
            return TensorShape(None)
        return TensorShape(x if x == y else None for x, y in zip(a, b, strict=True))

    def merge_with(self, other: ShapeLike) -> TensorShape:
        """Returns the shape of the arrays that have both shapes.

        Raises:
            ValueError: no array can have both shapes.

        >>> TensorShape([2, None]).merge_with([None, 3])
        TensorShape([2, 3])
        """
        found = TensorShape(other)
        a, b = self._dims, found._dims
        if a is None:
            return found
        if b is None:
            return self
        if not self.is_compatible_with(found):
            raise ValueError(f"Shapes {self} and {found} are not compatible")
        return TensorShape(y if x is None else x for x, y in zip(a, b, strict=True))

    def concatenate(self, other: ShapeLike) -> TensorShape:
        """Returns this shape, followed by the axes of another one.

        >>> TensorShape([2]).concatenate([3, None])
        TensorShape([2, 3, None])
        """
        a, b = self.dims, TensorShape(other).dims
        return TensorShape(None if a is None or b is None else (*a, *b))

    def with_rank(self, rank: int) -> TensorShape:
        """Returns this shape with `rank` axes.

        Raises:
            ValueError: it has a different number of axes.

        >>> TensorShape(None).with_rank(2)
        TensorShape([None, None])
        """
        if self._dims is None:
            return TensorShape([None] * rank)
        self.assert_has_rank(rank)
        return self

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """Returns this shape if it has at least `rank` axes.

        Raises:
            ValueError: it has fewer than `rank` axes.

        >>> TensorShape([2, 3]).with_rank_at_least(1)
        TensorShape([2, 3])
        """
        if self.rank is not None and self.rank < rank:
            raise ValueError(f"Shape {self} must have rank at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """Returns this shape if it has at most `rank` axes.

        Raises:
            ValueError: it has more than `rank` axes.

        >>> TensorShape([2, 3]).with_rank_at_most(2)
        TensorShape([2, 3])
        """
        if self.rank is not None and self.rank > rank:
            raise ValueError(f"Shape {self} must have rank at most {rank}")
        return self

    def assert_has_rank(self, rank: int) -> None:
        """Raises `ValueError` unless the shape may have `rank` axes.

        >>> TensorShape([2, 3]).assert_has_rank(2)
        """
        if self.rank not in (None, rank):
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
        sizes = self._dims
        if sizes is None:
            raise ValueError("Cannot take the length of shape with unknown rank.")
        return len(sizes)

    # As in TensorFlow, and other than for plain tuples: the shape of a scalar is true.
    def __bool__(self) -> bool:
        return self._dims is not None

    def __iter__(self) -> Iterator[Any]:
        sizes = self._dims
        if sizes is None:
            raise ValueError("Cannot iterate over a shape with unknown rank.")
        return iter(sizes)

    def __contains__(self, size: object) -> bool:
        return size in list(self)

    @overload
    def __getitem__(self, key: SupportsIndex) -> Any: ...

    @overload
    def __getitem__(self, key: slice) -> TensorShape: ...

    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        sizes = self._dims
        if sizes is not None:
            return TensorShape(sizes[key]) if isinstance(key, slice) else sizes[key]
        if not isinstance(key, slice):
            return None
        # Of an unknown shape, as many axes are known to be unknown as are asked for.
        start, stop = key.start or 0, key.stop
        if stop is None or stop < 0 or start < 0 or key.step not in (None, 1):
            return TensorShape(None)
        return TensorShape([None] * max(stop - start, 0))

    def __add__(self, other: ShapeLike) -> TensorShape:  # type: ignore[override]
        return self.concatenate(other)

    def __radd__(self, other: ShapeLike) -> TensorShape:
        return TensorShape(other).concatenate(self)

    def __eq__(self, other: object) -> bool:
        if type(other) is tuple:
            return super().__eq__(other)
        if other is not None and not isinstance(other, Sequence):
            return NotImplemented
        try:
            return self._dims == TensorShape(other)._dims
        except (TypeError, ValueError):
            return NotImplemented

    # A tuple has one of its own, which would compare a list as something else.
    def __ne__(self, other: object) -> bool:
        is_same = self.__eq__(other)
        return is_same if is_same is NotImplemented else not is_same

    # A shape and a plain tuple that are equal are one key.
    def __hash__(self) -> int:
        return super().__hash__()

    def __reduce__(self) -> tuple[type[TensorShape], tuple[ShapeLike]]:
        return TensorShape, (self._dims,)

    def __str__(self) -> str:
        sizes = self._dims
        return "<unknown>" if sizes is None else str(sizes)

    def __repr__(self) -> str:
        return f"TensorShape({self.dims})"


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
