"""How `experimental_distribute_dataset` splits batches: which rule for which pipeline.

Every pipeline here is distributed over 1, 2 and 4 replicas under the auto-shard
policies. Batches of 6 over 4 replicas tell the rules apart: chunks of ceil(6 / 4)
leave the last replica empty, fixed sizes give 2, 2, 1, 1. A step is written as text,
replicas apart by '|'.
"""

import itertools

import numpy as np

from tests.parity.datasets.kit import (
    generated,
    mirrored,
    number,
    policy,
    program,
    records,
    spec,
    steps,
    write,
)

POLICIES = ("AUTO", "DATA", "OFF", "FILE", "HINT")


def _split(tf, dataset, n, name):
    strategy = mirrored(tf, n)
    try:
        distributed = strategy.experimental_distribute_dataset(
            policy(tf, dataset, name)
        )
    except Exception as e:
        return type(e).__name__
    return {
        "spec": spec(distributed.element_spec),
        "cardinality": int(distributed.cardinality),
        "steps": steps(strategy, distributed),
    }


def _grouped(results):
    """Returns results by the names that share them."""
    groups = []
    for name, result in results.items():
        for names, found in groups:
            if found == result:
                names.append(name)
                break
        else:
            groups.append(([name], result))
    return {" ".join(names): found for names, found in groups}


def _register(name, make, rows=("H01", "H04", "H05")):
    def run(tf, tmp):
        dataset = make(tf, _Files(tf, tmp))
        return {
            # Under AUTO, TensorFlow undoes a rebatch that comes last.
            "1 replica": _split(tf, dataset, 1, "OFF"),
            "2 replicas": _grouped(
                {p: _split(tf, dataset, 2, p) for p in ("AUTO", "OFF")}
            ),
            "4 replicas": _grouped({p: _split(tf, dataset, 4, p) for p in POLICIES}),
        }

    run.__module__, run.__name__ = __name__, name
    program(*rows)(run)


class _Files:
    """Two files of numbers, one a line or a record, and how to read them."""

    def __init__(self, tf, tmp):
        self.tf, self.tmp = tf, tmp
        for i, numbers in enumerate((range(5), range(10, 17))):
            write(tmp, f"text{i}", "".join(f"{x}\n" for x in numbers))
            write(tmp, f"record{i}", records(*(str(x).encode() for x in numbers)))
        self.names = [str(tmp / f"text{i}") for i in range(2)]
        self.record_names = [str(tmp / f"record{i}") for i in range(2)]

    def text(self):
        return self.tf.data.TextLineDataset(self.names)

    def lines(self):
        return self.text().map(self.number)

    def number(self, x):
        return number(self.tf, x)

    def listed(self, kind):
        pattern = str(self.tmp / f"{kind}*")
        return self.tf.data.Dataset.list_files(pattern, shuffle=False)


def _numbers(tf, n=12):
    return tf.data.Dataset.range(n)


def _six(tf, n=12):
    return _numbers(tf, n).batch(6)


def _same(x):
    return x + 0


_AFTER_BATCH = {
    "nothing": lambda d: d,
    "map": lambda d: d.map(_same),
    "map_in_parallel": lambda d: d.map(_same, num_parallel_calls=2),
    "map_prefetch": lambda d: d.map(_same).prefetch(1),
    "filter": lambda d: d.filter(lambda x: x[0] != 6),
    "take": lambda d: d.take(2),
    "take_all": lambda d: d.take(-1),
    "skip": lambda d: d.skip(1),
    "repeat_take": lambda d: d.take(1).repeat().take(3),
    "shuffle": lambda d: d.shuffle(1),
    "prefetch": lambda d: d.prefetch(2),
    "prefetch_autotune": lambda d: d.prefetch(-1),
    "cache": lambda d: d.cache(),
    "shard": lambda d: d.shard(1, 0),
    "shuffle_prefetch_cache": lambda d: d.shuffle(1).prefetch(1).cache(),
    "apply_nothing": lambda d: d.apply(lambda e: e),
    "apply_map": lambda d: d.apply(lambda e: e.map(_same)),
    "rebatch_smaller": lambda d: d.rebatch(5),
    "rebatch_list": lambda d: d.rebatch([4, 2]),
    "rebatch_whole_only": lambda d: d.rebatch(5, drop_remainder=True),
    "unbatch_batch": lambda d: d.unbatch().batch(5),
    "batch_again": lambda d: d.take(2).batch(6),
}

for _name, _change in _AFTER_BATCH.items():
    _register(f"batch_then_{_name}", lambda tf, f, c=_change: c(_six(tf, 14)))
    _register(
        f"whole_batch_then_{_name}",
        lambda tf, f, c=_change: c(_numbers(tf, 14).batch(6, drop_remainder=True)),
    )

_PIPELINES = {
    # Ways to make batches.
    "batch_in_parallel": lambda tf, f: _numbers(tf, 14).batch(6, num_parallel_calls=2),
    "batch_in_parallel_autotune": lambda tf, f: _numbers(tf, 14).batch(
        6, num_parallel_calls=tf.data.AUTOTUNE
    ),
    "batch_in_parallel_whole_only": lambda tf, f: _numbers(tf, 14).batch(
        6, drop_remainder=True, num_parallel_calls=2
    ),
    "padded_batch": lambda tf, f: generated(
        tf, [[i] * (i % 3) for i in range(8)]
    ).padded_batch(6),
    "padded_batch_whole_only": lambda tf, f: _numbers(tf, 14).padded_batch(
        6, padded_shapes=(), drop_remainder=True
    ),
    "map_then_batch": lambda tf, f: _numbers(tf, 14).map(_same).batch(6),
    "map_in_parallel_then_batch": lambda tf, f: (
        _numbers(tf, 14).map(_same, num_parallel_calls=2).batch(6)
    ),
    "map_then_batch_in_parallel": lambda tf, f: (
        _numbers(tf, 14).map(_same).batch(6, num_parallel_calls=2)
    ),
    "filter_then_batch": lambda tf, f: (
        _numbers(tf, 14).filter(lambda x: x != 3).batch(6)
    ),
    "repeat_then_batch": lambda tf, f: _numbers(tf, 7).repeat(2).batch(6),
    "unbatch_then_batch": lambda tf, f: _numbers(tf, 14).batch(4).unbatch().batch(6),
    "enumerate_then_batch": lambda tf, f: _numbers(tf, 14).enumerate().batch(6),
    "interleave_then_batch": lambda tf, f: (
        _numbers(tf, 2)
        .interleave(lambda i: tf.data.Dataset.range(7), cycle_length=1)
        .batch(6)
    ),
    "flat_map_then_batch": lambda tf, f: (
        _numbers(tf, 2).flat_map(lambda i: tf.data.Dataset.range(7)).batch(6)
    ),
    "window_flat_map": lambda tf, f: (
        _numbers(tf).window(6).flat_map(lambda window: window.batch(6))
    ),
    "interleave_of_batches": lambda tf, f: _numbers(tf, 2).interleave(
        lambda i: tf.data.Dataset.range(12).batch(6), cycle_length=1
    ),
    "flat_map_of_batches": lambda tf, f: _numbers(tf, 2).flat_map(
        lambda i: tf.data.Dataset.range(12).batch(6)
    ),
    "batches_larger_than_the_data": lambda tf, f: _numbers(tf, 3).batch(100),
    "batch_of_one": lambda tf, f: _numbers(tf, 3).batch(1),
    "empty": lambda tf, f: _numbers(tf, 0).batch(6),
    "infinite": lambda tf, f: _numbers(tf, 5).repeat().batch(6),
    "options_before_batch": lambda tf, f: (
        _numbers(tf, 14).with_options(tf.data.Options()).batch(6)
    ),
    "options_after_batch": lambda tf, f: _six(tf, 14).with_options(tf.data.Options()),
    # Without batch: a static first dimension counts as one.
    "tensors": lambda tf, f: tf.data.Dataset.from_tensors(np.arange(6)),
    "tensors_repeated": lambda tf, f: tf.data.Dataset.from_tensors(np.arange(6)).repeat(
        2
    ),
    "slices_of_a_matrix": lambda tf, f: tf.data.Dataset.from_tensor_slices(
        np.arange(12).reshape(2, 6)
    ),
    "slices_of_a_matrix_map": lambda tf, f: tf.data.Dataset.from_tensor_slices(
        np.arange(12).reshape(2, 6)
    ).map(_same),
    "generator_of_any_length": lambda tf, f: generated(tf, _sizes(6, 5, 3, 1)),
    "generator_of_one_length": lambda tf, f: generated(tf, _sizes(6, 6), (6,)),
    "generator_with_an_empty_batch": lambda tf, f: generated(tf, _sizes(3, 0, 2)),
    # Several inputs.
    "concatenate_one_size": lambda tf, f: _six(tf).concatenate(_six(tf, 8)),
    "concatenate_two_sizes": lambda tf, f: _six(tf).concatenate(
        _numbers(tf, 8).batch(4)
    ),
    "concatenate_static_one_size": lambda tf, f: (
        _numbers(tf).batch(6, True).concatenate(_numbers(tf).batch(6, True))
    ),
    "concatenate_static_two_sizes": lambda tf, f: (
        _numbers(tf).batch(6, True).concatenate(_numbers(tf, 8).batch(4, True))
    ),
    "zip_one_size": lambda tf, f: tf.data.Dataset.zip((_six(tf, 14), _six(tf, 14))),
    "zip_of_arguments": lambda tf, f: tf.data.Dataset.zip(_six(tf), _six(tf)),
    "zip_of_one": lambda tf, f: tf.data.Dataset.zip((_six(tf, 14),)),
    "zip_nested": lambda tf, f: tf.data.Dataset.zip(
        (_six(tf), {"a": _six(tf), "b": (_six(tf),)})
    ),
    "zip_static_and_dynamic": lambda tf, f: tf.data.Dataset.zip(
        (_numbers(tf).batch(6, True), _six(tf))
    ),
    "zip_with_tensors": lambda tf, f: tf.data.Dataset.zip(
        (_six(tf), tf.data.Dataset.from_tensors(np.arange(6)).repeat())
    ),
    "zip_with_a_map": lambda tf, f: tf.data.Dataset.zip(
        (_six(tf), _six(tf).map(_same))
    ),
    "zip_then_batch": lambda tf, f: tf.data.Dataset.zip(
        (_numbers(tf, 14), _numbers(tf, 14))
    ).batch(6),
    "dict_of_arrays": lambda tf, f: tf.data.Dataset.from_tensor_slices(
        {"a": np.arange(8), "b": np.arange(16).reshape(8, 2)}
    ).batch(6),
    "enumerate_and_drop_the_index": lambda tf, f: (
        _six(tf, 14).enumerate().map(lambda i, x: x + i)
    ),
}

_FILE_PIPELINES = {
    "lines": lambda tf, f: f.lines().batch(6),
    "lines_map": lambda tf, f: f.text().batch(6).map(f.number),
    "lines_whole_map": lambda tf, f: f.text().batch(6, True).map(f.number),
    "lines_in_parallel": lambda tf, f: f.lines().batch(6, num_parallel_calls=2),
    "lines_everyday": lambda tf, f: (
        f.lines()
        .filter(lambda x: x >= 0)
        .cache()
        .shuffle(1)
        .repeat(1)
        .batch(6)
        .prefetch(1)
    ),
    "lines_skip_take_shard": lambda tf, f: (
        f.lines().skip(1).take(9).shard(1, 0).batch(6)
    ),
    "lines_padded": lambda tf, f: f.lines().padded_batch(6, padded_shapes=()),
    "lines_unbatch": lambda tf, f: f.lines().batch(4).unbatch().batch(6),
    "lines_rebatch": lambda tf, f: f.lines().batch(4).rebatch(6),
    "lines_enumerate": lambda tf, f: f.lines().enumerate().batch(6),
    "lines_of_one_file": lambda tf, f: (
        tf.data.TextLineDataset(f.names[1]).map(f.number).batch(6)
    ),
    "records": lambda tf, f: (
        tf.data.TFRecordDataset(f.record_names).map(f.number).batch(6)
    ),
    "records_in_parallel": lambda tf, f: (
        tf.data.TFRecordDataset(f.record_names, num_parallel_reads=1)
        .map(f.number)
        .batch(6)
    ),
    "records_of_a_dataset_of_names": lambda tf, f: (
        tf.data.TFRecordDataset(f.listed("record")).map(f.number).batch(6)
    ),
    "names_interleave": lambda tf, f: (
        f.listed("record")
        .interleave(tf.data.TFRecordDataset, cycle_length=1)
        .map(f.number)
        .batch(6)
    ),
    "names_interleave_in_parallel": lambda tf, f: (
        f.listed("record")
        .interleave(
            lambda name: tf.data.TFRecordDataset(name).map(f.number),
            cycle_length=1,
            num_parallel_calls=1,
        )
        .batch(6)
    ),
    "names_flat_map": lambda tf, f: (
        f.listed("text").flat_map(tf.data.TextLineDataset).map(f.number).batch(6)
    ),
    "names_flat_map_of_batches": lambda tf, f: f.listed("text").flat_map(
        lambda name: tf.data.TextLineDataset(name).map(f.number).batch(6)
    ),
    "names_zip_interleave": lambda tf, f: (
        tf.data.Dataset.zip((f.listed("text"), tf.data.Dataset.range(2)))
        .interleave(
            lambda name, i: tf.data.TextLineDataset(name).map(f.number), cycle_length=1
        )
        .batch(6)
    ),
    "names_only": lambda tf, f: f.listed("text").map(lambda name: 7).repeat(6).batch(6),
    "lines_concatenate_lines": lambda tf, f: f.lines().concatenate(f.lines()).batch(6),
    "lines_concatenate_range": lambda tf, f: (
        f.lines().concatenate(_numbers(tf, 2)).batch(6)
    ),
    "range_concatenate_lines": lambda tf, f: (
        _numbers(tf, 2).concatenate(f.lines()).batch(6)
    ),
    "batches_of_lines_concatenate_themselves": lambda tf, f: (
        f.lines().batch(6).concatenate(f.lines().batch(6))
    ),
    "lines_zip_lines": lambda tf, f: tf.data.Dataset.zip((f.lines(), f.lines())).batch(
        6
    ),
    "lines_zip_range": lambda tf, f: tf.data.Dataset.zip(
        (f.lines(), _numbers(tf))
    ).batch(6),
    "range_zip_lines": lambda tf, f: tf.data.Dataset.zip(
        (_numbers(tf), f.lines())
    ).batch(6),
}


def _sizes(*sizes):
    start = itertools.accumulate((0, *sizes[:-1]))
    return tuple(np.arange(a, a + n) for a, n in zip(start, sizes))


for _name, _make in _PIPELINES.items():
    _register(_name, _make)
for _name, _make in _FILE_PIPELINES.items():
    _register(_name, _make, rows=("H01", "H05", "H14", "H15", "H16", "H18"))

# Where a batch ends in mid-stream, TensorFlow's fixed sizes take from the next one.
_MID_STREAM = {
    "repeat_of_a_partial_batch": lambda tf, f: _six(tf, 8).repeat(2),
    "concatenate_after_a_partial_batch": lambda tf, f: _six(tf, 8).concatenate(
        _numbers(tf, 3).batch(6)
    ),
    "infinite_repeat_of_a_partial_batch": lambda tf, f: _six(tf, 8).repeat(),
}
for _name, _make in _MID_STREAM.items():
    _register(_name, _make)


def _table(tf, name):
    found = {}
    for n in (2, 3, 4):
        strategy = mirrored(tf, n)
        for size, total in itertools.product((1, 2, 3, 4, 5, 7, 8), (1, 5, 8, 10)):
            dataset = policy(tf, _numbers(tf, total).batch(size), name)
            distributed = strategy.experimental_distribute_dataset(dataset)
            text = steps(strategy, distributed, limit=10)
            found[f"{total} by {size} on {n}"] = " / ".join(text)
    return found


@program("H05", "H14", "H22")
def sizes_in_chunks(tf, tmp):
    return _table(tf, "AUTO")


@program("H05", "H15", "H18", "H22")
def sizes_fixed(tf, tmp):
    return _table(tf, "OFF")


@program("H27")
def scalars_cannot_be_split(tf, tmp):
    pair = tf.data.Dataset.zip((_six(tf), _numbers(tf, 2)))
    return {
        name: {n: _split(tf, dataset, n, "AUTO") for n in (1, 2)}
        for name, dataset in (
            ("range", _numbers(tf, 3)),
            ("one scalar leaf", pair),
            ("unbatched", _six(tf).unbatch()),
            ("enumerated batches", _six(tf).enumerate()),
        )
    }


@program("H05")
def leaves_of_two_sizes_in_chunks(tf, tmp):
    dataset = tf.data.Dataset.zip((_six(tf), _numbers(tf, 8).batch(4)))
    return {n: _split(tf, dataset, n, "AUTO") for n in (2, 4)}
