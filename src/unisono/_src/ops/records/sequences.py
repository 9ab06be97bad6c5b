"""Features of records with a `SequenceExample`: a context, and lists of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.ops.records import features, messages, parsing, reading, texts

__all__ = ["parse_sequence_example", "parse_single_sequence_example"]

_CONTEXT = (features.FixedLenFeature, features.VarLenFeature)
_STEPS = (features.FixedLenSequenceFeature, features.VarLenFeature)


@everyday_name("io.parse_single_sequence_example", difference=parsing.DAMAGED)
def parse_single_sequence_example(
    serialized: object,
    context_features: parsing.Asked | None = None,
    sequence_features: parsing.Asked | None = None,
    example_name: object = None,
    name: str | None = None,
) -> tuple[parsing.Found, parsing.Found]:
    """Returns the features of a record that holds a `SequenceExample`.

    It is a function of the host: call it in `Dataset.map`, or eagerly.

    Args:
        serialized: the record, as `bytes`.
        context_features: what to read of the context, by name.
        sequence_features: which lists to read, by name: `FixedLenSequenceFeature`, or
            `VarLenFeature`, which fills up the steps to the longest one.
        example_name: what messages of errors call the record.
        name: accepted for TensorFlow's sake.

    Returns:
        The features of the context, and the lists, whose first axis is that of the
        steps.

    Raises:
        InvalidArgumentError: the record is damaged, lacks a feature or list that may
            not be missing, or one has another type or number of values.
        TypeError: `serialized` is no text, or a program is being compiled.
        ValueError: `serialized` is no scalar, or there are no features.

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
    record = texts.read_one(called, "serialized", serialized)
    names = None if example_name is None else [example_name]
    context, lists = _check(context_features, sequence_features, called)
    place = called, "", None, names, None
    message = reading.parse(messages.SequenceExample, record, place)
    found = parsing.read_features(message.context.feature, context, called, names)
    return found, {
        key: texts.present(
            _read_steps(message, feature, (called, key, None, names, None))
        )
        for key, feature in lists.items()
    }


@everyday_name("io.parse_sequence_example", difference=parsing.DAMAGED)
def parse_sequence_example(
    serialized: object,
    context_features: parsing.Asked | None = None,
    sequence_features: parsing.Asked | None = None,
    example_names: Sequence[object] | None = None,
    name: str | None = None,
) -> tuple[parsing.Found, parsing.Found, parsing.Found]:
    """Returns the features of a batch of records that each hold a `SequenceExample`.

    All are filled up to the longest one of the batch. The arguments and errors are
    those of `parse_single_sequence_example`; `serialized` is a batch, or one record.

    Returns:
        The features of the context, the lists, and the number of steps of each
        `FixedLenSequenceFeature` in each record.

    >>> import unisono as tf
    >>> empty = tf.train.SequenceExample().SerializeToString()
    >>> wanted = {"x": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)}
    >>> _, found, lengths = parse_sequence_example([empty], sequence_features=wanted)
    >>> found["x"].shape, lengths["x"].tolist()
    ((1, 0), [0])
    """
    called = "parse_sequence_example"
    records = texts.read(called, "serialized", serialized)
    context, lists = _check(context_features, sequence_features, called)
    if isinstance(records, bytes):
        names = example_names and example_names[0]
        one = parse_single_sequence_example(records, context, lists, names)
        return *one, {
            key: texts.present(np.array(len(one[1][key]), np.int64))
            for key, feature in lists.items()
            if not isinstance(feature, features.VarLenFeature)
        }
    parsing.check_batch(records, called)
    found = reading.parse_all(messages.SequenceExample, records, called, example_names)
    maps = [message.context.feature for message in found]
    batch = parsing.read_batch(maps, context, called, example_names)
    steps, lengths = {}, {}
    for key, feature in lists.items():
        rows = [
            _read_steps(message, feature, (called, key, index, example_names, None))
            for index, message in enumerate(found)
        ]
        is_list = isinstance(feature, features.VarLenFeature)
        place = called, key, None, None, None
        made = reading.pad(rows, features.layout_of(feature), 1 + is_list, place)
        steps[key] = texts.present(made)
        if not is_list:
            counts = np.array([len(row) for row in rows], np.int64)
            lengths[key] = texts.present(counts)
    return batch, steps, lengths


def _check(
    context: parsing.Asked | None, lists: parsing.Asked | None, called: str
) -> tuple[parsing.Asked, parsing.Asked]:
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
            reading.check(asked, kinds, called)
    for key, feature in (lists or {}).items():
        if features.layout_of(feature).default is not None:
            raise ValueError(
                f"The default_value of {key!r} must be None in {called}: a list of "
                "steps is filled up with 0 or empty text."
            )
    return context or {}, lists or {}


def _read_steps(
    message: Any, feature: features.AnyFeature, place: reading.Place
) -> np.ndarray:
    """Returns one list of a record, with the steps as its first axis."""
    layout, found = features.layout_of(feature), message.feature_lists.feature_list
    called, key, index, names, _ = place
    if key not in found and not getattr(feature, "allow_missing", True):
        reading.refuse(layout, None, place)
    given = found[key].feature if key in found else ()
    places = [(called, key, index, names, step) for step in range(len(given))]
    if isinstance(feature, features.FixedLenSequenceFeature):
        return reading.stack_fixed(layout, given, places)
    rows = [reading.read_list(layout, *one) for one in zip(given, places, strict=True)]
    return reading.pad(rows, layout, 1, place)
