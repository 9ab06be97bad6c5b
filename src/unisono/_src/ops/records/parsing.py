"""Features of records that hold an `Example` or a `SequenceExample`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from unisono._src.foundation import errors
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.ops.records import (
    features as features_,
    messages,
    raw_bytes,
)

__all__ = [
    "parse_example",
    "parse_sequence_example",
    "parse_single_example",
    "parse_single_sequence_example",
]


DAMAGED = "A record that is not a valid message is always an error."
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

    It runs on the host: call it in `Dataset.map` or eagerly.

    Args:
        serialized: the record, as `bytes`.
        features: the features to read, by name. A `VarLenFeature` becomes a dense
            array.
        example_names: the name of the record in error messages.
        name: accepted for compatibility with TensorFlow and ignored.

    Returns:
        The features by name: NumPy arrays of int64, float32 or strings, which have
        TensorFlow's method `numpy`. A single string is `bytes` with this method.

    Raises:
        InvalidArgumentError: the record is damaged, a feature without a default is
            missing, or a feature has the wrong type or number of values.
        TypeError: `serialized` is not a string, or a function is being compiled.
        ValueError: `serialized` is not a scalar, or `features` is empty.

    >>> import unisono as tf
    >>> label = tf.train.Feature(int64_list=tf.train.Int64List(value=[3]))
    >>> example = tf.train.Example(features=tf.train.Features(feature={"label": label}))
    >>> wanted = {"label": tf.io.FixedLenFeature([], tf.int64)}
    >>> parsed = tf.io.parse_single_example(example.SerializeToString(), wanted)
    >>> parsed["label"].numpy()
    np.int64(3)
    """
    called = "parse_single_example"
    record = raw_bytes.read_one(called, "serialized", serialized)
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

    `serialized` is a batch of records, or a single one. The other arguments and the
    errors are those of `parse_single_example`. A feature of variable length is padded
    to its longest list in the batch.

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
    records = raw_bytes.read(called, "serialized", serialized)
    check(features, called)
    if isinstance(records, bytes):
        return read_record(records, features, called, example_names)
    check_batch(records, called)
    parsed = features_.parse_all(messages.Example, records, called, example_names)
    return read_batch(
        [x.features.feature for x in parsed], features, called, example_names
    )


def check(features: Asked | None, called: str) -> None:
    """Raises `ValueError` unless there are features that an `Example` may have."""
    features_.check(features, _KINDS, called)
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


def _in_order(features: Asked) -> list[tuple[str, features_.AnyFeature]]:
    """Returns features in TensorFlow's order: lists first, and then by name."""
    lists = features_.VarLenFeature
    return sorted(features.items(), key=lambda x: (type(x[1]) is not lists, x[0]))


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
    found = features_.parse(messages.Example, record, place).features.feature
    return read_features(found, features, called, names)


def read_features(
    found: Any, features: Asked, called: str, names: Sequence[object] | None
) -> Found:
    """Returns the features of one map of messages."""
    read = {}
    for key, feature in _in_order(features):
        is_fixed = type(feature) is features_.FixedLenFeature
        one = features_.read_fixed if is_fixed else features_.read_list
        layout = features_.layout_of(feature)
        place = called, key, None, names, None
        read[key] = raw_bytes.present(one(layout, found.get(key), place))
    return read


def read_batch(
    found: Sequence[Any],
    features: Asked,
    called: str,
    names: Sequence[object] | None,
) -> Found:
    """Returns the features of several maps of messages as one batch."""
    read = {}
    for key, feature in _in_order(features):
        layout = features_.layout_of(feature)
        column = [one.get(key) for one in found]
        # Made where they are needed, which is nowhere in most batches.
        places = ((called, key, index, names, None) for index in range(len(found)))
        if isinstance(feature, features_.FixedLenFeature):
            made = features_.stack_fixed(layout, column, places)
        else:
            rows = [
                features_.read_list(layout, x, place)
                for x, place in zip(column, places, strict=True)
            ]
            made = features_.pad(rows, layout, 1, (called, key, None, names, None))
        read[key] = raw_bytes.present(made)
    return read


_CONTEXT = (features_.FixedLenFeature, features_.VarLenFeature)
_STEPS = (features_.FixedLenSequenceFeature, features_.VarLenFeature)


@everyday_name("io.parse_single_sequence_example", difference=DAMAGED)
def parse_single_sequence_example(
    serialized: object,
    context_features: Asked | None = None,
    sequence_features: Asked | None = None,
    example_name: object = None,
    name: str | None = None,
) -> tuple[Found, Found]:
    """Returns the features of a record that holds a `SequenceExample`.

    It runs on the host: call it in `Dataset.map` or eagerly.

    Args:
        serialized: the record, as `bytes`.
        context_features: the features of the context to read, by name.
        sequence_features: the lists to read, by name: each is a
            `FixedLenSequenceFeature`, or a `VarLenFeature`, whose steps are padded to
            the longest one.
        example_name: the name of the record in error messages.
        name: accepted for compatibility with TensorFlow and ignored.

    Returns:
        The features of the context, and the lists, each by name. The first axis of a
        list is the axis of the steps.

    Raises:
        InvalidArgumentError: the record is damaged, a required feature or list is
            missing, or one of them has the wrong type or number of values.
        TypeError: `serialized` is not a string, or a function is being compiled.
        ValueError: `serialized` is not a scalar, or there are no features to read.

    >>> import unisono as tf
    >>> steps = [
    ...     tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
    ...     for number in (5, 6)
    ... ]
    >>> lists = {"words": tf.train.FeatureList(feature=steps)}
    >>> record = tf.train.SequenceExample(
    ...     feature_lists=tf.train.FeatureLists(feature_list=lists)
    ... ).SerializeToString()
    >>> wanted = {"words": tf.io.FixedLenSequenceFeature([], tf.int64)}
    >>> _, found = parse_single_sequence_example(record, sequence_features=wanted)
    >>> found["words"].tolist()
    [5, 6]
    """
    called = "parse_single_sequence_example"
    record = raw_bytes.read_one(called, "serialized", serialized)
    names = None if example_name is None else [example_name]
    context, lists = _check(context_features, sequence_features, called)
    place = called, "", None, names, None
    message = features_.parse(messages.SequenceExample, record, place)
    found = read_features(message.context.feature, context, called, names)
    return found, {
        key: raw_bytes.present(
            _read_steps(message, feature, (called, key, None, names, None))
        )
        for key, feature in _in_order(lists)
    }


@everyday_name("io.parse_sequence_example", difference=DAMAGED)
def parse_sequence_example(
    serialized: object,
    context_features: Asked | None = None,
    sequence_features: Asked | None = None,
    example_names: Sequence[object] | None = None,
    name: str | None = None,
) -> tuple[Found, Found, Found]:
    """Returns the features of a batch of records that each hold a `SequenceExample`.

    `serialized` is a batch of records, or a single one. The other arguments and the
    errors are those of `parse_single_sequence_example`. Shorter lists are padded to the
    longest one in the batch.

    Returns:
        The features of the context, the lists, and the number of steps of each
        `FixedLenSequenceFeature` in each record; all of them by name.

    >>> import unisono as tf
    >>> empty = tf.train.SequenceExample().SerializeToString()
    >>> wanted = {"x": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)}
    >>> _, found, lengths = parse_sequence_example([empty], sequence_features=wanted)
    >>> found["x"].shape, lengths["x"].tolist()
    ((1, 0), [0])
    """
    called = "parse_sequence_example"
    records = raw_bytes.read(called, "serialized", serialized)
    context, lists = _check(context_features, sequence_features, called)
    if isinstance(records, bytes):
        names = example_names and example_names[0]
        one = parse_single_sequence_example(records, context, lists, names)
        return *one, {
            key: raw_bytes.present(np.array(len(one[1][key]), np.int64))
            for key, feature in _in_order(lists)
            if not isinstance(feature, features_.VarLenFeature)
        }
    check_batch(records, called)
    found = features_.parse_all(
        messages.SequenceExample, records, called, example_names
    )
    maps = [message.context.feature for message in found]
    batch = read_batch(maps, context, called, example_names)
    steps, lengths = {}, {}
    for key, feature in _in_order(lists):
        rows = [
            _read_steps(message, feature, (called, key, index, example_names, None))
            for index, message in enumerate(found)
        ]
        is_list = isinstance(feature, features_.VarLenFeature)
        place = called, key, None, None, None
        made = features_.pad(rows, features_.layout_of(feature), 1 + is_list, place)
        steps[key] = raw_bytes.present(made)
        if not is_list:
            counts = np.array([len(row) for row in rows], np.int64)
            lengths[key] = raw_bytes.present(counts)
    return batch, steps, lengths


def _check(
    context: Asked | None, lists: Asked | None, called: str
) -> tuple[Asked, Asked]:
    """Returns the features of the context and the lists, which may be none.

    Raises:
        ValueError: there are neither, or one is of a class that does not fit.
    """
    if not (context or lists):
        raise ValueError(
            "Both context_features and sequence_features are None, but at least one "
            "should have values."
        )
    for asked, kinds in ((context, _CONTEXT), (lists, _STEPS)):
        if asked:
            features_.check(asked, kinds, called)
    for key, feature in (lists or {}).items():
        if features_.layout_of(feature).default is not None:
            raise ValueError(
                f"The default_value of {key!r} must be None in {called}: a list of "
                "steps is filled up with 0 or empty text."
            )
    return context or {}, lists or {}


def _read_steps(
    message: Any, feature: features_.AnyFeature, place: features_.Place
) -> np.ndarray:
    """Returns one list of a record, with the steps as its first axis."""
    layout, found = features_.layout_of(feature), message.feature_lists.feature_list
    called, key, index, names, _ = place
    if key not in found and not getattr(feature, "allow_missing", True):
        features_.refuse(layout, None, place)
    given = found[key].feature if key in found else ()
    places = [(called, key, index, names, step) for step in range(len(given))]
    if isinstance(feature, features_.FixedLenSequenceFeature):
        return features_.stack_fixed(layout, given, places)
    rows = [
        features_.read_list(layout, *one) for one in zip(given, places, strict=True)
    ]
    return features_.pad(rows, layout, 1, place)
