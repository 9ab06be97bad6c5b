"""What TensorFlow has as functions of ``tf.data.experimental`` too.

Those without a dataset among their arguments give a function for `Dataset.apply`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from unisono._src.execution import specs
from unisono._src.foundation.public_names import publish
from unisono._src.input.api import iterators
from unisono._src.input.api.dataset import Dataset
from unisono._src.input.sources import tfrecord_writer
from unisono._src.input.stages import argument_checks

Apply = Callable[[Dataset], Dataset]
_P = ParamSpec("_P")
_R = TypeVar("_R")
# Arguments that only the methods have.
_NEWER = frozenset({"self", "name", "wait", "rerandomize_each_iteration"})


def _same(name: str, method: Callable[_P, _R], **defaults: Any) -> Callable[_P, _R]:
    """The function of a static method; some arguments may have other defaults."""
    signature = _signature(method, defaults)

    def function(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        return method(*given.args, **given.kwargs)

    return _presented(function, name, f"`Dataset.{method.__name__}`.", signature)


def _applied(
    name: str, method: Callable[Concatenate[Any, _P], Any]
) -> Callable[_P, Apply]:
    """The function that gives a function for `Dataset.apply`, which calls a method."""
    signature = _signature(method, {}).replace(return_annotation=Apply)

    def function(*args: _P.args, **kwargs: _P.kwargs) -> Apply:
        signature.bind(*args, **kwargs)
        return lambda dataset: method(dataset, *args, **kwargs)

    told = f"For `Dataset.apply`: `Dataset.{method.__name__}`."
    return _presented(function, name, told, signature)


def _signature(method: Any, defaults: dict[str, Any]) -> inspect.Signature:
    known = inspect.signature(method)
    kept = [
        p.replace(default=defaults.get(p.name, p.default))
        for p in known.parameters.values()
        if p.name not in _NEWER
    ]
    return known.replace(parameters=kept)


def _presented(
    function: Callable[_P, _R], name: str, told: str, signature: inspect.Signature
) -> Callable[_P, _R]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = told
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


Counter = _same("Counter", Dataset.counter)
load = _same("load", Dataset.load)
sample_from_datasets = _same("sample_from_datasets", Dataset.sample_from_datasets)
# This one goes on after a dataset that ended.
choose_from_datasets = _same(
    "choose_from_datasets", Dataset.choose_from_datasets, stop_on_empty_dataset=False
)

bucket_by_sequence_length = _applied(
    "bucket_by_sequence_length", Dataset.bucket_by_sequence_length
)
enumerate_dataset = _applied("enumerate_dataset", Dataset.enumerate)
group_by_window = _applied("group_by_window", Dataset.group_by_window)
ignore_errors = _applied("ignore_errors", Dataset.ignore_errors)
rejection_resample = _applied("rejection_resample", Dataset.rejection_resample)
scan = _applied("scan", Dataset.scan)
take_while = _applied("take_while", Dataset.take_while)
unbatch = _applied("unbatch", Dataset.unbatch)
unique = _applied("unique", Dataset.unique)


def get_next_as_optional(iterator: iterators.PositionedIterator) -> iterators.Optional:
    """The next element of an iterator, as an `Optional`.

    Raises:
        TypeError: it is no iterator over a dataset.
    """
    if not hasattr(iterator, "get_next_as_optional"):
        raise TypeError(
            f"`iterator` must be an iterator over a dataset, received {iterator!r}. "
            "Give iter(dataset)."
        )
    return iterator.get_next_as_optional()


def get_single_element(dataset: Dataset) -> Any:
    """`Dataset.get_single_element`."""
    return dataset.get_single_element()


def save(
    dataset: Dataset,
    path: argument_checks.Path,
    compression: str | None = None,
    shard_func: Callable[..., Any] | None = None,
    checkpoint_args: None = None,
) -> None:
    """`Dataset.save`."""
    dataset.save(path, compression, shard_func, checkpoint_args)


class TFRecordWriter:
    """Writes a dataset of text to a TFRecord file.

    Args:
        filename: the file; one that is there is replaced.
        compression_type: None, "", "GZIP" or "ZLIB".
    """

    def __init__(
        self, filename: argument_checks.Path, compression_type: str | None = None
    ) -> None:
        self._filename, self._compression = filename, compression_type

    def write(self, dataset: Dataset) -> None:
        """Write each element as a record.

        Raises:
            TypeError: it is no dataset of single texts.
        """
        if not isinstance(dataset, Dataset):
            raise TypeError(f"`dataset` must be a `Dataset`, received {dataset!r}.")
        if dataset.element_spec != specs.TensorSpec((), "string"):
            raise TypeError(
                "Elements of `dataset` must be single texts, one for each record; "
                f"those of the given one are {dataset.element_spec}."
            )
        with tfrecord_writer.TFRecordWriter(self._filename, self._compression) as file:
            for record in dataset.as_numpy_iterator():
                file.write(record)


publish(
    "unisono.data.experimental",
    Counter,
    TFRecordWriter,
    bucket_by_sequence_length,
    choose_from_datasets,
    enumerate_dataset,
    get_next_as_optional,
    get_single_element,
    group_by_window,
    ignore_errors,
    load,
    rejection_resample,
    sample_from_datasets,
    save,
    scan,
    take_while,
    unbatch,
    unique,
)
