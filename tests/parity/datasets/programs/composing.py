"""Pipelines put together at random: transformations meet in every order.

The choices depend on the number of the pipeline alone, so that both libraries run the
same ones.
"""

import random

from tests.parity.datasets.kit import (
    cardinality,
    elements,
    mirrored,
    policy,
    program,
    spec,
    steps,
)

# Of elements of any rank.
_ANY = {
    "cache": lambda tf, d: d.cache(),
    "concatenate": lambda tf, d: d.take(2).concatenate(d.skip(1)),
    "enumerate": lambda tf, d: d.enumerate(3).map(lambda i, x: x + i),
    "map": lambda tf, d: d.map(lambda x: x * 2 + 1),
    "map_in_parallel": lambda tf, d: d.map(lambda x: x - 1, num_parallel_calls=2),
    "prefetch": lambda tf, d: d.prefetch(1),
    "repeat": lambda tf, d: d.repeat(2),
    "shard": lambda tf, d: d.shard(2, 1),
    "shuffle": lambda tf, d: d.shuffle(1),
    "skip": lambda tf, d: d.skip(2),
    "take": lambda tf, d: d.take(9),
    "zip": lambda tf, d: tf.data.Dataset.zip((d, d)).map(lambda x, y: x + y),
}
# Of scalars, to scalars or to batches.
_SCALAR = {
    "filter": lambda tf, d: d.filter(lambda x: x % 3 != 0),
    "flat_map": lambda tf, d: d.flat_map(
        lambda x: tf.data.Dataset.range(2).map(lambda y: x * 10 + y)
    ),
    "interleave": lambda tf, d: d.interleave(
        lambda x: tf.data.Dataset.range(3).map(lambda y: x - y),
        cycle_length=2,
        block_length=2,
    ),
    "batch": lambda tf, d: d.batch(3),
    "batch_whole": lambda tf, d: d.batch(4, drop_remainder=True),
    "batch_in_parallel": lambda tf, d: d.batch(2, num_parallel_calls=2),
    "padded_batch": lambda tf, d: d.padded_batch(5, padded_shapes=()),
    "window": lambda tf, d: d.window(3, shift=2).flat_map(lambda w: w.batch(3)),
}
# Of batches, to batches or to scalars.
_BATCHED = {
    "filter_batches": lambda tf, d: d.filter(lambda x: x[0] % 2 == 0),
    "first": lambda tf, d: d.map(lambda x: x[0]),
    "rebatch": lambda tf, d: d.rebatch(2),
    "rebatch_list": lambda tf, d: d.rebatch([1, 3]),
    "rebatch_whole": lambda tf, d: d.rebatch(3, drop_remainder=True),
    "slices": lambda tf, d: d.flat_map(tf.data.Dataset.from_tensor_slices),
    "unbatch": lambda tf, d: d.unbatch(),
}


def _choose(chance, choices):
    """Picks a name; unlike `random.choice`, the same in every version of Python."""
    return sorted(choices)[int(chance.random() * len(choices))]


def _compose(tf, number):
    chance = random.Random(number)
    dataset = tf.data.Dataset.range(10)
    names = []
    for _ in range(5):
        scalar = len(dataset.element_spec.shape) == 0
        choices = {**_ANY, **(_SCALAR if scalar else _BATCHED)}
        name = _choose(chance, choices)
        names.append(name)
        dataset = choices[name](tf, dataset)
    return names, dataset


def _register(start):
    def run(tf, tmp):
        found = []
        for number in range(start, start + 10):
            names, dataset = _compose(tf, number)
            found.append(
                {
                    "pipeline": " ".join(names),
                    "spec": spec(dataset.element_spec),
                    "cardinality": cardinality(dataset),
                    "elements": str(elements(dataset, 12)).replace(" ", ""),
                }
            )
        return found

    run.__module__, run.__name__ = __name__, f"pipelines_from_{start:03}"
    program()(run)


for _start in range(0, 120, 10):
    _register(_start)


# After 4 batches of 6, without leaving a partial batch in mid-stream.
_WHOLE = {
    "batch_again": lambda tf, d: d.unbatch().batch(6),
    "batch_in_parallel": lambda tf, d: d.unbatch().batch(6, num_parallel_calls=2),
    "batch_whole": lambda tf, d: d.unbatch().batch(6, drop_remainder=True),
    "cache": lambda tf, d: d.cache(),
    "concatenate": lambda tf, d: d.concatenate(d),
    "concatenate_map": lambda tf, d: d.concatenate(d.map(lambda x: x + 1)),
    "filter": lambda tf, d: d.filter(lambda x: x[0] >= 0),
    "flat_map": lambda tf, d: d.flat_map(tf.data.Dataset.from_tensors),
    "interleave": lambda tf, d: d.interleave(tf.data.Dataset.from_tensors),
    "map": lambda tf, d: d.map(lambda x: x + 1),
    "options": lambda tf, d: d.with_options(tf.data.Options()),
    "padded_batch": lambda tf, d: d.unbatch().padded_batch(6, padded_shapes=()),
    "prefetch": lambda tf, d: d.prefetch(2),
    "rebatch": lambda tf, d: d.rebatch(6),
    "rebatch_whole": lambda tf, d: d.rebatch(6, drop_remainder=True),
    "repeat": lambda tf, d: d.repeat(2),
    "shard": lambda tf, d: d.shard(2, 1),
    "shuffle": lambda tf, d: d.shuffle(1),
    "skip": lambda tf, d: d.skip(1),
    "take": lambda tf, d: d.take(3),
    "zip": lambda tf, d: tf.data.Dataset.zip((d, d)),
}


def _compose_batches(tf, number):
    chance = random.Random(1000 + number)
    dataset = tf.data.Dataset.range(24).batch(6)
    names = []
    for i in range(3):
        last = i == 2
        choices = _WHOLE.keys() if last else _WHOLE.keys() - {"zip"}
        name = _choose(chance, choices)
        names.append(name)
        dataset = _WHOLE[name](tf, dataset)
    return names, dataset


def _register_distributed(start):
    def run(tf, tmp):
        strategy = mirrored(tf, 4)
        found = []
        for number in range(start, start + 10):
            names, dataset = _compose_batches(tf, number)
            result: dict = {"pipeline": " ".join(names)}
            for name in ("AUTO", "OFF"):
                distributed = strategy.experimental_distribute_dataset(
                    policy(tf, dataset, name)
                )
                result[name] = steps(strategy, distributed, limit=3)
            result["spec"] = spec(distributed.element_spec)
            result["cardinality"] = int(distributed.cardinality)
            found.append(result)
        return found

    run.__module__, run.__name__ = __name__, f"distributed_pipelines_from_{start:03}"
    program("H01", "H05", "H14", "H15", "H18")(run)


for _start in range(0, 80, 10):
    _register_distributed(_start)
