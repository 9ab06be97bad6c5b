"""The transformations of `Dataset`: each checks its arguments and adds to the plan."""

from __future__ import annotations

import abc
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Generic, Self, SupportsIndex, TypeVar

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors
from unisono._src.input.plan import elements, nodes, seeds
from unisono._src.input.sources import arrays
from unisono._src.input.stages import (
    argument_checks,
    batching,
    cache_files,
    cache_memory,
    carried_options,
    dataset_options,
    filtering,
    mapping,
    mixing,
    padding,
    prefetch,
    scanning,
    selecting,
    shuffling,
    windowing,
)

# What the methods give: `Dataset`, which is made of this class.
_Dataset = TypeVar("_Dataset", bound="Transformations[Any]")


class Transformations(abc.ABC, Generic[_Dataset]):
    """Methods that give another dataset; abstract."""

    _node: nodes.Node

    @abc.abstractmethod
    def _derive(self, node: nodes.Node) -> _Dataset:
        """A dataset with another plan."""

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool = False,
        name: str | None = None,
    ) -> _Dataset:
        """What a function makes of each element.

        Args:
            map_func: takes the parts of a tuple as its arguments, anything else as
                one. It gets NumPy arrays; what it returns is converted.
            num_parallel_calls: how many threads call it. `AUTOTUNE` uses threads if
                the function turns out to be slow. See `Options.worker_processes` for
                functions that keep Python itself busy.
            deterministic: the order is kept whatever is said here.
            synchronous: accepted for TensorFlow's sake.
            use_unbounded_threadpool: accepted for TensorFlow's sake.
            name: accepted for TensorFlow's sake.
        """
        argument_checks.check_function(map_func, "map_func")
        calls = argument_checks.parallel(num_parallel_calls)
        return self._derive(mapping.Map(self._node, map_func, calls))

    def filter(
        self, predicate: Callable[..., Any], name: str | None = None
    ) -> _Dataset:
        """The elements for which `predicate` returns True."""
        argument_checks.check_function(predicate, "predicate")
        return self._derive(filtering.Filter(self._node, predicate))

    def batch(
        self,
        batch_size: SupportsIndex,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> _Dataset:
        """Consecutive elements stacked; the last batch may be smaller.

        Args:
            batch_size: elements per batch.
            drop_remainder: whether a smaller last batch is dropped.
            num_parallel_calls: batches are made one after the other; as in
                TensorFlow, giving a number hides the batch size from
                `experimental_distribute_dataset`.
            deterministic: the order is kept whatever is said here.
            name: accepted for TensorFlow's sake.
        """
        size = argument_checks.positive(batch_size, "batch_size")
        argument_checks.parallel(num_parallel_calls)
        made = batching.Batch(
            self._node, size, argument_checks.flag(drop_remainder, "drop_remainder")
        )
        if num_parallel_calls is not None:
            return self._derive(batching.Opaque(made))
        return self._derive(made)

    def padded_batch(
        self,
        batch_size: SupportsIndex,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> _Dataset:
        """Elements of different shapes, padded at the end of each axis and stacked.

        Args:
            batch_size: elements per batch.
            padded_shapes: per component; None or -1 means the longest of the batch.
            padding_values: per component, or one for all; zero or empty text.
            drop_remainder: whether a smaller last batch is dropped.
            name: accepted for TensorFlow's sake.
        """
        size = argument_checks.positive(batch_size, "batch_size")
        certain = nodes.tells_spec(self._node)
        shapes, values = padding.find(
            self._node.spec, padded_shapes, padding_values, certain
        )
        return self._derive(
            batching.PaddedBatch(
                self._node,
                size,
                argument_checks.flag(drop_remainder, "drop_remainder"),
                shapes,
                values,
            )
        )

    def unbatch(self, name: str | None = None) -> _Dataset:
        """The rows of each element as elements."""
        made = _checked(batching.Unbatch(self._node))
        if nodes.tells_spec(made):
            _check_lengths(self._node.spec)
        return self._derive(made)

    def rebatch(
        self,
        batch_size: SupportsIndex | Sequence[SupportsIndex],
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> _Dataset:
        """Batches cut to another size, or to several sizes in turn."""
        sizes = tuple(_sizes(batch_size))
        made = batching.Rebatch(
            self._node, sizes, argument_checks.flag(drop_remainder, "drop_remainder")
        )
        return self._derive(_checked(made))

    def shuffle(
        self,
        buffer_size: SupportsIndex,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> _Dataset:
        """Each element drawn at random from the next `buffer_size` ones.

        Args:
            buffer_size: how many elements wait to be drawn.
            seed: the same seed gives the same orders in every run.
            reshuffle_each_iteration: whether each iteration has another order; True
                unless said otherwise.
            name: accepted for TensorFlow's sake.
        """
        size = argument_checks.integer(buffer_size, "buffer_size")
        if size == nodes.UNKNOWN:
            size = sys.maxsize
        if size < 1:
            raise errors.InvalidArgumentError(
                f"buffer_size must be greater than zero, received {buffer_size}."
            )
        changes = reshuffle_each_iteration is None or argument_checks.flag(
            reshuffle_each_iteration, "reshuffle_each_iteration"
        )
        order = seeds.Order(argument_checks.seed(seed), changes)
        return self._derive(shuffling.Shuffle(self._node, size, order))

    def repeat(
        self, count: SupportsIndex | None = None, name: str | None = None
    ) -> _Dataset:
        """The elements `count` times; without end if it is None or -1."""
        return self._derive(
            selecting.Repeat(
                self._node,
                -1 if count is None else argument_checks.integer(count, "count"),
            )
        )

    def take(self, count: SupportsIndex, name: str | None = None) -> _Dataset:
        """The first `count` elements; all for -1."""
        return self._derive(
            selecting.Take(self._node, argument_checks.integer(count, "count"))
        )

    def skip(self, count: SupportsIndex, name: str | None = None) -> _Dataset:
        """All but the first `count` elements; none for -1."""
        return self._derive(
            selecting.Skip(self._node, argument_checks.integer(count, "count"))
        )

    def shard(
        self, num_shards: SupportsIndex, index: SupportsIndex, name: str | None = None
    ) -> _Dataset:
        """Every `num_shards`-th element, beginning with number `index`.

        With `experimental.SHARD_HINT` for both, `AutoShardPolicy.HINT` shards here.
        """
        shards = argument_checks.integer(num_shards, "num_shards")
        number = argument_checks.integer(index, "index")
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
        """Read up to `buffer_size` elements ahead, in a thread."""
        size = mapping.AUTOTUNE
        if buffer_size is not None:
            size = argument_checks.integer(buffer_size, "buffer_size")
        if size < mapping.AUTOTUNE:
            raise errors.InvalidArgumentError(
                f"buffer_size must be >= 0 or AUTOTUNE, received {buffer_size}."
            )
        return self._derive(
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
        """The elements of the datasets that a function returns, from each in turn.

        Args:
            map_func: makes a dataset of an element.
            cycle_length: how many datasets are open at a time; one per core.
            block_length: how many elements are taken from one in turn; 1.
            num_parallel_calls: accepted; the datasets are read in turn.
            deterministic: the order is kept whatever is said here.
            name: accepted for TensorFlow's sake.
        """
        argument_checks.check_function(map_func, "map_func")
        argument_checks.parallel(num_parallel_calls)
        cycle = mixing.default_cycle()
        if cycle_length not in (None, mapping.AUTOTUNE):
            cycle = argument_checks.positive(cycle_length, "cycle_length")
        block = (
            1
            if block_length is None
            else argument_checks.positive(block_length, "block_length")
        )
        return self._derive(mixing.Interleave(self._node, map_func, cycle, block))

    def flat_map(
        self, map_func: Callable[..., Any], name: str | None = None
    ) -> _Dataset:
        """The elements of the datasets that `map_func` returns, one after the other."""
        argument_checks.check_function(map_func, "map_func")
        return self._derive(mixing.Interleave(self._node, map_func, 1, 0))

    def concatenate(self, dataset: _Dataset, name: str | None = None) -> _Dataset:
        """The elements of this dataset, then those of another."""
        other = argument_checks.plan(dataset, "dataset")
        mixing.joined_spec(self._node.spec, other.spec)
        return self._derive(mixing.Concatenate((self._node, other)))

    def cache(
        self, filename: str | os.PathLike[str] = "", name: str | None = None
    ) -> _Dataset:
        """Keep the elements of the first iteration, in memory or in a file."""
        if filename:
            return self._derive(cache_files.FileCache(self._node, str(filename)))
        return self._derive(cache_memory.Cache(self._node, cache_memory.Store()))

    def enumerate(self, start: SupportsIndex = 0, name: str | None = None) -> _Dataset:
        """Pairs of a number and an element."""
        first = argument_checks.integer(start, "start")
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
        """Datasets of neighbouring elements; nested as an element is."""
        size = argument_checks.positive(size, "size")
        node = windowing.Window(
            self._node,
            size,
            size if shift is None else argument_checks.positive(shift, "shift"),
            argument_checks.positive(stride, "stride"),
            argument_checks.flag(drop_remainder, "drop_remainder"),
            self._wrap_window,
            self._wrap_window_spec,
        )
        return self._derive(node)

    def _wrap_window(self, run: list[Any]) -> Any:
        columns = elements._columns(run)
        return elements.map_leaves(
            lambda column: self._derive(arrays.Listed(tuple(column))), columns
        )

    def _wrap_window_spec(self, spec: Any) -> Any:
        return elements.map_leaves(lambda s: specs.DatasetSpec(s), spec)

    def take_while(
        self, predicate: Callable[..., Any], name: str | None = None
    ) -> _Dataset:
        """The elements before the first for which `predicate` is not True."""
        argument_checks.check_function(predicate, "predicate")
        return self._derive(filtering.TakeWhile(self._node, predicate))

    def scan(
        self, initial_state: Any, scan_func: Callable[..., Any], name: str | None = None
    ) -> _Dataset:
        """A map that carries a state: ``scan_func(state, element)`` gives both."""
        argument_checks.check_function(scan_func, "scan_func")
        initial = elements.convert(initial_state)
        return self._derive(scanning.Scan(self._node, initial, scan_func))

    def unique(self, name: str | None = None) -> _Dataset:
        """Each element that was not there before."""
        return self._derive(filtering.Unique(self._node))

    def ignore_errors(
        self, log_warning: bool = False, name: str | None = None
    ) -> _Dataset:
        """The elements whose making raises no exception."""
        return self._derive(filtering.IgnoreErrors(self._node, log_warning))

    def apply(self, transformation_func: Callable[[Self], _Dataset]) -> _Dataset:
        """What a function makes of this dataset."""
        argument_checks.check_function(transformation_func, "transformation_func")
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
        """The same dataset with options set; later ones win."""
        if not isinstance(options, dataset_options.Options):
            raise TypeError(
                f"Expected an Options object, received {type(options).__name__}."
            )
        # A copy: what the user changes afterwards must not reach this dataset.
        return self._derive(
            carried_options.WithOptions(
                self._node, dataset_options.Options().merged(options)
            )
        )


def _checked(node: nodes.Node) -> nodes.Node:
    """A node whose parent does not fit raises now, if the plan tells that."""
    if nodes.tells_spec(node):
        _ = node.spec
    return node


def _check_lengths(spec: Any) -> None:
    """Raise `ValueError` if components surely have different numbers of rows."""
    found = {
        s.shape[0]: path
        for path, s in elements.paths(spec)
        if s.shape and s.shape[0] is not None
    }
    if len(found) > 1:
        told = ", ".join(f"{path}: {size}" for size, path in found.items())
        raise ValueError(
            "`unbatch()` needs components with the same number of rows, received "
            f"{told}."
        )


def _sizes(given: Any) -> list[int]:
    """The size of a batch, or several that take turns."""
    many = hasattr(given, "__len__") and np.ndim(given) == 1
    sizes = (
        argument_checks.integers(given, "batch_size")
        if many
        else [argument_checks.integer(given, "batch_size")]
    )
    if not sizes or min(sizes) < 0 or not any(sizes):
        raise ValueError(
            f"batch_size must be a positive number or several, received {given!r}."
        )
    return sizes
