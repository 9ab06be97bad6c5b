"""`Dataset`: tf.data's everyday surface."""

from __future__ import annotations

import functools
import glob
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np
from jax.typing import DTypeLike

from unisono._src.execution import specs
from unisono._src.foundation import errors, nest
from unisono._src.foundation.public_names import publish
from unisono._src.input.api import buckets, iterators, saved_dataset
from unisono._src.input.loaders import dispatch
from unisono._src.input.plan import elements, nodes, seeds
from unisono._src.input.sources import arrays
from unisono._src.input.stages import (
    argument_checks,
    asserting,
    carried_options,
    dataset_options,
    map_processes,
    mapping,
    mixing,
    resampling,
    sampling,
    saved_shards,
    shuffling,
)

INFINITE_CARDINALITY = nodes.INFINITE
UNKNOWN_CARDINALITY = nodes.UNKNOWN
AUTOTUNE = mapping.AUTOTUNE


class Dataset(buckets.Groupings["Dataset"]):
    """A stream of elements, described and not yet read.

    Each method gives a new dataset; nothing happens before it is iterated. Elements
    are nested tuples and dicts of NumPy arrays, and so are the arguments of the
    functions given to `map` and its like.

    >>> dataset = Dataset.range(5).map(lambda x: x * 10).batch(2)
    >>> [batch.tolist() for batch in dataset]
    [[0, 10], [20, 30], [40]]
    """

    # By this elements know it that contain datasets.
    _unisono_dataset = True

    def __init__(self, node: nodes.Node) -> None:
        self._node = node

    def _derive(self, node: nodes.Node) -> Dataset:
        return Dataset(node)

    # Sources.

    @staticmethod
    def from_tensors(tensors: Any, name: str | None = None) -> Dataset:
        """One element."""
        return Dataset(arrays.Tensors(elements.convert(tensors)))

    @staticmethod
    def from_tensor_slices(tensors: Any, name: str | None = None) -> Dataset:
        """One element for each row of the arrays.

        The arrays are not copied: do not change them while the dataset is in use.
        """
        return Dataset(arrays.Slices.of(tensors))

    @staticmethod
    def from_generator(
        generator: Callable[..., Any],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Sequence[Any] | None = None,
        output_signature: Any = None,
        name: str | None = None,
    ) -> Dataset:
        """What a generator function yields; it is called for every iteration."""
        if not callable(generator):
            raise TypeError(
                "`generator` must be a callable that gives an iterable, received "
                f"{type(generator).__name__}."
            )
        signature = _signature(output_types, output_shapes, output_signature)
        if args is not None and not isinstance(args, (Sequence, np.ndarray)):
            raise TypeError(
                "`args` must be a list of the arguments of `generator`, received "
                f"{args!r}."
            )
        given = [elements.to_array(a) for a in (() if args is None else args)]
        make = functools.partial(
            argument_checks.call_generator, functools.partial(generator, *given)
        )
        return Dataset(arrays.Generated(make, signature))

    @staticmethod
    def range(
        *args: SupportsIndex,
        output_type: DTypeLike = np.int64,
        name: str | None = None,
    ) -> Dataset:
        """The integers of Python's `range`."""
        if not 1 <= len(args) <= 3:
            raise ValueError(
                f"Invalid `args`. The length of `args` should be between 1 and 3, "
                f"received {len(args)}."
            )
        numbers = [argument_checks.integer(a, "args") for a in args]
        if len(numbers) == 3 and numbers[2] == 0:
            raise errors.InvalidArgumentError("The step of a range cannot be zero.")
        span = range(*numbers)
        return Dataset(
            arrays.Range(span.start, span.stop, span.step, np.dtype(output_type))
        )

    @staticmethod
    def counter(
        start: SupportsIndex = 0,
        step: SupportsIndex = 1,
        dtype: DTypeLike = np.int64,
        name: str | None = None,
    ) -> Dataset:
        """Integers at the same distance, without end."""
        first = argument_checks.integer(start, "start")
        distance = argument_checks.integer(step, "step")
        return Dataset(
            arrays.Range(first, sys.maxsize, distance, np.dtype(dtype), is_endless=True)
        )

    @staticmethod
    def random(
        seed: int | None = None,
        rerandomize_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Endless random integers below 2**32, as int64."""
        again = rerandomize_each_iteration is not None and argument_checks.flag(
            rerandomize_each_iteration, "rerandomize_each_iteration"
        )
        return Dataset(
            shuffling.RandomNumbers(
                lambda generator, size: generator.integers(0, 1 << 32, size),
                seeds.Order(argument_checks.seed(seed), again),
            )
        )

    @staticmethod
    def list_files(
        file_pattern: argument_checks.Paths,
        shuffle: bool | None = None,
        seed: int | None = None,
        name: str | None = None,
    ) -> Dataset:
        """The paths that match one or several patterns.

        In random order unless `shuffle` is False; then sorted.
        """
        patterns = argument_checks.paths(file_pattern, "file_pattern")
        found = sorted(path for pattern in patterns for path in glob.glob(pattern))
        if not found:
            told = ", ".join(patterns)
            raise errors.InvalidArgumentError(f"No files matched pattern: {told}.")
        made = Dataset(arrays.Slices.of(found))
        return made if shuffle is False else made.shuffle(len(found), seed)

    @staticmethod
    def zip(*args: Any, datasets: Any = None, name: str | None = None) -> Dataset:
        """One element of each dataset at a time."""
        given = datasets if datasets is not None else args
        if not args and datasets is None:
            raise TypeError("Must pass at least one dataset to `Dataset.zip`.")
        if len(args) == 1:
            given = args[0]
        inputs, structure = mixing.structure_of(given)
        return Dataset(mixing.Zip(inputs, structure))

    @staticmethod
    def choose_from_datasets(
        datasets: Sequence[Dataset],
        choice_dataset: Dataset,
        stop_on_empty_dataset: bool = True,
    ) -> Dataset:
        """Each element from the dataset whose number `choice_dataset` gives."""
        inputs = argument_checks.plans(datasets, "datasets")
        choices = argument_checks.plan(choice_dataset, "choice_dataset")
        stop = argument_checks.flag(stop_on_empty_dataset, "stop_on_empty_dataset")
        return Dataset(sampling.chosen(inputs, choices, stop))

    @staticmethod
    def sample_from_datasets(
        datasets: Sequence[Dataset],
        weights: Sequence[float] | np.ndarray | Dataset | None = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
    ) -> Dataset:
        """Each element from a dataset drawn at random.

        Args:
            datasets: their elements must be of one kind.
            weights: how often each is drawn, one number per dataset, or a dataset of
                such arrays, one for each draw; all the same if it is None.
            seed: of the random choices.
            stop_on_empty_dataset: whether the first dataset that ends is the end.
            rerandomize_each_iteration: whether each iteration draws anew; True unless
                said otherwise.
        """
        inputs = argument_checks.plans(datasets, "datasets")
        stop = argument_checks.flag(stop_on_empty_dataset, "stop_on_empty_dataset")
        changes = rerandomize_each_iteration is None or argument_checks.flag(
            rerandomize_each_iteration, "rerandomize_each_iteration"
        )
        order = seeds.Order(argument_checks.seed(seed), changes)
        return Dataset(sampling.sampled(inputs, weights, order, stop))

    @staticmethod
    def from_loader(loader: Any) -> Dataset:
        """Any loader as a dataset: Grain, PyTorch, Hugging Face, Keras, an iterable.

        Not in TensorFlow. For `experimental_distribute_dataset` it is not needed,
        unless the loader gives single examples, which must be batched first.
        """
        return Dataset(dispatch.to_node(loader))

    @staticmethod
    def load(
        path: argument_checks.Path,
        element_spec: Any = None,
        compression: str | None = None,
        reader_func: Callable[[Dataset], Dataset] | None = None,
        wait: bool = False,
    ) -> Dataset:
        """What `save` wrote.

        Args:
            path: the folder.
            element_spec: must fit what was saved; None takes it from there.
            compression: likewise.
            reader_func: makes a dataset of a dataset of datasets, one for each shard.
                Without it the shards take turns, element by element.
            wait: whether a dataset that is not there yet is waited for, ten minutes.
        """
        shards = saved_dataset.load(os.fsdecode(path), element_spec, compression, wait)
        given = Dataset(saved_shards.Shards(tuple(map(Dataset, shards))))
        if reader_func is not None:
            argument_checks.check_function(reader_func, "reader_func")
            return Dataset(mixing.plan_of(reader_func(given), "reader_func"))
        if len(shards) == 1:
            return Dataset(shards[0])
        mixed = given.interleave(lambda shard: shard, cycle_length=len(shards))
        return mixed.apply(assert_cardinality(sum(s.count for s in shards)))

    def save(
        self,
        path: argument_checks.Path,
        compression: str | None = None,
        shard_func: Callable[..., Any] | None = None,
        checkpoint_args: None = None,
    ) -> None:
        """Write the elements into a folder, for `load`; in a format of unisono.

        Args:
            path: the folder; a dataset that was saved there before is replaced, at once
                and at the end.
            compression: None or "GZIP".
            shard_func: gives an element's shard, an integer. Without it there is one.
            checkpoint_args: refused: what is not whole does not count, begin anew.
        """
        if checkpoint_args is not None:
            raise ValueError(
                "`checkpoint_args` is not supported: saving does not go on where it "
                "was interrupted. Save parts of the dataset (`shard`) into folders of "
                "their own."
            )
        if shard_func is not None:
            argument_checks.check_function(shard_func, "shard_func")
        compression = saved_dataset.check_compression(compression)
        saved_dataset.save(self.prepared(), os.fsdecode(path), compression, shard_func)

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Sequence[float] | np.ndarray,
        initial_dist: Sequence[float] | np.ndarray | None = None,
        seed: int | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Pairs of a class and an element, so that each class gets a given share.

        Elements are dropped, and read again; there may be more of them than before.

        Args:
            class_func: the class of an element, an integer from 0.
            target_dist: the share that each class shall have.
            initial_dist: the share that it has; None estimates it while reading.
            seed: of the random choices.
            name: accepted for TensorFlow's sake.
        """
        argument_checks.check_function(class_func, "class_func")
        made: Dataset = resampling.resampled(
            self, class_func, target_dist, initial_dist, seed
        )
        return made

    # Looking at it.

    @property
    def element_spec(self) -> Any:
        """Shape and type of an element; a size that is not fixed is None.

        A function given to `map` is called on a first element to find out.
        """
        return self._node.spec

    def cardinality(self, name: str | None = None) -> np.int64:
        """How many elements there are, or one of the two constants."""
        return np.int64(self._node.cardinality)

    def options(self) -> dataset_options.Options:
        """The options that were set, merged."""
        return carried_options.options_of(self._node)

    def __len__(self) -> int:
        return nodes.known_length(self._node.cardinality)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        try:
            shown = repr(self.element_spec)
        except Exception as e:
            shown = f"<{type(e).__name__}>"
        return f"<{type(self).__name__} element_spec={shown}>"

    # Iterating.

    def prepared(self) -> nodes.Node:
        """The plan as it will run."""
        return map_processes.prepared(self._node, self.options().worker_processes)

    def __iter__(self) -> iterators.DatasetIterator:
        return iterators.iterate(self.prepared())

    def as_numpy_iterator(self) -> iterators.NumpyIterator:
        """An iterator whose elements are NumPy arrays and scalars."""
        return iterators.NumpyIterator(self)

    def get_single_element(self, name: str | None = None) -> Any:
        """The only element.

        Raises:
            InvalidArgumentError: there is none, or there are several.
        """
        found = list(iter(self.take(2)))
        if len(found) != 1:
            raise errors.InvalidArgumentError(
                "Dataset had "
                f"{'no elements' if not found else 'more than one element'}."
            )
        return found[0]

    def reduce(
        self,
        initial_state: Any,
        reduce_func: Callable[[Any, Any], Any],
        name: str | None = None,
    ) -> Any:
        """Fold a function over the elements."""
        state = elements.present(elements.convert(initial_state))
        for element in self:
            made = elements.convert(reduce_func(state, element))
            elements.check_same_types(state, made, "The state of reduce")
            state = elements.present(made)
        return state


def _signature(types: Any, shapes: Any, signature: Any) -> Any:
    if signature is not None:
        if types is not None or shapes is not None:
            raise TypeError(
                "`output_types` and `output_shapes` cannot be given together with "
                "`output_signature`."
            )
        for _, spec in elements.paths(signature):
            if not isinstance(spec, specs.TypeSpec):
                raise TypeError(
                    "`output_signature` must contain objects that are subclass of "
                    f"TypeSpec, received {type(spec).__name__}."
                )
        return signature
    if types is None:
        raise TypeError(
            "Either `output_signature` or `output_types` must be specified."
        )
    if shapes is None:
        return elements.map_leaves(lambda t: specs.TensorSpec(None, t), types)
    found = iter(_shapes_like(types, shapes))
    return elements.map_leaves(lambda t: specs.TensorSpec(next(found), t), types)


def _shapes_like(types: Any, shapes: Any) -> list[Any]:
    """The shapes in the order of the types; a shape is itself a tuple."""
    if not elements.is_structure(types):
        return [argument_checks.shape(shapes, "output_shapes")]
    found = argument_checks.parts(types, shapes, "output_shapes", "output_types")
    pairs = zip(nest.children(types), found, strict=True)
    return [shape for t, s in pairs for shape in _shapes_like(t, s)]


def cardinality(dataset: Dataset) -> np.int64:
    """How many elements a dataset has, or one of the two constants."""
    return dataset.cardinality()


def assert_cardinality(expected_cardinality: int) -> Callable[[Dataset], Dataset]:
    """For `Dataset.apply`: states how many elements there are; checked at the end."""
    expected = argument_checks.integer(expected_cardinality, "expected_cardinality")
    return lambda dataset: Dataset(asserting.AssertCardinality(dataset._node, expected))


publish("unisono.data", Dataset)
publish("unisono.data.experimental", assert_cardinality, cardinality)
