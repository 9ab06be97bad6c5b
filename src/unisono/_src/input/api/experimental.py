"""The functions of ``tf.data.experimental``, which call methods of `Dataset`.

A function that takes no dataset returns a function for `Dataset.apply`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from unisono._src.execution import specs
from unisono._src.input.api import iterators
from unisono._src.input.api.dataset import Dataset
from unisono._src.input.sources import files
from unisono._src.input.stages import argument_checks

Apply = Callable[[Dataset], Dataset]
_P = ParamSpec("_P")
_R = TypeVar("_R")
# Arguments that the methods have and the older functions lack.
_NEWER = frozenset({"self", "name", "wait", "rerandomize_each_iteration"})


def _copy_static(
    name: str, method: Callable[_P, _R], **defaults: object
) -> Callable[_P, _R]:
    """Returns a function like a static method, perhaps with other defaults."""
    signature = _signature(method, defaults)

    def function(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        return method(*given.args, **given.kwargs)

    return _present(function, name, f"Calls `Dataset.{method.__name__}`.", signature)


def _make_apply(
    name: str, method: Callable[Concatenate[Any, _P], Any]
) -> Callable[_P, Apply]:
    """Returns a function whose result, given to `Dataset.apply`, calls a method."""
    signature = _signature(method, {}).replace(return_annotation=Apply)

    def function(*args: _P.args, **kwargs: _P.kwargs) -> Apply:
        signature.bind(*args, **kwargs)
        return lambda dataset: method(dataset, *args, **kwargs)

    told = (
        f"Returns a function for `Dataset.apply` that calls "
        f"`Dataset.{method.__name__}`."
    )
    return _present(function, name, told, signature)


def _signature(method: Any, defaults: dict[str, Any]) -> inspect.Signature:
    """Returns the signature of a method without the arguments that are newer."""
    known = inspect.signature(method)
    kept = [
        p.replace(default=defaults.get(p.name, p.default))
        for p in known.parameters.values()
        if p.name not in _NEWER
    ]
    return known.replace(parameters=kept)


def _present(
    function: Callable[_P, _R], name: str, told: str, signature: inspect.Signature
) -> Callable[_P, _R]:
    """Gives a function a name, a docstring and a signature, and returns it."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = told
    # `inspect` and `help` read it; the type of functions does not declare it.
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


Counter = _copy_static("Counter", Dataset.counter)
load = _copy_static("load", Dataset.load)
sample_from_datasets = _copy_static(
    "sample_from_datasets", Dataset.sample_from_datasets
)
# Unlike the method, TensorFlow's older function goes on after a dataset has ended.
choose_from_datasets = _copy_static(
    "choose_from_datasets", Dataset.choose_from_datasets, stop_on_empty_dataset=False
)

bucket_by_sequence_length = _make_apply(
    "bucket_by_sequence_length", Dataset.bucket_by_sequence_length
)
enumerate_dataset = _make_apply("enumerate_dataset", Dataset.enumerate)
group_by_window = _make_apply("group_by_window", Dataset.group_by_window)
ignore_errors = _make_apply("ignore_errors", Dataset.ignore_errors)
rejection_resample = _make_apply("rejection_resample", Dataset.rejection_resample)
scan = _make_apply("scan", Dataset.scan)
take_while = _make_apply("take_while", Dataset.take_while)
unbatch = _make_apply("unbatch", Dataset.unbatch)
unique = _make_apply("unique", Dataset.unique)


def get_next_as_optional(iterator: iterators.PositionedIterator) -> iterators.Optional:
    """Returns the next element of an iterator as an `Optional`, empty at the end.

    Raises:
        TypeError: `iterator` is not an iterator over a dataset.

    >>> iterator = iter(Dataset.range(1))
    >>> [bool(get_next_as_optional(iterator).has_value()) for _ in range(2)]
    [True, False]
    """
    if not hasattr(iterator, "get_next_as_optional"):
        raise TypeError(
            f"`iterator` must be an iterator over a dataset, received {iterator!r}. "
            "Give iter(dataset)."
        )
    return iterator.get_next_as_optional()


def get_single_element(dataset: Dataset) -> Any:
    """Returns the only element; see `Dataset.get_single_element`.

    >>> int(get_single_element(Dataset.range(3, 4)))
    3
    """
    return dataset.get_single_element()


def save(
    dataset: Dataset,
    path: argument_checks.Path,
    compression: str | None = None,
    shard_func: Callable[..., Any] | None = None,
    checkpoint_args: None = None,
) -> None:
    """Writes the elements to a folder; see `Dataset.save`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Dataset.range(3), folder)
    ...     [int(x) for x in load(folder)]
    [0, 1, 2]
    """
    dataset.save(path, compression, shard_func, checkpoint_args)


class DatasetRecordWriter:
    """Writes a dataset of strings to a TFRecord file.

    Args:
        filename: the file; an existing one is replaced.
        compression_type: None, "", "GZIP" or "ZLIB".

    >>> import os, tempfile, unisono
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "records")
    ...     writer = unisono.data.experimental.TFRecordWriter(path)
    ...     writer.write(Dataset.from_tensor_slices(["a", "b"]))
    ...     list(unisono.data.TFRecordDataset(path).as_numpy_iterator())
    [b'a', b'b']
    """

    def __init__(
        self, filename: argument_checks.Path, compression_type: str | None = None
    ) -> None:
        self._filename, self._compression = filename, compression_type

    def write(self, dataset: Dataset) -> None:
        """Writes each element as a record.

        Raises:
            TypeError: `dataset` is not a dataset of single strings.
        """
        if not isinstance(dataset, Dataset):
            raise TypeError(f"`dataset` must be a `Dataset`, received {dataset!r}.")
        if dataset.element_spec != specs.TensorSpec((), "string"):
            raise TypeError(
                "Elements of `dataset` must be single texts, one for each record; "
                f"those of the given one are {dataset.element_spec}."
            )
        with files.TFRecordWriter(self._filename, self._compression) as file:
            for record in dataset.as_numpy_iterator():
                file.write(record)
