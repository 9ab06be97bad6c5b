"""Small pipelines of the kinds that TensorFlow's own tests of datasets have.

Each takes the library, TensorFlow or unisono, and returns a dataset.
`python -m tests.unit.input.dataset_programs` writes what TensorFlow gives to
`dataset_programs.json` where it is installed.
"""

import json
import pathlib

import numpy as np

RECORDED = pathlib.Path(__file__).with_suffix(".json")
EPOCHS = 3
# No dataset here is longer; one that repeats for ever is cut.
MOST = 60


def in_python(tf, fn):
    """A function of Python, which TensorFlow would trace otherwise."""
    if tf.__name__ == "tensorflow":
        return lambda *x: tf.reshape(tf.numpy_function(fn, x, tf.int64), [])
    return fn


def failing(tf, count, *bad):
    """The numbers below `count`, of which some raise."""

    def check(x):
        if x in bad:
            raise ValueError(f"{x} is bad")
        return np.int64(x)

    return tf.data.Dataset.range(count).map(in_python(tf, check))


def refuse_even(x):
    """Raises for every other number."""
    if x % 2 == 0:
        raise ValueError(f"{x} is even")
    return np.int64(x)


def counted(tf, count):
    """Numbers that change when an element is computed anew."""
    calls = [0]

    def number(x):
        calls[0] += 1
        return np.int64(100 * calls[0] + x)

    return tf.data.Dataset.range(count).map(in_python(tf, number))


def lengths(tf, *sizes):
    """A vector of each size."""

    def vectors():
        yield from (np.arange(n) + n * 10 for n in sizes)

    spec = tf.TensorSpec([None], tf.int64)
    return tf.data.Dataset.from_generator(vectors, output_signature=spec)


def epochs_of_sizes(tf, *sizes):
    """A generator with another number of elements each time it is called."""
    begun = [0]

    def make():
        begun[0] += 1
        if begun[0] <= len(sizes):
            yield from range(10 * begun[0], 10 * begun[0] + sizes[begun[0] - 1])

    return generated(tf, make)


def generated(tf, make):
    """The numbers of a generator."""
    spec = tf.TensorSpec((), tf.int64)
    return tf.data.Dataset.from_generator(make, output_signature=spec)


def mixed_types():
    """Yields two elements that are no single numbers."""
    yield from (1, "text", [1, 2], 4)


class Resuming:
    """An iterator that goes on after what it raises."""

    def __init__(self):
        self.next = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.next += 1
        if self.next > 5:
            raise StopIteration
        if self.next in (2, 3):
            raise ValueError(self.next)
        return self.next


def ranges(tf, *counts):
    """Several datasets of numbers, each from another hundred on."""
    return [tf.data.Dataset.range(100 * i, 100 * i + n) for i, n in enumerate(counts)]


def below(limit):
    """A predicate."""
    return lambda x: x < limit


def choose(tf, counts, choices, stop):
    """Elements of several datasets by number."""
    numbers = tf.data.Dataset.from_tensor_slices(np.int64(choices))
    return tf.data.Dataset.choose_from_datasets(
        ranges(tf, *counts), numbers, stop_on_empty_dataset=stop
    )


def group(tf, data, size, drop=False):
    """Groups of numbers with the same remainder."""
    return data.group_by_window(
        key_func=lambda x: x % 3,
        reduce_func=lambda key, rows: rows.batch(size, drop),
        window_size=size,
    )


def bucket(tf, data, **options):
    """Vectors of like length in one batch."""
    return data.bucket_by_sequence_length(
        lambda x: tf.shape(x)[0], [2, 4], [2, 2, 2], **options
    )


def zip_of(tf, *parts):
    """A zip."""
    return tf.data.Dataset.zip(tuple(parts))


def counters(tf):
    """Two numbers that grow without end."""
    return zip_of(tf, tf.data.Dataset.counter(), tf.data.Dataset.counter(10, -2))


def total(tf, zero, data):
    """One element: a sum, as `reduce` gives it, and its type."""
    found = data.reduce(zero, lambda state, x: state + x)
    assert np.asarray(found).dtype == np.int64
    return tf.data.Dataset.from_tensors(found)


def interleave(tf, data, cycle, block):
    """A few elements of each of several datasets in turn."""
    return data.interleave(
        lambda n: tf.data.Dataset.range(10 * n, 10 * n + n),
        cycle_length=cycle,
        block_length=block,
    )


def sampled(tf, options):
    """Whether each of 40 draws is the same as in the first pass."""
    mixed = tf.data.Dataset.sample_from_datasets(
        [d.repeat() for d in ranges(tf, 1, 1)], seed=3, **options
    )
    return same_in_each_pass(tf, mixed.take(40))


def same_in_each_pass(tf, data):
    """One element: whether a second pass gives the same numbers."""
    first, second = ([int(x) for x in data] for _ in range(2))
    return tf.data.Dataset.from_tensors(np.int64(first == second))


def cached(tf, size, take):
    """The first elements of a cache, which are computed once or anew."""
    return counted(tf, size).cache().take(take)


def zip_of_caches(tf, a, b):
    """Two caches, which may differ in length."""
    return zip_of(tf, counted(tf, a).cache(), counted(tf, b).cache())


def repeat_epochs(tf, sizes, count):
    """Epochs of several sizes, some of which are empty."""
    return epochs_of_sizes(tf, *sizes).repeat(count).take(20)


def rebatched(tf, rows, size, sizes, drop):
    """Batches of one size, cut to others."""
    return tf.data.Dataset.range(rows).batch(size).rebatch(list(sizes), drop)


def bound(program, *arguments):
    """A program with arguments."""
    return lambda tf: program(tf, *arguments)


PROGRAMS = {
    # A cache is complete when its last element was given.
    **{
        f"cache {size} take {take}": bound(cached, size, take)
        for size, take in ((4, 4), (4, 5), (1, 1))
    },
    **{
        f"zip of caches {a} {b}": bound(zip_of_caches, a, b)
        for a, b in ((3, 3), (3, 5), (5, 3), (4, 3), (3, 4), (0, 3), (1, 1))
    },
    "cache batch": lambda tf: counted(tf, 5).cache().batch(5),
    "cache repeat": lambda tf: counted(tf, 3).cache().repeat(2),
    "cache of a generator take": lambda tf: (
        epochs_of_sizes(tf, 2, 2, 2).cache().take(2)
    ),
    "cache shuffle": lambda tf: counted(tf, 1).cache().shuffle(4),
    # Errors in the middle.
    "zip of errors": lambda tf: zip_of(
        tf, failing(tf, 6, 1), failing(tf, 6, 3, 5), tf.data.Dataset.range(5)
    ),
    "zip ends beside an error": lambda tf: zip_of(
        tf, tf.data.Dataset.range(3), failing(tf, 5, 3)
    ),
    "zip ignores errors": lambda tf: zip_of(
        tf, failing(tf, 5, 1), failing(tf, 5, 3)
    ).ignore_errors(),
    "generator of other types": lambda tf: generated(tf, mixed_types).ignore_errors(),
    "generator of other types raises": lambda tf: generated(tf, mixed_types),
    "iterator that goes on": lambda tf: generated(tf, Resuming).ignore_errors(),
    "iterator that goes on twice": lambda tf: (
        generated(tf, Resuming).ignore_errors().repeat(2)
    ),
    "window behind an error": lambda tf: (
        failing(tf, 8, 3).window(2).ignore_errors().flat_map(lambda w: w.batch(2))
    ),
    "shifted window behind an error": lambda tf: (
        failing(tf, 8, 3)
        .window(3, 1, 1, True)
        .ignore_errors()
        .flat_map(lambda w: w.batch(3))
    ),
    "strided window behind an error": lambda tf: (
        failing(tf, 12, 1, 4)
        .window(2, 3, 2)
        .ignore_errors()
        .flat_map(lambda w: w.batch(2))
    ),
    "shifted window of errors": lambda tf: (
        failing(tf, 8, 2, 3).window(3, 1).flat_map(lambda w: w.batch(3))
    ),
    "window behind the first error": lambda tf: (
        failing(tf, 5, 0).window(2, 1).flat_map(lambda w: w.batch(2))
    ),
    "strided window": lambda tf: (
        tf.data.Dataset.range(8).window(2, 3, 2).flat_map(lambda w: w.batch(2))
    ),
    "batch of errors": lambda tf: failing(tf, 7, 0, 3).batch(2).ignore_errors(),
    "batch behind errors": lambda tf: failing(tf, 7, 0, 3).ignore_errors().batch(2),
    "filter of errors": lambda tf: failing(tf, 6, 0, 5).filter(below(4)),
    "flat_map of errors": lambda tf: (
        failing(tf, 4, 1).flat_map(tf.data.Dataset.range).ignore_errors()
    ),
    "interleave of errors": lambda tf: interleave(tf, failing(tf, 5, 2), 2, 1),
    "take_while of errors": lambda tf: failing(tf, 6, 1).take_while(below(4)),
    "take of errors": lambda tf: failing(tf, 6, 0, 2).take(3),
    # TensorFlow computes also what is skipped, and raises for it.
    "skip of errors": lambda tf: failing(tf, 6, 2).skip(2),
    "enumerate of errors": lambda tf: failing(tf, 4, 1).enumerate(),
    "concatenate of errors": lambda tf: failing(tf, 3, 2).concatenate(
        failing(tf, 3, 0)
    ),
    "unique of errors": lambda tf: failing(tf, 6, 1).map(lambda x: x // 2).unique(),
    "scan of errors": lambda tf: failing(tf, 5, 1, 2).scan(
        np.int64(0), lambda s, x: (s + x, s + x)
    ),
    "group_by_window of errors": lambda tf: group(tf, failing(tf, 9, 4), 2),
    "prefetch of errors": lambda tf: failing(tf, 5, 0, 4).prefetch(2),
    "parallel map of errors": lambda tf: failing(tf, 5, 0, 4).map(
        lambda x: x * 2, num_parallel_calls=2
    ),
    "parallel map of errors of its own": lambda tf: tf.data.Dataset.range(6).map(
        in_python(tf, refuse_even), num_parallel_calls=2
    ),
    "padded_batch of errors": lambda tf: failing(tf, 5, 2).padded_batch(2),
    "repeat of errors": lambda tf: failing(tf, 3, 2).repeat(2),
    # Empty epochs.
    **{
        f"repeat {count} of epochs {sizes}": bound(repeat_epochs, sizes, count)
        for sizes, count in (
            ((0, 2), 3),
            ((2, 0, 2), 3),
            ((2, 0, 2), None),
            ((0, 2), None),
            ((1, 1, 0, 1), -1),
            ((1, 0, 0, 1), 4),
        )
    },
    "repeat of nothing": lambda tf: tf.data.Dataset.range(0).repeat(),
    "repeat of what is filtered out": lambda tf: (
        tf.data.Dataset.range(3).filter(below(0)).repeat()
    ),
    # Batches of other sizes.
    **{
        f"rebatch {rows} of {size} to {sizes} {drop}": bound(
            rebatched, rows, size, sizes, drop
        )
        for rows, size, sizes, drop in (
            (5, 5, (2, 3, 0), False),
            (5, 5, (2, 0, 3, 0, 0), False),
            (5, 5, (0, 5), False),
            (10, 4, (3, 0), False),
            (10, 4, (5, 0, 0), True),
            (6, 4, (5, 0), True),
            (6, 4, (5, 0), False),
            (0, 4, (0, 5), False),
            (4, 2, (0, 2, 0), False),
            (3, 2, (2,), False),
        )
    },
    "unbatch of ragged ends": lambda tf: tf.data.Dataset.range(7).batch(3).unbatch(),
    "unbatch of pairs": lambda tf: (
        zip_of(tf, *ranges(tf, 5, 6)).batch(2).unbatch().batch(3, True)
    ),
    # Totals and running totals from constants of 64 bits.
    "reduce from a constant": lambda tf: total(
        tf, tf.constant(0, tf.int64), tf.data.Dataset.range(5)
    ),
    "reduce of large numbers": lambda tf: total(
        tf, tf.constant(0, tf.int64), tf.data.Dataset.range(2**40, 2**40 + 3)
    ),
    "scan from a constant": lambda tf: tf.data.Dataset.range(2**40, 2**40 + 5).scan(
        tf.constant(0, tf.int64), lambda s, x: (s + x, s)
    ),
    "scan from zeros": lambda tf: tf.data.Dataset.range(5).scan(
        (tf.zeros([2], tf.int64), tf.constant(0)),
        lambda s, x: ((s[0] + x, s[1] + 1), (s[0], s[1])),
    ),
    # Whether each pass draws the same.
    **{
        f"sample_from_datasets {options}": bound(sampled, options)
        for options in (
            {},
            {"rerandomize_each_iteration": True},
            {"rerandomize_each_iteration": False},
        )
    },
    "rejection_resample again": lambda tf: same_in_each_pass(
        tf,
        tf.data.Dataset.range(200)
        .rejection_resample(
            lambda x: tf.cast(x % 2, tf.int32), [0.8, 0.2], [0.5, 0.5], seed=1
        )
        .map(lambda number, x: x),
    ),
    # The rest of TensorFlow's tests.
    "interleave 2 3": lambda tf: interleave(tf, tf.data.Dataset.range(5), 2, 3),
    "interleave 9 1": lambda tf: interleave(tf, tf.data.Dataset.range(5), 9, 1),
    "interleave nothing": lambda tf: interleave(tf, tf.data.Dataset.range(0), 2, 1),
    "interleave empty ones": lambda tf: interleave(tf, tf.data.Dataset.range(2), 1, 2),
    "group_by_window": lambda tf: group(tf, tf.data.Dataset.range(10), 2),
    "group_by_window drops": lambda tf: group(tf, tf.data.Dataset.range(10), 3, True),
    "group_by_window of nothing": lambda tf: group(tf, tf.data.Dataset.range(0), 3),
    "choose": lambda tf: choose(tf, (2, 3), (0, 1, 1, 0, 0, 1), True),
    "choose on": lambda tf: choose(tf, (2, 3, 0), (0, 2, 1, 1, 0, 0, 1), False),
    "choose one": lambda tf: choose(tf, (1,), (0, 0), True),
    "bucket": lambda tf: bucket(tf, lengths(tf, 1, 3, 1, 5, 2, 6, 0)),
    "bucket to edges": lambda tf: bucket(
        tf, lengths(tf, 1, 3, 1, 2), pad_to_bucket_boundary=True
    ),
    "bucket drops": lambda tf: bucket(
        tf, lengths(tf, 1, 3, 1, 5, 2), drop_remainder=True
    ),
    "padded_batch": lambda tf: lengths(tf, 2, 0, 3, 1, 1).padded_batch(2),
    "padded_batch of pairs": lambda tf: zip_of(
        tf, lengths(tf, 2, 3, 1), tf.data.Dataset.range(9)
    ).padded_batch(2, ([4], []), (np.int64(-1), np.int64(0)), True),
    "take_while": lambda tf: tf.data.Dataset.range(9).take_while(below(4)).repeat(2),
    "take_while nothing": lambda tf: tf.data.Dataset.range(9).take_while(below(0)),
    "enumerate": lambda tf: tf.data.Dataset.range(3, 5).enumerate(2**40).repeat(2),
    "shard": lambda tf: tf.data.Dataset.range(10).shard(3, 1).batch(2),
    "shard of less": lambda tf: tf.data.Dataset.range(1).shard(3, 2),
    "shuffle of one": lambda tf: tf.data.Dataset.range(1).shuffle(9).repeat(3),
    "shuffle of nothing": lambda tf: tf.data.Dataset.range(0).shuffle(9).repeat(3),
    "batch of nothing": lambda tf: tf.data.Dataset.range(0).batch(3),
    "concatenate repeat": lambda tf: (
        ranges(tf, 2, 1)[0].concatenate(ranges(tf, 2, 1)[1]).repeat(2).skip(1)
    ),
    "unique": lambda tf: tf.data.Dataset.range(8).map(lambda x: x % 3).unique(),
    "negative range": lambda tf: tf.data.Dataset.range(2**40, 2**40 - 6, -2),
    "flat_map of slices": lambda tf: lengths(tf, 2, 0, 1).flat_map(
        tf.data.Dataset.from_tensor_slices
    ),
    "nested datasets": lambda tf: (
        tf.data.Dataset.range(4)
        .map(tf.data.Dataset.range)
        .flat_map(lambda inner: inner.batch(2))
    ),
    "zip of a nest": lambda tf: tf.data.Dataset.zip(
        {"a": tf.data.Dataset.range(3), "b": (lengths(tf, 1, 2),)}
    ),
    # Numbers without end.
    "zip of counters": lambda tf: counters(tf).take(3),
    "zip with counters": lambda tf: zip_of(
        tf, tf.data.Dataset.range(4).map(lambda x: x * 2), counters(tf)
    ),
    "batches of counters": lambda tf: counters(tf).skip(2).shard(2, 1).batch(2).take(2),
    "padded_batch with a constant": lambda tf: lengths(tf, 2, 0, 3).padded_batch(
        2, padding_values=tf.constant(-1, tf.int64)
    ),
    "skip more": lambda tf: tf.data.Dataset.range(3).skip(5).repeat(2),
    "get_single_element": lambda tf: tf.data.Dataset.from_tensors(
        tf.data.Dataset.range(5).batch(5).get_single_element()
    ),
}
# Other numbers come when these are read again.
CHANGING = [n for n in PROGRAMS if "cache" in n or " of epochs " in n]


def plain(element):
    """An element as lists and numbers."""
    if isinstance(element, dict):
        return {key: plain(element[key]) for key in sorted(element)}
    if isinstance(element, tuple):
        return [plain(part) for part in element]
    return np.asarray(element).tolist()


def read(iterator, most=MOST):
    """The elements up to the end; "error" for each exception."""
    found = []
    while len(found) < most:
        try:
            found.append(plain(next(iterator)))
        except StopIteration:
            break
        except Exception:
            found.append("error")
    return found


def run(tf, name):
    """The elements of a few epochs of a program."""
    dataset = PROGRAMS[name](tf)
    if tf.__name__ == "tensorflow":
        # What it does by itself to be faster changes what is read ahead, and what is
        # lost with an element that raises.
        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        dataset = dataset.with_options(options)
    return [read(iter(dataset)) for _ in range(EPOCHS)]


def record():
    """Writes what TensorFlow gives."""
    import tensorflow as tf

    found = {name: run(tf, name) for name in PROGRAMS}
    rows = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()]
    RECORDED.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    record()
