"""`Dataset`: sources, iteration, and what can be asked of a dataset."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from jax.typing import DTypeLike

from unisono._src.execution import specs
from unisono._src.foundation import (
    errors,
    host_numbers,
    library_hooks,
    local_files,
    nest,
    printable,
)
from unisono._src.foundation.tensorflow_names import replacements
from unisono._src.input.api import iterators, saved_dataset, transforms
from unisono._src.input.loaders import dispatch
from unisono._src.input.plan import carried_states, elements, nodes, seeds
from unisono._src.input.sources import arrays
from unisono._src.input.stages import (
    argument_checks as checks,
    compiled_maps,
    dataset_options,
    element_files,
    mapping,
    mixing,
    sampling,
    selecting,
    shuffling,
)

INFINITE_CARDINALITY = nodes.INFINITE
UNKNOWN_CARDINALITY = nodes.UNKNOWN
AUTOTUNE = mapping.AUTOTUNE


class Dataset(transforms.Transformations["Dataset"]):
    """Describes a stream of elements, which are read when you iterate over it.

    Each method returns a new dataset and changes nothing. Elements are nested tuples
    and dicts of NumPy arrays, and so are the arguments of the functions that `map` and
    similar methods take.

    >>> dataset = Dataset.range(5).map(lambda x: x * 10).batch(2)
    >>> [batch.tolist() for batch in dataset]
    [[0, 10], [20, 30], [40]]
    """

    # Marks a dataset for `elements`, which cannot import this class: an element may
    # contain datasets.
    _unisono_dataset = True

    def __init__(self, node: nodes.Node) -> None:
        self._node = node
        # Keras takes it for a dataset only if it is told, and may be loaded any time.
        library_hooks.introduce()

    # Type checkers would take it for a promise that any name is there.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Again, for the error: it may be one of a function that a property calls.
            try:
                return object.__getattribute__(self, name)
            except AttributeError as error:
                advice = replacements.MEMBERS.get(f"data.Dataset.{name}")
                if advice is None:
                    raise
                raise AttributeError(
                    f"{error}. {advice}", name=name, obj=self
                ) from None

    def _derive(self, node: nodes.Node) -> Dataset:
        return Dataset(node)

    # Sources.

    @staticmethod
    def from_tensors(tensors: object, name: str | None = None) -> Dataset:
        """Returns a dataset with one element.

        >>> [x.tolist() for x in Dataset.from_tensors([1, 2])]
        [[1, 2]]
        """
        return Dataset(arrays.Tensors(elements.convert(tensors)))

    @staticmethod
    def from_tensor_slices(tensors: object, name: str | None = None) -> Dataset:
        """Returns a dataset with one element for each row of the arrays.

        The arrays are not copied: do not change them while the dataset is in use.

        Args:
            tensors: an array, or nested tuples and dicts of arrays with the same
                number of rows.
            name: accepted for compatibility with TensorFlow and ignored.

        >>> rows = Dataset.from_tensor_slices({"x": [1, 2], "y": [[3], [4]]})
        >>> [(int(row["x"]), row["y"].tolist()) for row in rows]
        [(1, [3]), (2, [4])]
        """
        return Dataset(arrays.Slices.of(tensors))

    @staticmethod
    def from_generator(
        generator: Callable[..., Any],
        output_types: object = None,
        output_shapes: object = None,
        args: Sequence[Any] | None = None,
        output_signature: elements.Spec = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns a dataset of the elements that a generator function yields.

        Args:
            generator: a function that returns an iterable; it is called for each
                iteration over the dataset.
            output_types: the dtypes of an element; `output_signature` is preferred.
            output_shapes: the shapes of an element; any shape by default.
            args: the arguments of `generator`; each is converted to an array or a
                number of NumPy.
            output_signature: the `TensorSpec` of each component of an element.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            TypeError: `generator` is not callable, or the dtypes are missing or given
                twice.

        >>> import unisono
        >>> def squares(stop):
        ...     yield from (n * n for n in range(stop))
        >>> spec = unisono.TensorSpec((), np.int64)
        >>> made = Dataset.from_generator(squares, args=[4], output_signature=spec)
        >>> [int(x) for x in made]
        [0, 1, 4, 9]
        """
        checks.generator(generator, "generator")
        signature = _generator_spec(output_types, output_shapes, output_signature)
        if args is not None and not isinstance(args, (Sequence, np.ndarray)):
            raise TypeError(
                "`args` must be a list of the arguments of `generator`, received "
                f"{args!r}."
            )
        given = [_as_argument(a) for a in (() if args is None else args)]
        make = functools.partial(
            checks.call_generator, functools.partial(generator, *given)
        )
        is_exact = output_signature is None
        return Dataset(arrays.Generated(make, signature, is_exact=is_exact))

    @staticmethod
    def range(
        *args: SupportsIndex,
        output_type: DTypeLike = np.int64,
        name: str | None = None,
    ) -> Dataset:
        """Returns a dataset of the integers of Python's `range`, as `output_type`.

        Raises:
            ValueError: no arguments are given, or more than three.
            InvalidArgumentError: the step is 0.

        >>> [int(x) for x in Dataset.range(1, 8, 3)]
        [1, 4, 7]
        """
        if not 1 <= len(args) <= 3:
            raise ValueError(
                f"Invalid `args`. The length of `args` should be between 1 and 3, "
                f"received {len(args)}."
            )
        numbers = checks.integers(args, "args")
        kind = checks.number_type(output_type, "output_type")
        if len(numbers) == 3 and numbers[2] == 0:
            raise errors.InvalidArgumentError("The step of a range cannot be zero.")
        span = range(*numbers)
        if (span.stop - span.start) // span.step > sys.maxsize:
            raise ValueError(
                f"A dataset has at most 2**63 - 1 elements, received {span}."
            )
        return Dataset(arrays.Range(span.start, span.stop, span.step, kind))

    @staticmethod
    def counter(
        start: SupportsIndex = 0,
        step: SupportsIndex = 1,
        dtype: DTypeLike = np.int64,
        name: str | None = None,
    ) -> Dataset:
        """Returns an endless dataset of the integers `start`, `start + step`, ...

        >>> [int(x) for x in Dataset.counter(5, 10).take(3)]
        [5, 15, 25]
        """
        first, distance = checks.integer(start, "start"), checks.integer(step, "step")
        kind = checks.number_type(dtype, "dtype")
        return Dataset(
            arrays.Range(first, sys.maxsize, distance, kind, is_endless=True)
        )

    @staticmethod
    def random(
        seed: int | None = None,
        rerandomize_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns an endless dataset of random int64 numbers from 0 to 2**32 - 1.

        Args:
            seed: the same seed gives the same numbers in every run.
            rerandomize_each_iteration: whether each iteration has different numbers;
                False by default.
            name: accepted for compatibility with TensorFlow and ignored.

        >>> numbers = Dataset.random(seed=4).take(3)
        >>> [int(x) for x in numbers] == [int(x) for x in numbers]
        True
        """
        again = checks.optional(
            checks.flag, rerandomize_each_iteration, "rerandomize_each_iteration"
        )
        order = seeds.Order(checks.seed(seed, "seed"), again is True)
        return Dataset(shuffling.RandomNumbers(sampling.draw_numbers, order))

    @staticmethod
    def list_files(
        file_pattern: checks.Paths,
        shuffle: bool | None = None,
        seed: int | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns a dataset of the paths of files that match one or several patterns.

        Args:
            file_pattern: one or several patterns in the syntax of `glob`.
            shuffle: whether the order is random; True by default. Otherwise the paths
                are sorted.
            seed: the same seed gives the same orders in every run.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            InvalidArgumentError: no file matches.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("b.txt", "a.txt", "c.csv"):
        ...         pathlib.Path(folder, name).touch()
        ...     found = Dataset.list_files(f"{folder}/*.txt", shuffle=False)
        >>> [pathlib.Path(p.decode()).name for p in found.as_numpy_iterator()]
        ['a.txt', 'b.txt']
        """
        patterns = checks.paths(file_pattern, "file_pattern")
        is_shuffled = checks.optional(checks.flag, shuffle, "shuffle")
        checks.seed(seed, "seed")
        found = sorted(local_files.glob(patterns))
        if not found:
            told = ", ".join(patterns)
            raise errors.InvalidArgumentError(f"No files matched pattern: {told}.")
        made = Dataset(arrays.Slices.of(found))
        return made if is_shuffled is False else made.shuffle(len(found), seed)

    @staticmethod
    def zip(*args: object, datasets: object = None, name: str | None = None) -> Dataset:
        """Returns a dataset that combines one element of each dataset into an element.

        Args:
            *args: datasets, or one tuple or dict of datasets; elements are nested in
                the same way. The result ends with the shortest dataset.
            datasets: a tuple or dict of datasets, instead of `args`.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            TypeError: something in the structure is not a dataset.

        >>> pairs = Dataset.zip(Dataset.range(3), Dataset.range(10, 20))
        >>> [(int(a), int(b)) for a, b in pairs]
        [(0, 10), (1, 11), (2, 12)]
        """
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
        """Mixes elements of several datasets, in the order of `choice_dataset`.

        Args:
            datasets: their elements must have the same structure and types.
            choice_dataset: the index of a dataset for each element, counted from 0.
            stop_on_empty_dataset: whether to stop when one of the datasets ends;
                otherwise later choices of that dataset are skipped.

        Raises:
            TypeError: the elements differ, or the choices are not integers.
            ValueError: `datasets` is empty.

        >>> inputs = [Dataset.range(9), Dataset.range(10, 19)]
        >>> choices = Dataset.from_tensor_slices([1, 0, 0])
        >>> [int(x) for x in Dataset.choose_from_datasets(inputs, choices)]
        [10, 0, 1]
        """
        inputs = checks.plans(datasets, "datasets")
        choices = checks.plan(choice_dataset, "choice_dataset")
        stop = checks.flag(stop_on_empty_dataset, "stop_on_empty_dataset")
        return Dataset(sampling.choose(inputs, choices, stop))

    @staticmethod
    def sample_from_datasets(
        datasets: Sequence[Dataset],
        weights: Sequence[float] | np.ndarray | Dataset | None = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
    ) -> Dataset:
        """Mixes elements of several datasets at random.

        Args:
            datasets: their elements must have the same structure and types.
            weights: one number per dataset, proportional to the probability that it is
                chosen, or a dataset of such arrays, one for each choice; all are equal
                by default.
            seed: the same seed gives the same choices in every run.
            stop_on_empty_dataset: whether to stop when one of the datasets ends;
                otherwise only elements of the other datasets follow.
            rerandomize_each_iteration: whether each iteration makes different choices;
                False by default.

        Raises:
            TypeError: the elements differ, or the weights are not numbers.
            ValueError: `datasets` is empty, there is not one weight for each dataset,
                or a weight is negative.

        >>> inputs = [Dataset.range(3), Dataset.range(10, 13)]
        >>> mixed = Dataset.sample_from_datasets(inputs, seed=1)
        >>> sorted(int(x) for x in mixed)
        [0, 1, 2, 10, 11, 12]
        """
        inputs, number = checks.plans(datasets, "datasets"), checks.seed(seed, "seed")
        stop = checks.flag(stop_on_empty_dataset, "stop_on_empty_dataset")
        changes = checks.optional(
            checks.flag, rerandomize_each_iteration, "rerandomize_each_iteration"
        )
        order = seeds.Order(number, changes is True)
        return Dataset(sampling.sample(inputs, weights, order, stop))

    @staticmethod
    def from_loader(loader: object) -> Dataset:
        """Returns a dataset of the elements of a loader.

        Not in TensorFlow. `experimental_distribute_dataset` accepts loaders directly.
        You need this function only if a loader returns single examples, which must be
        batched first.

        Args:
            loader: a Grain, PyTorch, Hugging Face or Keras loader, a data source of
                TensorFlow Datasets, or an iterable.

        >>> [batch.tolist() for batch in Dataset.from_loader([1, 2, 3]).batch(2)]
        [[1, 2], [3]]
        """
        return Dataset(dispatch.to_node(loader))

    @staticmethod
    def load(
        path: checks.Path,
        element_spec: elements.Spec = None,
        compression: str | None = None,
        reader_func: Callable[[Dataset], Dataset] | None = None,
        wait: bool = False,
    ) -> Dataset:
        """Returns the dataset that `save` wrote.

        Args:
            path: the folder.
            element_spec: must match the saved elements; not needed, because it is
                stored in the folder.
            compression: must be the compression of the saved dataset; not needed
                either.
            reader_func: takes a dataset of datasets, one for each shard, and returns a
                dataset. By default the shards are interleaved, element by element.
            wait: whether to wait up to ten minutes for a dataset that does not exist
                yet.

        Raises:
            NotFoundError: no dataset was saved in the folder.
            InvalidArgumentError: the saved elements do not match `element_spec`.
            ValueError: the dataset was saved with a different compression.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Dataset.range(4).save(folder)
        ...     [int(x) for x in Dataset.load(folder)]
        [0, 1, 2, 3]
        """
        folder = checks.path(path, "path")
        kind = checks.compression(compression, "compression")
        checks.optional(checks.function, reader_func, "reader_func")
        waits = checks.flag(wait, "wait")
        shards = saved_dataset.load(folder, element_spec, kind, waits)
        given = Dataset(element_files.Shards(tuple(map(Dataset, shards))))
        if reader_func is not None:
            return Dataset(mixing.plan_of(reader_func(given), "reader_func"))
        if len(shards) == 1:
            return Dataset(shards[0])
        mixed = given.interleave(lambda shard: shard, cycle_length=len(shards))
        # An interleave cannot tell its number of elements, and the files do.
        return mixed.apply(assert_cardinality(sum(s.count for s in shards)))

    def save(
        self,
        path: checks.Path,
        compression: str | None = None,
        shard_func: Callable[..., Any] | None = None,
        checkpoint_args: None = None,
    ) -> None:
        """Writes the elements to a folder, for `load`, in a format of unisono.

        Args:
            path: the folder; a dataset that was saved there before is replaced when
                all elements are written.
            compression: None or "GZIP".
            shard_func: returns the number of the shard for an element; by default all
                elements are in one shard.
            checkpoint_args: must be None: an interrupted `save` cannot be continued.

        Raises:
            ValueError: the compression is unknown, or `checkpoint_args` is given.
            OSError: the folder cannot be written.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Dataset.range(4).save(folder, "GZIP", shard_func=lambda x: x % 2)
        ...     sorted(int(x) for x in Dataset.load(folder))
        [0, 1, 2, 3]
        """
        if checkpoint_args is not None:
            raise ValueError(
                "`checkpoint_args` is not supported: saving does not go on where it "
                "was interrupted. Save parts of the dataset (`shard`) into folders of "
                "their own."
            )
        folder = checks.path(path, "path")
        kind = checks.compression(compression, "compression")
        checks.optional(checks.function, shard_func, "shard_func")
        kind = saved_dataset.check_compression(kind)
        saved_dataset.save(self.prepared(), folder, kind, shard_func)

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Sequence[float] | np.ndarray,
        initial_dist: Sequence[float] | np.ndarray | None = None,
        seed: int | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Drops and repeats elements so that each class has a given share.

        The elements of the result are pairs of a class and an element.

        Args:
            class_func: returns the class of an element, an integer from 0.
            target_dist: the share that each class should have.
            initial_dist: the share that each class has now; by default estimated while
                reading.
            seed: the same seed gives the same choices in every run.
            name: accepted for compatibility with TensorFlow and ignored.

        Raises:
            TypeError: a distribution does not consist of numbers.
            ValueError: there is not one number for each class, or one is negative.

        >>> skewed = Dataset.from_tensor_slices([0] * 90 + [1] * 10).repeat()
        >>> even = skewed.rejection_resample(lambda x: x, [0.5, 0.5], [0.9, 0.1], 1)
        >>> share = np.mean([int(number) for number, _ in even.take(1000)])
        >>> bool(0.4 < share < 0.6)
        True
        """
        class_func = checks.function(class_func, "class_func")
        checks.seed(seed, "seed")
        return self._derive(
            sampling.resample(self, class_func, target_dist, initial_dist, seed)
        )

    # What can be asked.

    @property
    def element_spec(self) -> Any:
        """Returns the shapes and dtypes of an element; an unknown size is None.

        To find the result of a `map`, its function is called with the first element.

        >>> Dataset.range(4).batch(2).element_spec
        TensorSpec(shape=(None,), dtype=int64, name=None)
        """
        return self._node.spec

    def cardinality(self, name: str | None = None) -> host_numbers.HostInt64:
        """Returns the number of elements, if it is known without reading the data.

        Returns:
            The number, `INFINITE_CARDINALITY` or `UNKNOWN_CARDINALITY`.

        >>> from unisono import data
        >>> dataset = data.Dataset.range(5).batch(2)
        >>> int(dataset.cardinality())
        3
        >>> bool(dataset.repeat().cardinality() == data.INFINITE_CARDINALITY)
        True
        >>> bool(dataset.unique().cardinality() == data.UNKNOWN_CARDINALITY)
        True
        """
        return host_numbers.HostInt64(self._node.cardinality)

    def options(self) -> dataset_options.Options:
        """Returns the options that were set on the dataset and its inputs, merged.

        >>> from unisono.data import Options
        >>> options = Options()
        >>> options.deterministic = False
        >>> Dataset.range(3).with_options(options).batch(2).options().deterministic
        False
        """
        return dataset_options.options_of(self._node)

    def __len__(self) -> int:
        return nodes.known_length(self._node.cardinality)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        try:
            shown = repr(self.element_spec)
        except Exception as e:
            shown = f"<{type(e).__name__}: {printable.escape(str(e))}>"
        return f"<{type(self).__name__} element_spec={shown}>"

    # Iteration.

    def prepared(self) -> nodes.Node:
        """Returns the plan that iterators read, with the options for maps applied."""
        return compiled_maps.run_as_asked(self._node, self.options())

    def __iter__(self) -> iterators.DatasetIterator:
        return iterators.iterate(self.prepared())

    def as_numpy_iterator(self) -> iterators.NumpyIterator:
        """Returns an iterator whose elements are NumPy arrays, scalars and `bytes`.

        >>> [x.item() for x in Dataset.range(3).as_numpy_iterator()]
        [0, 1, 2]
        """
        return iterators.NumpyIterator(self)

    def get_single_element(self, name: str | None = None) -> Any:
        """Returns the only element.

        Raises:
            InvalidArgumentError: the dataset has no elements, or several.

        >>> Dataset.range(3).batch(3).get_single_element().tolist()
        [0, 1, 2]
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
        initial_state: object,
        reduce_func: Callable[[Any, Any], Any],
        name: str | None = None,
    ) -> Any:
        """Reduces all elements to one value.

        Args:
            initial_state: the state before the first element.
            reduce_func: takes a state and an element, and returns the next state.
            name: accepted for compatibility with TensorFlow and ignored.

        Returns:
            The last state.

        Raises:
            TypeError: `reduce_func` returned a state with different dtypes.

        >>> int(Dataset.range(5).reduce(np.int64(0), lambda total, x: total + x))
        10
        """
        reduce_func = checks.function(reduce_func, "reduce_func")
        narrowed = carried_states.find_narrowed(initial_state)

        def step(state: object, element: object) -> tuple[Any, None]:
            return elements.convert(mapping.call(reduce_func, (state, element))), None

        state = elements.convert(initial_state)
        for element in self:
            state, _ = carried_states.advance(
                step, state, element, narrowed, "The state of reduce"
            )
        return elements.present(state)


def _as_argument(x: object) -> Any:
    """Returns an argument of a generator; one number is NumPy's, as in TensorFlow."""
    found = elements.to_array(x)
    return found[()] if isinstance(found, np.ndarray) and not found.ndim else found


def _generator_spec(
    types: object, shapes: object, signature: elements.Spec
) -> elements.Spec:
    """Returns the spec of a generator's elements, in whichever way it was given.

    Raises:
        TypeError: it is missing, given in both ways, or no structure of specs.
    """
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
        return elements.map_specs(lambda t: specs.TensorSpec(None, t), types)
    found = iter(_shapes_like(types, shapes))
    return elements.map_specs(lambda t: specs.TensorSpec(next(found), t), types)


def _shapes_like(types: object, shapes: object) -> list[Any]:
    """Returns the shapes in the order of the types; a shape is itself a tuple."""
    if not elements.is_structure(types):
        return [checks.shape(shapes, "output_shapes")]
    found = checks.parts(types, shapes, "output_shapes", "output_types")
    pairs = zip(nest.children(types), found, strict=True)
    return [shape for t, s in pairs for shape in _shapes_like(t, s)]


def cardinality(dataset: Dataset) -> host_numbers.HostInt64:
    """Returns how many elements a dataset has; see `Dataset.cardinality`.

    >>> int(cardinality(Dataset.range(5)))
    5
    """
    return dataset.cardinality()


def assert_cardinality(expected_cardinality: int) -> Callable[[Dataset], Dataset]:
    """Returns a function for `Dataset.apply` that asserts the number of elements.

    Iterating over the result raises `FailedPreconditionError` if the number is wrong.

    >>> odd = Dataset.range(6).filter(lambda x: x % 2 == 1)
    >>> int(odd.apply(assert_cardinality(3)).cardinality())
    3
    """
    expected = checks.integer(expected_cardinality, "expected_cardinality")

    def transform(dataset: Dataset) -> Dataset:
        plan = checks.plan(dataset, "dataset")
        return Dataset(selecting.AssertCardinality(plan, expected))

    return transform
