"""The transformations of `Dataset`: each checks its arguments and adds to the plan."""

from __future__ import annotations

import abc
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Generic, Self, SupportsIndex, TypeVar

import numpy as np

from unisono._src.foundation import errors
from unisono._src.input.plan import carried_states, elements, nodes, seeds
from unisono._src.input.sources import arrays
from unisono._src.input.stages import (
    argument_checks as checks,
    batching,
    caching,
    dataset_options,
    filtering,
    grouping,
    mapping,
    mixing,
    prefetch,
    selecting,
    shuffling,
)

# The type that the methods return: `Dataset`, which inherits from this class.
_Dataset = TypeVar("_Dataset", bound="Transformations[Any]")


class Transformations(abc.ABC, Generic[_Dataset]):
    """Methods that return another dataset; abstract."""

    _node: nodes.Node

    @abc.abstractmethod
    def _derive(self, node: nodes.Node) -> _Dataset:
        """Returns a dataset with another plan."""

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool = False,
        name: str | None = None,
    ) -> _Dataset:
        """Applies a function to each element.

        Args:
            map_func: the function. A tuple is passed as several arguments, any other
                element as one argument. The function gets NumPy arrays, and its result
                is converted to NumPy arrays.
            num_parallel_calls: the number of threads that call the function.
                `AUTOTUNE` uses threads if the function turns out to be slow. For
                functions that hold Python's global lock, see
                `Options.worker_processes`.
            deterministic: ignored; the order is always kept.
            synchronous: accepted for compatibility with TensorFlow and ignored.
            use_unbounded_threadpool: accepted for compatibility with TensorFlow and
                ignored.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            TypeError: `map_func` is not callable.
            InvalidArgumentError: `num_parallel_calls` is less than 1.

        >>> from unisono.data import Dataset
        >>> pairs = Dataset.range(3).map(lambda x: (x, x * x))
        >>> [int(x) for x in pairs.map(lambda x, square: square - x)]
        [0, 0, 2]
        """
        map_func = checks.function(map_func, "map_func")
        calls = checks.parallel(num_parallel_calls, "num_parallel_calls")
        return self._derive(mapping.Map(self._node, map_func, calls))

    def filter(
        self, predicate: Callable[..., Any], name: str | None = None
    ) -> _Dataset:
        """Keeps the elements for which `predicate` returns True.

        Args:
            predicate: gets an element like the function of `map`, and returns one
                boolean.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            TypeError: `predicate` is not callable.
            ValueError: while iterating, if `predicate` did not return one boolean.

        >>> from unisono.data import Dataset
        >>> even = Dataset.range(5).filter(lambda x: x % 2 == 0)
        >>> [int(x) for x in even]
        [0, 2, 4]
        """
        predicate = checks.function(predicate, "predicate")
        return self._derive(filtering.Filter(self._node, predicate))

    def batch(
        self,
        batch_size: SupportsIndex,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> _Dataset:
        """Stacks consecutive elements; the last batch may be smaller.

        Args:
            batch_size: the number of elements per batch.
            drop_remainder: whether a smaller last batch is dropped.
            num_parallel_calls: batches are always created one after the other. As in
                TensorFlow, if you pass a number, `experimental_distribute_dataset` does
                not see the batch size.
            deterministic: ignored; the order is always kept.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            InvalidArgumentError: `batch_size` is less than 1.

        >>> from unisono.data import Dataset
        >>> numbers = Dataset.range(5)
        >>> [batch.tolist() for batch in numbers.batch(2)]
        [[0, 1], [2, 3], [4]]
        >>> [batch.tolist() for batch in numbers.batch(2, drop_remainder=True)]
        [[0, 1], [2, 3]]
        """
        size = checks.positive_integer(batch_size, "batch_size")
        drop = checks.flag(drop_remainder, "drop_remainder")
        made = batching.Batch(self._node, size, drop)
        if checks.parallel(num_parallel_calls, "num_parallel_calls") is not None:
            # TensorFlow's parallel batch is a node of another kind, in which its search
            # for the batch size does not find one.
            return self._derive(batching.HiddenBatchSize(made))
        return self._derive(made)

    def padded_batch(
        self,
        batch_size: SupportsIndex,
        padded_shapes: object = None,
        padding_values: object = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> _Dataset:
        """Pads elements to the same shape, at the end of each axis, and stacks them.

        Args:
            batch_size: the number of elements per batch.
            padded_shapes: the shape of each component; a size of None or -1 means the
                largest size in the batch. This is the default for every axis.
            padding_values: one value for each component, or one for all. By default
                numbers are padded with 0 and strings with the empty string.
            drop_remainder: whether a smaller last batch is dropped.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            ValueError: a padded shape does not fit its component.
            TypeError: a padding value and its component have different dtypes.

        >>> from unisono.data import Dataset
        >>> rows = Dataset.range(1, 4).map(lambda n: np.arange(n))
        >>> [b.tolist() for b in rows.padded_batch(3, padding_values=np.int64(-1))]
        [[[0, -1, -1], [0, 1, -1], [0, 1, 2]]]
        """
        size = checks.positive_integer(batch_size, "batch_size")
        drop = checks.flag(drop_remainder, "drop_remainder")
        certain = nodes.tells_spec(self._node)
        shapes, values = batching.find_padding(
            self._node.spec, padded_shapes, padding_values, certain
        )
        return self._derive(
            batching.PaddedBatch(self._node, size, drop, shapes, values)
        )

    def unbatch(self, name: str | None = None) -> _Dataset:
        """Splits each element into its rows, which become the new elements.

        Args:
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            ValueError: a component has no rows, or components have different numbers
                of rows.

        >>> from unisono.data import Dataset
        >>> batches = Dataset.range(5).batch(2)
        >>> [int(x) for x in batches.unbatch()]
        [0, 1, 2, 3, 4]
        """
        made = _check_spec_now(batching.Unbatch(self._node))
        if nodes.tells_spec(made):
            _check_lengths(self._node.spec)
        return self._derive(made)

    def rebatch(
        self,
        batch_size: SupportsIndex | Sequence[SupportsIndex],
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> _Dataset:
        """Changes the size of batches, also to several sizes in turn.

        Args:
            batch_size: the new size, or a list of sizes that take turns.
            drop_remainder: whether a smaller last batch is dropped.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            ValueError: a size is negative, all sizes are 0, or elements have no rows.

        >>> from unisono.data import Dataset
        >>> batches = Dataset.range(6).batch(4)
        >>> [batch.tolist() for batch in batches.rebatch([1, 2])]
        [[0], [1, 2], [3], [4, 5]]
        """
        sizes = tuple(checks.batch_sizes(batch_size, "batch_size"))
        drop = checks.flag(drop_remainder, "drop_remainder")
        made = batching.Rebatch(self._node, sizes, drop)
        return self._derive(_check_spec_now(made))

    def shuffle(
        self,
        buffer_size: SupportsIndex,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> _Dataset:
        """Draws each element at random from a buffer of the next elements.

        Args:
            buffer_size: the number of elements in the buffer; `UNKNOWN_CARDINALITY`
                means all. Every order is equally likely only if the buffer is as large
                as the dataset.
            seed: the same seed gives the same orders in every run.
            reshuffle_each_iteration: whether each iteration has a different order; True
                by default.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            InvalidArgumentError: `buffer_size` is less than 1, and not
                `UNKNOWN_CARDINALITY`.

        >>> from unisono.data import Dataset
        >>> shuffled = Dataset.range(100).shuffle(100, seed=7)
        >>> first, second = ([int(x) for x in shuffled] for _ in range(2))
        >>> first == second, sorted(first) == sorted(second) == list(range(100))
        (False, True)
        """
        size = checks.integer(buffer_size, "buffer_size")
        number = checks.seed(seed, "seed")
        changes = checks.optional(
            checks.flag, reshuffle_each_iteration, "reshuffle_each_iteration"
        )
        # As in TensorFlow, so that `shuffle(dataset.cardinality())` works then, too.
        if size == nodes.UNKNOWN:
            size = sys.maxsize
        if size < 1:
            raise errors.InvalidArgumentError(
                f"buffer_size must be greater than zero, received {buffer_size}."
            )
        order = seeds.Order(number, changes is not False)
        return self._derive(shuffling.Shuffle(self._node, size, order))

    def repeat(
        self, count: SupportsIndex | None = None, name: str | None = None
    ) -> _Dataset:
        """Repeats the elements `count` times; None or -1 repeats them forever.

        >>> from unisono.data import Dataset
        >>> [int(x) for x in Dataset.range(2).repeat(3)]
        [0, 1, 0, 1, 0, 1]
        """
        times = checks.optional(checks.integer, count, "count")
        return self._derive(
            selecting.Repeat(self._node, -1 if times is None else times)
        )

    def take(self, count: SupportsIndex, name: str | None = None) -> _Dataset:
        """Keeps the first `count` elements; -1 keeps all.

        >>> from unisono.data import Dataset
        >>> [int(x) for x in Dataset.range(9).take(2)]
        [0, 1]
        """
        return self._derive(selecting.Take(self._node, checks.integer(count, "count")))

    def skip(self, count: SupportsIndex, name: str | None = None) -> _Dataset:
        """Skips the first `count` elements; -1 skips all.

        >>> from unisono.data import Dataset
        >>> [int(x) for x in Dataset.range(9).skip(7)]
        [7, 8]
        """
        return self._derive(selecting.Skip(self._node, checks.integer(count, "count")))

    def shard(
        self, num_shards: SupportsIndex, index: SupportsIndex, name: str | None = None
    ) -> _Dataset:
        """Keeps every `num_shards`-th element, starting at position `index`.

        If both arguments are `experimental.SHARD_HINT`, this call marks the place where
        a distributed dataset with `AutoShardPolicy.HINT` is sharded.

        Raises:
            InvalidArgumentError: `num_shards` is less than 1, or `index` is out of
                range.

        >>> from unisono.data import Dataset
        >>> [int(x) for x in Dataset.range(7).shard(3, 1)]
        [1, 4]
        """
        shards = checks.integer(num_shards, "num_shards")
        number = checks.integer(index, "index")
        if (shards, number) == (selecting.SHARD_HINT, selecting.SHARD_HINT):
            return self._derive(selecting.Shard(self._node, shards, number))
        if shards == selecting.SHARD_HINT:
            raise errors.FailedPreconditionError(
                "`shard(SHARD_HINT, SHARD_HINT)` marks where a distributed dataset is "
                f"sharded; received {number} for `index`."
            )
        if shards < 1:
            raise errors.InvalidArgumentError(
                f"num_shards must be >= 1, received {num_shards}."
            )
        if not 0 <= number < shards:
            raise errors.InvalidArgumentError(
                f"index must be between 0 and {shards - 1} for {shards} shards, "
                f"received {index}."
            )
        return self._derive(selecting.Shard(self._node, shards, number))

    def prefetch(
        self, buffer_size: SupportsIndex | None, name: str | None = None
    ) -> _Dataset:
        """Reads up to `buffer_size` elements ahead in a thread.

        Args:
            buffer_size: the number of elements; None or `AUTOTUNE` chooses it.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            InvalidArgumentError: `buffer_size` is negative and not `AUTOTUNE`.

        >>> from unisono.data import Dataset
        >>> ahead = Dataset.range(3).map(lambda x: x + 1).prefetch(2)
        >>> [int(x) for x in ahead]
        [1, 2, 3]
        """
        size = checks.optional(checks.integer, buffer_size, "buffer_size")
        if size is None:
            size = mapping.AUTOTUNE
        if size < mapping.AUTOTUNE:
            raise errors.InvalidArgumentError(
                f"buffer_size must be >= 0 or AUTOTUNE, received {buffer_size}."
            )
        return self._derive(
            # Two are enough for a thread that keeps up; more only cost memory.
            prefetch.Prefetch(self._node, 2 if size == mapping.AUTOTUNE else size)
        )

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> _Dataset:
        """Creates a dataset from each element, and takes elements from them in turn.

        Args:
            map_func: returns a dataset for an element.
            cycle_length: the number of datasets that are open at the same time; by
                default the number of CPU cores.
            block_length: the number of elements that are taken from one dataset before
                the next; 1 by default.
            num_parallel_calls: checked and ignored; the datasets are read in turn.
            deterministic: ignored; the order is always kept.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            TypeError: `map_func` is not callable, or, while iterating, did not return a
                dataset.
            InvalidArgumentError: a length is less than 1.

        >>> from unisono.data import Dataset
        >>> mixed = Dataset.range(2).interleave(
        ...     lambda n: Dataset.range(n * 10, n * 10 + 3), cycle_length=2
        ... )
        >>> [int(x) for x in mixed]
        [0, 10, 1, 11, 2, 12]
        """
        map_func = checks.function(map_func, "map_func")
        cycle = checks.cycle(cycle_length, "cycle_length")
        block = checks.optional(checks.positive_integer, block_length, "block_length")
        checks.parallel(num_parallel_calls, "num_parallel_calls")
        if cycle is None or cycle == mapping.AUTOTUNE:
            cycle = mixing.default_cycle()
        block = 1 if block is None else block
        return self._derive(mixing.Interleave(self._node, map_func, cycle, block))

    def flat_map(
        self, map_func: Callable[..., Any], name: str | None = None
    ) -> _Dataset:
        """Creates a dataset from each element, and concatenates these datasets.

        Args:
            map_func: returns a dataset for an element.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            TypeError: `map_func` is not callable, or, while iterating, did not return a
                dataset.

        >>> from unisono.data import Dataset
        >>> joined = Dataset.range(1, 4).flat_map(lambda n: Dataset.range(n))
        >>> [int(x) for x in joined]
        [0, 0, 1, 0, 1, 2]
        """
        map_func = checks.function(map_func, "map_func")
        return self._derive(mixing.Interleave(self._node, map_func, 1, 0))

    def concatenate(self, dataset: _Dataset, name: str | None = None) -> _Dataset:
        """Appends the elements of another dataset.

        Raises:
            TypeError: the elements have different structures or dtypes.

        >>> from unisono.data import Dataset
        >>> [int(x) for x in Dataset.range(2).concatenate(Dataset.range(7, 9))]
        [0, 1, 7, 8]
        """
        other = checks.plan(dataset, "dataset")
        # Only to raise now, at the call, and not at the first element.
        mixing.join_specs(self._node.spec, other.spec)
        return self._derive(mixing.Concatenate((self._node, other)))

    def cache(
        self, filename: str | os.PathLike[str] = "", name: str | None = None
    ) -> _Dataset:
        """Keeps the elements of the first iteration for all later ones.

        Args:
            filename: the file that keeps them, to which ".cache" is appended; by
                default they are kept in memory.
            name: accepted for compatibility with TensorFlow and ignored.

        >>> from unisono.data import Dataset
        >>> calls = []
        >>> cached = Dataset.range(3).map(lambda x: calls.append(x) or x)
        >>> cached = cached.cache()
        >>> calls.clear()
        >>> [len(list(cached)) for _ in range(2)], len(calls)
        ([3, 3], 3)
        """
        path = checks.path(filename, "filename")
        if path:
            caching.check_name(path)
            return self._derive(caching.FileCache(self._node, path))
        return self._derive(caching.Cache(self._node, caching.ElementStore()))

    def enumerate(self, start: SupportsIndex = 0, name: str | None = None) -> _Dataset:
        """Pairs each element with its index, counted from `start`.

        >>> from unisono.data import Dataset
        >>> tens = Dataset.range(10, 30, 10)
        >>> [(int(number), int(x)) for number, x in tens.enumerate(start=5)]
        [(5, 10), (6, 20)]
        """
        first = checks.integer(start, "start")
        numbers = arrays.Range(
            first, sys.maxsize, 1, np.dtype(np.int64), is_endless=True
        )
        return self._derive(mixing.Zip((numbers, self._node), (0, 1)))

    def window(
        self,
        size: SupportsIndex,
        shift: SupportsIndex | None = None,
        stride: SupportsIndex = 1,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> _Dataset:
        """Groups consecutive elements into datasets, one for each component.

        Args:
            size: the number of elements per window.
            shift: the distance between the starts of two windows; `size` by default.
            stride: the distance between two elements of a window.
            drop_remainder: whether windows that are too short are dropped.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            InvalidArgumentError: one of the numbers is less than 1.

        >>> from unisono.data import Dataset
        >>> windows = Dataset.range(5).window(3, shift=1, stride=2)
        >>> [[int(x) for x in window] for window in windows]
        [[0, 2, 4], [1, 3], [2, 4], [3], [4]]
        """
        count = checks.positive_integer(size, "size")
        distance = checks.optional(checks.positive_integer, shift, "shift")
        node = grouping.Window(
            self._node,
            count,
            count if distance is None else distance,
            checks.positive_integer(stride, "stride"),
            checks.flag(drop_remainder, "drop_remainder"),
            self._wrap_window,
        )
        return self._derive(node)

    def _wrap_window(self, run: list[Any]) -> object:
        """Returns a window of elements, with a dataset for each component."""
        columns = elements.columns(run)
        return elements.map_leaves(
            lambda column: self._derive(arrays.Listed(tuple(column))), columns
        )

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Any], Any],
        window_size: SupportsIndex | None = None,
        window_size_func: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> _Dataset:
        """Groups elements with the same key, and creates a dataset from each group.

        Args:
            key_func: returns the key of an element, an integer.
            reduce_func: takes a key and a dataset of elements with that key, and
                returns a dataset; these datasets are concatenated.
            window_size: the number of elements per group. Smaller groups that remain at
                the end come last, in the order of their keys.
            window_size_func: returns the number of elements for a key; use it instead
                of `window_size`.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            TypeError: a function is not callable.
            ValueError: both window sizes are given, or neither.

        >>> from unisono.data import Dataset
        >>> groups = Dataset.range(7).group_by_window(
        ...     lambda x: x % 2, lambda key, group: group.batch(3), window_size=3
        ... )
        >>> [group.tolist() for group in groups]
        [[0, 2, 4], [1, 3, 5], [6]]
        """
        key_func = checks.function(key_func, "key_func")
        reduce_func = checks.function(reduce_func, "reduce_func")
        size = checks.optional(checks.integer, window_size, "window_size")
        size_of = checks.optional(checks.function, window_size_func, "window_size_func")
        if size is not None and size_of is None:
            size_of = grouping.ConstantFunction(size)
        elif size is not None or size_of is None:
            raise ValueError(
                "Either the `window_size` argument or the `window_size_func` argument "
                "must be specified."
            )
        return self._derive(
            grouping.GroupByWindow(
                self._node, key_func, reduce_func, size_of, self._make_group
            )
        )

    def _make_group(self, group: list[Any]) -> object:
        return self._derive(arrays.Listed(tuple(group)))

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: object = None,
        padding_values: object = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> _Dataset:
        """Groups elements of similar length into padded batches.

        Args:
            element_length_func: returns the length of an element.
            bucket_boundaries: the lengths at which a new bucket begins.
            bucket_batch_sizes: the number of elements per batch, for each bucket; there
                is one more bucket than boundaries.
            padded_shapes: as in `padded_batch`.
            padding_values: as in `padded_batch`.
            pad_to_bucket_boundary: whether axes of unknown size are padded to the
                greatest length that the bucket allows, instead of the greatest length
                in the batch.
            no_padding: whether elements are stacked without padding.
            drop_remainder: whether smaller last batches are dropped.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: the number of boundaries does not match the number of batch
                sizes.

        >>> import numpy as np
        >>> from unisono.data import Dataset
        >>> rows = Dataset.from_tensor_slices([1, 3, 2, 4]).map(lambda n: np.ones(n))
        >>> buckets = rows.bucket_by_sequence_length(len, [3], [2, 2])
        >>> [batch.shape for batch in buckets]
        [(2, 2), (2, 4)]
        """
        node = self._node
        buckets = grouping.Buckets(
            checks.function(element_length_func, "element_length_func"),
            checks.integers(bucket_boundaries, "bucket_boundaries"),
            checks.integers(bucket_batch_sizes, "bucket_batch_sizes"),
            checks.flag(pad_to_bucket_boundary, "pad_to_bucket_boundary"),
            checks.flag(drop_remainder, "drop_remainder"),
            self._derive,
        )
        spec = node.spec
        if not checks.flag(no_padding, "no_padding"):
            certain = nodes.tells_spec(node)
            found = batching.find_padding(spec, padded_shapes, padding_values, certain)
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

    def take_while(
        self, predicate: Callable[..., Any], name: str | None = None
    ) -> _Dataset:
        """Stops before the first element for which `predicate` is not True.

        >>> from unisono.data import Dataset
        >>> small = Dataset.range(9).take_while(lambda x: x < 3)
        >>> [int(x) for x in small]
        [0, 1, 2]
        """
        predicate = checks.function(predicate, "predicate")
        return self._derive(filtering.TakeWhile(self._node, predicate))

    def scan(
        self,
        initial_state: object,
        scan_func: Callable[..., Any],
        name: str | None = None,
    ) -> _Dataset:
        """Applies a function that carries a state from element to element.

        Args:
            initial_state: the state before the first element.
            scan_func: takes a state and an element, and returns the next state and
                the new element.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            TypeError: `scan_func` is not callable, or, while iterating, did not return
                a pair with a state of the same dtypes.

        >>> from unisono.data import Dataset
        >>> sums = Dataset.range(5).scan(
        ...     np.int64(0), lambda total, x: (total + x, total + x)
        ... )
        >>> [int(x) for x in sums]
        [0, 1, 3, 6, 10]
        """
        scan_func = checks.function(scan_func, "scan_func")
        initial = elements.convert(initial_state)
        narrowed = carried_states.find_narrowed(initial_state)
        return self._derive(mapping.Scan(self._node, initial, scan_func, narrowed))

    def unique(self, name: str | None = None) -> _Dataset:
        """Drops each element that is equal to an earlier one.

        >>> from unisono.data import Dataset
        >>> repeated = Dataset.from_tensor_slices([3, 1, 3, 2, 1])
        >>> [int(x) for x in repeated.unique()]
        [3, 1, 2]
        """
        return self._derive(filtering.UniqueElements(self._node))

    def ignore_errors(
        self, log_warning: bool = False, name: str | None = None
    ) -> _Dataset:
        """Drops the elements for which an earlier transformation raises an error.

        Args:
            log_warning: whether each exception is logged.
            name: accepted for compatibility with TensorFlow and ignored.

        >>> from unisono.data import Dataset
        >>> ratios = Dataset.range(3).map(lambda x: 6 // int(x))
        >>> [int(x) for x in ratios.ignore_errors()]
        [6, 3]
        """
        logs = checks.flag(log_warning, "log_warning")
        return self._derive(filtering.IgnoreErrors(self._node, logs))

    def apply(self, transformation_func: Callable[[Self], _Dataset]) -> _Dataset:
        """Returns the result of a function that transforms this dataset.

        Raises:
            TypeError: the function is not callable, or did not return a dataset.

        >>> from unisono.data import Dataset
        >>> def first_batch(dataset):
        ...     return dataset.batch(2).take(1)
        >>> [b.tolist() for b in Dataset.range(9).apply(first_batch)]
        [[0, 1]]
        """
        checks.function(transformation_func, "transformation_func")
        made = transformation_func(self)
        if not isinstance(made, Transformations):
            raise TypeError(
                "`transformation_func` must return a `Dataset`, received "
                f"{type(made).__name__}."
            )
        return made

    def with_options(
        self, options: dataset_options.Options, name: str | None = None
    ) -> _Dataset:
        """Returns the dataset with options, which override earlier ones.

        Raises:
            TypeError: `options` is not an `Options` object.

        >>> from unisono.data import Dataset, Options
        >>> options = Options()
        >>> options.deterministic = True
        >>> Dataset.range(3).with_options(options).options().deterministic
        True
        """
        if not isinstance(options, dataset_options.Options):
            raise TypeError(
                f"Expected an Options object, received {type(options).__name__}."
            )
        # A copy: later changes by the user must not reach this dataset.
        return self._derive(
            dataset_options.WithOptions(
                self._node, dataset_options.Options().merged(options)
            )
        )


def _check_spec_now(node: nodes.Node) -> nodes.Node:
    """Returns the node; raises if the plan already tells that its parent is wrong."""
    if nodes.tells_spec(node):
        _ = node.spec
    return node


def _check_lengths(spec: object) -> None:
    """Raises `ValueError` if components surely have different numbers of rows."""
    found = {
        s.shape[0]: path
        for path, s in elements.paths(spec)
        if s.shape.rank and s.shape[0] is not None
    }
    if len(found) > 1:
        told = ", ".join(f"{path}: {size}" for size, path in found.items())
        raise ValueError(
            "`unbatch()` needs components with the same number of rows, received "
            f"{told}."
        )
