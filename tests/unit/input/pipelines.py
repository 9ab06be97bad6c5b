"""Random pipelines for property tests, and files for them to read.

A pipeline is plain data: a source and a list of transformations. So the same one can
be built again, as a program does that starts anew.
"""

import json
import struct

import numpy as np
from hypothesis import strategies as st

import unisono as uni
from tests.parity.programs import mirrored

Dataset = uni.data.Dataset
INT = uni.TensorSpec((), np.int64)
COUNTS = (1, 2, 4, 8)


# Files.


def crc32c(data):
    """The checksum of TFRecord files, bit by bit."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def masked_crc32c(data):
    """The checksum as the files store it."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def tfrecords(records):
    """The bytes of a TFRecord file."""
    out = b""
    for record in records:
        length = struct.pack("<Q", len(record))
        out += length + struct.pack("<I", masked_crc32c(length))
        out += record + struct.pack("<I", masked_crc32c(record))
    return out


def write_numbers(directory):
    """Files of lines and of records that hold the numbers 0 to 19; one is empty."""
    paths = {"lines": [], "records": []}
    for number, values in enumerate((range(9), [], range(9, 14), range(14, 20))):
        texts = [str(v).encode() for v in values]
        lines, records = directory / f"{number}.txt", directory / f"{number}.tfrecord"
        lines.write_bytes(b"".join(t + b"\n" for t in texts))
        records.write_bytes(tfrecords(texts))
        paths["lines"].append(str(lines))
        paths["records"].append(str(records))
    return paths


# Building.


def _number(text):
    return np.int64(int(bytes(text)))


def _with_operators(number):
    """Returns a function that uses operators, some of them in place."""

    def change(x):
        x = 3 * x - x // (number + 1)
        x ^= number
        return x

    return change


SOURCES = {
    "range": lambda size, paths: Dataset.range(size),
    "slices": lambda size, paths: Dataset.from_tensor_slices(np.arange(size)),
    "generator": lambda size, paths: Dataset.from_generator(
        lambda: iter(np.arange(size)), output_signature=INT
    ),
    "lines": lambda size, paths: uni.data.TextLineDataset(paths["lines"]).map(_number),
    "records": lambda size, paths: uni.data.TFRecordDataset(
        paths["records"], num_parallel_reads=2
    ).map(_number),
}

TRANSFORMATIONS = {
    "shuffle": lambda d, k: d.shuffle(k, seed=k),
    "shuffle once": lambda d, k: d.shuffle(
        k, seed=k + 1, reshuffle_each_iteration=False
    ),
    "repeat": lambda d, k: d.repeat(1 + k % 3),
    "take": lambda d, k: d.take(3 * k),
    "skip": lambda d, k: d.skip(k // 2),
    "shard": lambda d, k: d.shard(2, k % 2),
    "map": lambda d, k: d.map(lambda x: x + 100),
    "map in threads": lambda d, k: d.map(
        lambda x: x + 100, num_parallel_calls=1 + k % 4
    ),
    "map tuned": lambda d, k: d.map(lambda x: x + 100, num_parallel_calls=-1),
    "operators": lambda d, k: d.map(_with_operators(k)),
    "filter": lambda d, k: d.filter(lambda x: x % (k + 1) != 0),
    "unbatch": lambda d, k: d.batch(k).unbatch(),
    "rebatch": lambda d, k: d.batch(k).rebatch(k % 4 + 1).unbatch(),
    "interleave": lambda d, k: d.interleave(
        lambda x: Dataset.range(k % 3).map(lambda y: x + 1000 * y),
        cycle_length=1 + k % 3,
        block_length=1 + k % 2,
    ),
    "flat_map": lambda d, k: d.flat_map(
        lambda x: Dataset.range(2).shuffle(2, seed=k).map(lambda y: x + 1000 * y)
    ),
    "zip": lambda d, k: Dataset.zip(d, Dataset.range(2 * k).repeat(2)).map(
        lambda x, y: x + 10000 * y
    ),
    "concatenate": lambda d, k: d.concatenate(Dataset.range(500, 500 + k)),
    "choose": lambda d, k: Dataset.choose_from_datasets(
        [d, Dataset.range(700, 700 + k)], Dataset.range(2).repeat()
    ),
    "sample": lambda d, k: Dataset.sample_from_datasets(
        [d, Dataset.range(800, 800 + k)], seed=k
    ),
    "cache": lambda d, k: d.cache(),
    "prefetch": lambda d, k: d.prefetch(k),
    "enumerate": lambda d, k: d.enumerate().map(lambda i, x: x + 7 * i),
    "window": lambda d, k: d.window(k, shift=1 + k % 3).flat_map(lambda w: w),
    "scan": lambda d, k: d.scan(np.int64(0), lambda s, x: (s + 1, x + s)),
    "unique": lambda d, k: d.unique(),
    "take_while": lambda d, k: d.take_while(lambda x: x < 10 * k),
    "group": lambda d, k: d.group_by_window(
        lambda x: x % 3, lambda key, group: group.map(lambda x: x + key), window_size=k
    ),
    "bucket": lambda d, k: d.bucket_by_sequence_length(
        lambda x: x, [k, 3 * k], [k, 1, 2]
    ).unbatch(),
}


def build(pipeline, paths):
    """Makes the dataset that a pipeline describes."""
    source, size, steps = pipeline
    dataset = SOURCES[source](size, paths)
    for name, number in steps:
        dataset = TRANSFORMATIONS[name](dataset, number)
    return dataset


# What can be asked of elements that are batches.
ON_BATCHES = {
    "nothing": lambda d, k: d,
    "repeat": lambda d, k: d.repeat(2),
    "shuffle": lambda d, k: d.shuffle(k, seed=k),
    "prefetch": lambda d, k: d.prefetch(k),
    "map": lambda d, k: d.map(lambda x: x + 1),
    "map in threads": lambda d, k: d.map(lambda x: x + 1, num_parallel_calls=2),
    "operators": lambda d, k: d.map(_with_operators(k), num_parallel_calls=2),
    "cache": lambda d, k: d.cache().repeat(2),
    "take": lambda d, k: d.take(k),
}


def build_batched(pipeline, batching, paths):
    """Makes a dataset of batches under a policy."""
    size, drop, then, number, policy = batching
    batched = build(pipeline, paths).batch(size, drop_remainder=drop)
    options = uni.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return ON_BATCHES[then](batched, number).with_options(options)


_numbers = st.integers(1, 9)
pipelines = st.tuples(
    st.sampled_from(sorted(SOURCES)),
    st.integers(0, 25),
    st.lists(st.tuples(st.sampled_from(sorted(TRANSFORMATIONS)), _numbers), max_size=4),
)
policies = st.sampled_from(list(uni.data.experimental.AutoShardPolicy))
batchings = st.tuples(
    _numbers, st.booleans(), st.sampled_from(sorted(ON_BATCHES)), _numbers, policies
)
counts = st.sampled_from(COUNTS)


# Looking.


def saved(iterator):
    """The position of an iterator, as it comes back from a file."""
    return json.loads(json.dumps(iterator.get_state()))


def resumed(iterable, state):
    """An iterator over `iterable` that continues from a saved position."""
    iterator = iter(iterable)
    iterator.set_state(state)
    return iterator


def numbers(elements):
    """The examples of elements, batched or not, in order."""
    return [int(x) for element in elements for x in np.ravel(element)]


def parts(n, steps):
    """What each replica got in each step."""
    results = mirrored(n).experimental_local_results
    return [[np.asarray(p).tolist() for p in results(step)] for step in steps]


def flat(n, steps):
    """The examples of all steps in global order."""
    return [x for step in parts(n, steps) for part in step for x in part]
