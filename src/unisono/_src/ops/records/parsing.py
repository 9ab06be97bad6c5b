"""`parse_example` and `parse_single_example`: features of records with an `Example`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from unisono._src.foundation import errors
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.ops.records import features as features_, messages, reading, texts

__all__ = ["parse_example", "parse_single_example"]

DAMAGED = "A record that is no such message is always an error."
_KINDS = (
    features_.FixedLenFeature,
    features_.FixedLenSequenceFeature,
    features_.VarLenFeature,
)
# What a program asks for, by name, and what it gets: arrays, or `bytes` for one text.
Asked: TypeAlias = Mapping[str, features_.AnyFeature]
Found: TypeAlias = dict[str, Any]


@everyday_name("io.parse_single_example", difference=DAMAGED)
def parse_single_example(
    serialized: object,
    features: Asked,
    example_names: object = None,
    name: str | None = None,
) -> Found:
    """Returns the features of a record that holds an `Example`.

    It is a function of the host: call it in `Dataset.map`, or eagerly.

    Args:
        serialized: the record, as `bytes`.
        features: what to read, by name. `VarLenFeature` gives a dense array.
        example_names: what messages of errors call the record.
        name: accepted for TensorFlow's sake.

    Returns:
        NumPy arrays of int64 or float32 with TensorFlow's `numpy`, or text, by name. In
        the function of a dataset one text is `bytes`.

    Raises:
        InvalidArgumentError: the record is damaged, lacks a feature that has no
            default, or a feature has another type or number of values.
        TypeError: `serialized` is no text, or a program is being compiled.
        ValueError: `serialized` is no scalar, or `features` are none.

    >>> import unisono as tf
    >>> label = tf.train.Feature(int64_list=tf.train.Int64List(value=[3]))
    >>> example = tf.train.Example(features=tf.train.Features(feature={"label": label}))
    >>> wanted = {"label": tf.io.FixedLenFeature([], tf.int64)}
    >>> parsed = tf.io.parse_single_example(example.SerializeToString(), wanted)
    >>> parsed["label"].numpy()
    np.int64(3)
    """
    called = "parse_single_example"
    record = texts.read_one(called, "serialized", serialized)
    check(features, called)
    names = None if example_names is None else [example_names]
    return read_record(record, features, called, names)


@everyday_name("io.parse_example", difference=DAMAGED)
def parse_example(
    serialized: object,
    features: Asked,
    example_names: Sequence[object] | None = None,
    name: str | None = None,
) -> Found:
    """Returns the features of a batch of records that each hold an `Example`.

    Lists of any length are filled up to the longest one of the batch. The arguments
    and errors are those of `parse_single_example`; `serialized` is a batch of records,
    or one.

    >>> import unisono as tf
    >>> def record(*numbers):
    ...     listed = tf.train.Feature(int64_list=tf.train.Int64List(value=numbers))
    ...     features = tf.train.Features(feature={"x": listed})
    ...     return tf.train.Example(features=features).SerializeToString()
    >>> dataset = tf.data.Dataset.from_tensor_slices([record(1), record(2, 3)]).batch(2)
    >>> wanted = {"x": tf.io.VarLenFeature(tf.int64)}
    >>> for batch in dataset.map(lambda records: tf.io.parse_example(records, wanted)):
    ...     print(batch["x"])
    [[1 0]
     [2 3]]
    """
    called = "parse_example"
    records = texts.read(called, "serialized", serialized)
    check(features, called)
    if isinstance(records, bytes):
        return read_record(records, features, called, example_names)
    check_batch(records, called)
    parsed = reading.parse_all(messages.Example, records, called, example_names)
    return read_batch(
        [x.features.feature for x in parsed], features, called, example_names
    )


def check(features: Asked | None, called: str) -> None:
    """Raises `ValueError` unless there are features that an `Example` may have."""
    reading.check(features, _KINDS, called)
    assert features is not None
    for feature in features.values():
        if (
            isinstance(feature, features_.FixedLenSequenceFeature)
            and not feature.allow_missing
        ):
            raise ValueError(
                "Unsupported: FixedLenSequenceFeature requires allow_missing to be "
                "True."
            )


def check_batch(records: np.ndarray, called: str) -> None:
    """Raises `InvalidArgumentError` unless records stand in one axis."""
    if records.ndim != 1:
        raise errors.InvalidArgumentError(
            f"serialized of {called} must have at most one axis, received shape "
            f"{records.shape}."
        )


def read_record(
    record: bytes, features: Asked, called: str, names: Sequence[object] | None
) -> Found:
    """Returns the features of one record."""
    place = called, "", None, names, None
    found = reading.parse(messages.Example, record, place).features.feature
    return read_features(found, features, called, names)


def read_features(
    found: Any, features: Asked, called: str, names: Sequence[object] | None
) -> Found:
    """Returns the features of one map of messages."""
    read = {}
    for key, feature in features.items():
        is_fixed = type(feature) is features_.FixedLenFeature
        one = reading.read_fixed if is_fixed else reading.read_list
        layout = features_.layout_of(feature)
        place = called, key, None, names, None
        read[key] = texts.present(one(layout, found.get(key), place))
    return read


def read_batch(
    found: Sequence[Any],
    features: Asked,
    called: str,
    names: Sequence[object] | None,
) -> Found:
    """Returns the features of several maps of messages as one batch."""
    read = {}
    for key, feature in features.items():
        layout = features_.layout_of(feature)
        column = [one.get(key) for one in found]
        # Made where they are needed, which is nowhere in most batches.
        places = ((called, key, index, names, None) for index in range(len(found)))
        if isinstance(feature, features_.FixedLenFeature):
            made = reading.stack_fixed(layout, column, places)
        else:
            rows = [
                reading.read_list(layout, x, place)
                for x, place in zip(column, places, strict=True)
            ]
            made = reading.pad(rows, layout, 1, (called, key, None, names, None))
        read[key] = texts.present(made)
    return read
