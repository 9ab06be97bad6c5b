"""Datasets: every transformation gives a `Dataset`."""

import pathlib
from typing import Any, assert_type

import numpy as np

import unisono
from unisono import data, distribute

dataset = data.Dataset.range(10).map(lambda x: x * 2).filter(lambda x: x > 3)
assert_type(dataset, data.Dataset)
assert_type(dataset.batch(np.int64(2)).prefetch(data.AUTOTUNE), data.Dataset)
assert_type(dataset.shuffle(8, seed=1).repeat().take(3), data.Dataset)
assert_type(dataset.concatenate(dataset).shard(2, 0), data.Dataset)
assert_type(dataset.window(2, shift=1).enumerate(), data.Dataset)
assert_type(dataset.group_by_window(lambda x: x % 2, lambda _, d: d, 4), data.Dataset)
assert_type(dataset.apply(data.experimental.unique()), data.Dataset)
assert_type(dataset.cache(pathlib.Path("cache")), data.Dataset)
assert_type(data.Dataset.zip(dataset, dataset), data.Dataset)
assert_type(data.Dataset.list_files("*.txt", shuffle=False), data.Dataset)
assert_type(dataset.cardinality().numpy(), np.int64)
assert_type(iter(dataset), data.Iterator)
assert_type(next(iter(dataset)), Any)
assert_type(len(dataset), int)

lines = data.TextLineDataset(["a.txt", pathlib.Path("b.txt")])
assert_type(lines, data.TextLineDataset)
assert_type(lines.map(lambda line: len(line)), data.Dataset)
assert_type(data.TFRecordDataset(dataset, num_parallel_reads=2).batch(2), data.Dataset)

options = data.Options()
options.experimental_distribute.auto_shard_policy = (
    data.experimental.AutoShardPolicy.DATA
)
options.worker_processes = 2
assert_type(dataset.with_options(options), data.Dataset)
assert_type(dataset.options().merge(options), data.Options)

dataset.save(pathlib.Path("saved"))
assert_type(data.Dataset.load("saved"), data.Dataset)
with unisono.io.TFRecordWriter("records") as writer:
    assert_type(writer, unisono.io.TFRecordWriter)
    writer.write(b"record")
feature = unisono.train.Feature(int64_list=unisono.train.Int64List(value=[1]))
features = unisono.train.Features(feature={"x": feature})
example = unisono.train.Example(features=features)
assert_type(example.SerializeToString(), bytes)
assert_type(unisono.train.Example.FromString(b""), unisono.train.Example)
assert_type(example.features.feature["x"].int64_list.value[0], int)
wanted = {"x": unisono.io.FixedLenFeature([], unisono.int64, default_value=0)}
assert_type(unisono.io.parse_single_example(b"", wanted), dict[str, Any])
assert_type(unisono.io.serialize_tensor([1.5]).numpy(), bytes)

strategy = distribute.MirroredStrategy()
distributed = strategy.experimental_distribute_dataset(dataset.batch(4))
assert_type(distributed, distribute.DistributedDataset)
assert_type(iter(distributed), distribute.DistributedIterator)
state = iter(distributed).get_state()
iter(distributed).set_state(state)


def dataset_fn(context: distribute.InputContext) -> data.Dataset:
    size = context.get_per_replica_batch_size(64)
    assert_type(size, int)
    return dataset.shard(context.num_input_pipelines, context.input_pipeline_id).batch(
        size
    )


assert_type(
    strategy.distribute_datasets_from_function(
        dataset_fn, distribute.InputOptions(experimental_fetch_to_device=False)
    ),
    distribute.DistributedDataset,
)
assert_type(strategy.experimental_make_numpy_dataset(np.ones(3)), data.Dataset)
