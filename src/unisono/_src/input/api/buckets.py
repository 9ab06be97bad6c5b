"""The transformations of `Dataset` that group similar elements."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, TypeVar, final

from unisono._src.foundation import errors
from unisono._src.input.api import transforms
from unisono._src.input.plan import elements, nodes
from unisono._src.input.sources import arrays
from unisono._src.input.stages import (
    argument_checks,
    argument_table,
    batching,
    grouping,
    padding,
)

_Dataset = TypeVar("_Dataset", bound=transforms.Transformations[Any])


@final
class _Always:
    """A function that returns one number; a class, so that it can be pickled."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, _: Any) -> int:
        return self._number

    def __str__(self) -> str:
        return f"always {self._number}"


class Groupings(transforms.Transformations[_Dataset]):
    """Methods that return a dataset of groups; abstract."""

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Any], Any],
        window_size: SupportsIndex | None = None,
        window_size_func: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> _Dataset:
        """Groups elements with the same key, and makes a dataset of each group.

        Args:
            key_func: returns the key of an element, an integer.
            reduce_func: takes a key and a dataset of elements with that key, and
                returns a dataset; these datasets are joined.
            window_size: the number of elements per group. Smaller groups that are
                left at the end come last, smallest key first.
            window_size_func: returns the number for a key, instead of `window_size`.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            TypeError: a function cannot be called.
            ValueError: not exactly one of the two window sizes is given.

        >>> from unisono.data import Dataset
        >>> groups = Dataset.range(7).group_by_window(
        ...     lambda x: x % 2, lambda key, group: group.batch(3), window_size=3
        ... )
        >>> [group.tolist() for group in groups]
        [[0, 2, 4], [1, 3, 5], [6]]
        """
        given = argument_table.check(
            "group_by_window",
            key_func=key_func,
            reduce_func=reduce_func,
            window_size=window_size,
            window_size_func=window_size_func,
        )
        if (window_size is None) == (window_size_func is None):
            raise ValueError(
                "Either the `window_size` argument or the `window_size_func` argument "
                "must be specified."
            )
        if window_size_func is None:
            window_size_func = _Always(given["window_size"])
        return self._derive(
            grouping.GroupByWindow(
                self._node, key_func, reduce_func, window_size_func, self._make_group
            )
        )

    def _make_group(self, group: list[Any]) -> Any:
        return self._derive(arrays.Listed(tuple(group)))

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> _Dataset:
        """Pads and stacks elements of similar length into batches.

        Args:
            element_length_func: returns the length of an element.
            bucket_boundaries: the lengths at which another bucket begins.
            bucket_batch_sizes: the elements per batch of each bucket; one number more
                than there are boundaries.
            padded_shapes: as in `padded_batch`.
            padding_values: as in `padded_batch`.
            pad_to_bucket_boundary: whether axes of unknown size are padded to the
                longest length of the bucket, instead of that of the batch.
            no_padding: whether elements are stacked as they are.
            drop_remainder: whether smaller last batches are dropped.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            TypeError: an argument has another type.
            ValueError: the numbers of boundaries and batch sizes do not fit.

        >>> import numpy as np
        >>> from unisono.data import Dataset
        >>> rows = Dataset.from_tensor_slices([1, 3, 2, 4]).map(lambda n: np.ones(n))
        >>> buckets = rows.bucket_by_sequence_length(len, [3], [2, 2])
        >>> [batch.shape for batch in buckets]
        [(2, 2), (2, 4)]
        """
        given = argument_table.check(
            "bucket_by_sequence_length",
            element_length_func=element_length_func,
            bucket_boundaries=bucket_boundaries,
            bucket_batch_sizes=bucket_batch_sizes,
            pad_to_bucket_boundary=pad_to_bucket_boundary,
            no_padding=no_padding,
            drop_remainder=drop_remainder,
        )
        node = self._node
        buckets = _Buckets(
            element_length_func,
            given["bucket_boundaries"],
            given["bucket_batch_sizes"],
            given["pad_to_bucket_boundary"],
            given["drop_remainder"],
            self._derive,
        )
        spec = node.spec
        if not given["no_padding"]:
            certain = nodes.tells_spec(node)
            found = padding.find(spec, padded_shapes, padding_values, certain)
            buckets.padding, spec = found, found[0]
        made = grouping.GroupByWindow(
            node,
            buckets.key,
            buckets.batch,
            buckets.size,
            self._make_group,
            batching.batched_spec(spec, None),
        )
        return self._derive(made)


@final
class _Buckets:
    """Finds the bucket of an element, and makes a batch of a full bucket."""

    def __init__(
        self,
        length: Callable[..., Any],
        edges: Sequence[int],
        sizes: Sequence[int],
        to_edge: bool,
        drop: bool,
        derive: Callable[[nodes.Node], Any],
    ) -> None:
        if len(sizes) != len(edges) + 1:
            raise ValueError(
                "`len(bucket_batch_sizes)` must equal `len(bucket_boundaries) + 1` but "
                f"`len(bucket_batch_sizes)={len(sizes)}` and "
                f"`len(bucket_boundaries)={len(edges)}`."
            )
        self._length, self._edges, self._sizes = length, edges, sizes
        self._to_edge, self._drop, self._derive = to_edge, drop, derive
        # Shapes and values, unless elements are stacked as they are.
        self.padding: tuple[Any, Any] | None = None

    def key(self, *parts: Any) -> int:
        """Returns the bucket of an element.

        Raises:
            InvalidArgumentError: it is too long to be padded to a boundary.
        """
        length = grouping.integer_of(self._length(*parts), "element_length_func")
        # A length that equals a boundary belongs to
        # the bucket behind it, as in TensorFlow.
        bucket = bisect.bisect_right(self._edges, length)
        if self._to_edge and bucket == len(self._edges):
            raise errors.InvalidArgumentError(
                "When pad_to_bucket_boundary=True, elements must have length < "
                f"max(bucket_boundaries): there is one of length {length}."
            )
        return bucket

    def size(self, bucket: Any) -> int:
        """Returns how many elements of a bucket make a batch."""
        return int(self._sizes[bucket])

    def batch(self, bucket: Any, group: Any) -> Any:
        """Returns a dataset of one batch, made of the elements of a bucket."""
        size = self._sizes[bucket]
        if self.padding is None:
            return group.batch(size, self._drop)
        shapes, values = self.padding
        if self._to_edge:
            # A bucket holds lengths below its boundary.
            longest = self._edges[bucket] - 1
            shapes = elements.map_leaves(lambda s: _fill_sizes(s, longest), shapes)
        plan = argument_checks.plan(group, "group")
        return self._derive(
            batching.PaddedBatch(plan, size, self._drop, shapes, values)
        )


def _fill_sizes(spec: Any, size: int) -> Any:
    """Returns the padded shape with every size that is not fixed set to `size`."""
    return type(spec)([size if n is None else n for n in spec.shape], spec.dtype)
