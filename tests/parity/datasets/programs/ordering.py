"""shuffle, repeat, take, skip, shard, prefetch, cache: order and number of elements."""

import numpy as np

from tests.parity.datasets.kit import (
    Counted,
    cardinality,
    elements,
    error,
    plain,
    program,
)


def _numbers(tf, n=6):
    return tf.data.Dataset.range(n)


def _law(order, buffer):
    """Whether an order can come from a window of `buffer` elements."""
    return all(x <= i + buffer - 1 for i, x in enumerate(order))


@program()
def a_shuffle_keeps_the_elements(tf, tmp):
    return [
        sorted(elements(_numbers(tf, 50).shuffle(buffer))) == list(range(50))
        for buffer in (1, 2, 7, 50, 1000)
    ]


@program()
def a_shuffle_looks_no_further_than_its_buffer(tf, tmp):
    found = []
    for buffer in (2, 5, 20):
        for seed in range(5):
            order = elements(_numbers(tf, 60).shuffle(buffer, seed=seed))
            found.append(_law(order, buffer))
    return all(found)


@program()
def a_shuffle_uses_its_whole_buffer(tf, tmp):
    firsts = {
        elements(_numbers(tf, 9).shuffle(3, seed=seed).take(1))[0] for seed in range(40)
    }
    return sorted(firsts)


@program()
def a_buffer_of_one_changes_nothing(tf, tmp):
    return elements(_numbers(tf).shuffle(1))


@program()
def a_shuffle_changes_the_order(tf, tmp):
    return elements(_numbers(tf, 50).shuffle(50, seed=1)) != list(range(50))


@program()
def one_seed_is_one_order(tf, tmp):
    first, again, other = (
        elements(_numbers(tf, 50).shuffle(50, seed=seed)) for seed in (5, 5, 6)
    )
    return [first == again, first == other]


@program()
def each_iteration_has_its_own_order(tf, tmp):
    dataset = _numbers(tf, 50).shuffle(50, seed=5)
    first, second, third = (elements(dataset) for _ in range(3))
    return [first == second, second == third, first == third]


@program()
def iterations_have_one_order_when_told(tf, tmp):
    dataset = _numbers(tf, 50).shuffle(50, seed=5, reshuffle_each_iteration=False)
    return elements(dataset) == elements(dataset)


@program()
def iterations_have_one_order_without_a_seed(tf, tmp):
    dataset = _numbers(tf, 50).shuffle(50, reshuffle_each_iteration=False)
    return elements(dataset) == elements(dataset)


@program()
def the_orders_of_iterations_come_again(tf, tmp):
    one, two = (_numbers(tf, 50).shuffle(50, seed=5) for _ in range(2))
    return [elements(one) == elements(two), elements(one) == elements(two)]


@program()
def repeat_shuffles_anew(tf, tmp):
    again = elements(_numbers(tf, 40).shuffle(40, seed=5).repeat(2))
    same = elements(
        _numbers(tf, 40).shuffle(40, 5, reshuffle_each_iteration=False).repeat(2)
    )
    return [
        sorted(again[:40]) == sorted(again[40:]) == list(range(40)),
        again[:40] == again[40:],
        same[:40] == same[40:],
    ]


@program()
def a_shuffle_after_repeat_mixes_epochs(tf, tmp):
    order = elements(_numbers(tf, 20).repeat(2).shuffle(40, seed=2))
    return [sorted(order) == sorted([*range(20)] * 2), len(set(order[:20])) < 20]


@program()
def a_shuffle_keeps_structures_together(tf, tmp):
    value = {"a": np.arange(30), "b": (np.arange(30) * 2,)}
    dataset = tf.data.Dataset.from_tensor_slices(value).shuffle(30, seed=1)
    return all(x["b"][0] == 2 * x["a"] for x in elements(dataset))


@program()
def batches_are_shuffled_whole(tf, tmp):
    found = elements(_numbers(tf, 40).batch(4).shuffle(10, seed=3))
    return [
        sorted(found) == [list(range(i, i + 4)) for i in range(0, 40, 4)],
        found == sorted(found),
    ]


@program()
def repeated(tf, tmp):
    dataset = _numbers(tf, 3)
    return {
        "twice": elements(dataset.repeat(2)),
        "never": elements(dataset.repeat(0)),
        "for ever": elements(dataset.repeat().take(7)),
        "none": elements(dataset.repeat(None).take(4)),
        "-1": elements(dataset.repeat(-1).take(4)),
        "-2": elements(dataset.repeat(-2).take(4)),
        "of nothing": elements(dataset.take(0).repeat(5)),
    }


@program()
def an_empty_dataset_repeated_for_ever_ends(tf, tmp):
    return elements(_numbers(tf, 0).repeat(), 3)


@program()
def taken(tf, tmp):
    return {str(n): elements(_numbers(tf).take(n)) for n in (0, 1, 4, 6, 99, -1, -2)}


@program()
def skipped(tf, tmp):
    return {str(n): elements(_numbers(tf).skip(n)) for n in (0, 1, 4, 6, 99, -1, -2)}


@program()
def skipped_and_taken(tf, tmp):
    dataset = _numbers(tf, 10)
    return [elements(dataset.skip(3).take(4)), elements(dataset.take(4).skip(3))]


@program("I09")
def sharded(tf, tmp):
    return [elements(_numbers(tf, 7).shard(3, i)) for i in range(3)]


@program()
def sharded_into_one(tf, tmp):
    return elements(_numbers(tf, 3).shard(1, 0))


@program()
def sharded_beyond_the_elements(tf, tmp):
    return [elements(_numbers(tf, 2).shard(4, i)) for i in range(4)]


@program()
def sharded_batches(tf, tmp):
    dataset = _numbers(tf, 7).batch(2)
    return [elements(dataset.shard(2, i)) for i in range(2)]


@program()
def prefetched(tf, tmp):
    dataset = _numbers(tf)
    return [
        elements(dataset.prefetch(2)),
        elements(dataset.prefetch(tf.data.AUTOTUNE)),
        elements(dataset.prefetch(0)),
        elements(dataset.prefetch(1000)),
    ]


@program()
def enumerated(tf, tmp):
    strings = tf.data.Dataset.from_tensor_slices(["a", "b"])
    return [
        elements(strings.enumerate()),
        elements(strings.enumerate(start=5)),
        elements(tf.data.Dataset.from_tensor_slices(([1, 2], [3, 4])).enumerate()),
    ]


@program()
def a_cache_reads_its_source_once(tf, tmp):
    source = Counted(tf, 4)
    dataset = source.dataset.cache()
    found = [elements(dataset), source.drawn]
    return [*found, elements(dataset), source.drawn]


@program()
def without_a_cache_each_iteration_reads(tf, tmp):
    source = Counted(tf, 4)
    return [elements(source.dataset), elements(source.dataset), source.drawn]


@program()
def a_cache_on_disk_reads_its_source_once(tf, tmp):
    source = Counted(tf, 4)
    dataset = source.dataset.cache(str(tmp / "cache"))
    found = [elements(dataset), source.drawn, elements(dataset), source.drawn]
    again = Counted(tf, 4)
    found += [elements(again.dataset.cache(str(tmp / "cache"))), again.drawn]
    return [*found, bool(list(tmp.glob("cache*")))]


@program()
def a_cache_on_disk_of_structures(tf, tmp):
    value = {"a": [1, 2, 3], "b": (["x", "yy", ""], np.ones((3, 2), np.float32))}
    dataset = tf.data.Dataset.from_tensor_slices(value).cache(str(tmp / "cache"))
    return [elements(dataset), elements(dataset)]


@program()
def a_cache_before_repeat(tf, tmp):
    source = Counted(tf, 3)
    return [elements(source.dataset.cache().repeat(3)), source.drawn]


@program()
def a_cache_before_shuffle_shuffles_anew(tf, tmp):
    source = Counted(tf, 30)
    dataset = source.dataset.cache().shuffle(30, seed=1)
    first, second = elements(dataset), elements(dataset)
    return [sorted(first) == sorted(second), first == second, source.drawn]


@program()
def a_cache_after_shuffle_keeps_the_order(tf, tmp):
    dataset = _numbers(tf, 30).shuffle(30, seed=1).cache()
    return elements(dataset) == elements(dataset)


@program()
def a_cache_read_in_part(tf, tmp):
    source = Counted(tf, 5)
    dataset = source.dataset.cache()
    first = elements(dataset, 2)
    return [first, elements(dataset), elements(dataset)]


@program()
def batches_across_epochs(tf, tmp):
    dataset = _numbers(tf, 5)
    return [
        elements(dataset.repeat(2).batch(3)),
        elements(dataset.batch(3).repeat(2)),
        cardinality(dataset.repeat(2).batch(3)),
        cardinality(dataset.batch(3).repeat(2)),
    ]


@program()
def the_everyday_pipeline(tf, tmp):
    dataset = (
        tf.data.Dataset.from_tensor_slices((np.arange(10), np.arange(10) % 3))
        .map(lambda x, y: (x / 2, y), num_parallel_calls=tf.data.AUTOTUNE)
        .filter(lambda x, y: y != 1)
        .cache()
        .shuffle(1)
        .repeat(2)
        .batch(4)
        .prefetch(tf.data.AUTOTUNE)
    )
    return [elements(dataset), elements(dataset)]


@program()
def a_generator_that_fails(tf, tmp):
    def generate():
        yield 1
        yield 2
        raise KeyError("lost")

    it = iter(
        tf.data.Dataset.from_generator(
            generate, output_signature=tf.TensorSpec((), "int64")
        )
    )
    return [plain(next(it)), plain(next(it)), error(lambda: next(it))]
