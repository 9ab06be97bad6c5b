"""Distributed datasets: what TensorFlow was seen to do, step by step."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import (
    SUM,
    device_index,
    kind,
    local,
    mirrored,
    plain,
)
from unisono._src.execution.specs import PerReplicaSpec

D = tf.distribute
Policy = tf.data.experimental.AutoShardPolicy
Dataset = tf.data.Dataset
Spec = tf.TensorSpec


def steps(n, dataset):
    """What each replica gets in each step; whole elements for one replica."""
    found = mirrored(n).experimental_distribute_dataset(dataset)
    return [plain(x) if n == 1 else local(mirrored(n), x) for x in found]


def under(dataset, policy):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def lists(text):
    """``"0 1|2"`` as ``[[0, 1], [2]]``: parts of a step; steps are divided by ``/``."""
    return [
        [[int(x) for x in part.split()] for part in step.split("|")]
        for step in text.split("/")
    ]


# How batches are split.


@pytest.mark.feature("H01", "H04", "H05")
@pytest.mark.parametrize(
    ("size", "two", "four"),
    [
        (8, "0 1 2 3|4 5 6 7", "0 1|2 3|4 5|6 7"),
        (7, "0 1 2 3|4 5 6", "0 1|2 3|4 5|6"),
        (6, "0 1 2|3 4 5", "0 1|2 3|4 5|"),
        (5, "0 1 2|3 4", "0 1|2 3|4|"),
        (3, "0 1|2", "0|1|2|"),
        (2, "0|1", "0|1||"),
        (1, "0|", "0|||"),
    ],
)
def test_a_batch_is_cut_into_consecutive_chunks(size, two, four):
    dataset = Dataset.range(size).batch(size)
    assert steps(2, dataset) == lists(two)
    assert steps(4, dataset) == lists(four)
    assert steps(1, dataset) == [list(range(size))]


@pytest.mark.feature("H05")
@pytest.mark.parametrize(
    ("rows", "two", "four"),
    [
        (14, "8 9 10|11 12 13", "8 9|10 11|12 13|"),
        (13, "8 9 10|11 12", "8 9|10 11|12|"),
        (10, "8|9", "8|9||"),
        (9, "8|", "8|||"),
    ],
)
def test_a_last_batch_is_cut_by_its_own_size(rows, two, four):
    dataset = Dataset.range(rows).batch(8)
    assert steps(2, dataset)[1:] == lists(two)
    assert steps(4, dataset)[1:] == lists(four)


@pytest.mark.feature("H05", "H22")
@pytest.mark.parametrize(
    ("size", "rows", "two", "four"),
    [
        (
            *(5, 12),
            "0 1 2|3 4/5 6 7|8 9/10|11",
            "0 1|2 3|4|/5 6|7 8|9|/10|11||",
        ),
        (
            *(7, 16),
            "0 1 2 3|4 5 6/7 8 9 10|11 12 13/14|15",
            "0 1|2 3|4 5|6/7 8|9 10|11 12|13/14|15||",
        ),
        (
            *(3, 10),
            "0 1|2/3 4|5/6 7|8/9|",
            "0|1|2|/3|4|5|/6|7|8|/9|||",
        ),
    ],
)
def test_odd_batches(size, rows, two, four):
    dataset = Dataset.range(rows).batch(size)
    assert steps(2, dataset) == lists(two)
    assert steps(4, dataset) == lists(four)


@pytest.mark.feature("H05", "H15", "H18")
@pytest.mark.parametrize(
    ("size", "rows", "two", "four"),
    [
        (6, 12, "0 1 2|3 4 5/6 7 8|9 10 11", "0 1|2 3|4|5/6 7|8 9|10|11"),
        (
            *(8, 14),
            "0 1 2 3|4 5 6 7/8 9 10 11|12 13",
            "0 1|2 3|4 5|6 7/8 9|10 11|12 13|",
        ),
        (8, 9, "0 1 2 3|4 5 6 7/8|", "0 1|2 3|4 5|6 7/8|||"),
        (7, 7, "0 1 2 3|4 5 6", "0 1|2 3|4 5|6"),
        (5, 12, "0 1 2|3 4/5 6 7|8 9/10 11|", "0 1|2|3|4/5 6|7|8|9/10 11|||"),
        (1, 3, "0|/1|/2|", "0|||/1|||/2|||"),
    ],
)
def test_without_sharding_sizes_are_fixed_and_filled_in_order(size, rows, two, four):
    dataset = under(Dataset.range(rows).batch(size), Policy.OFF)
    assert steps(2, dataset) == lists(two)
    assert steps(4, dataset) == lists(four)


CHUNKS, FIXED = "0 1|2 3|4 5|/6 7|8 9|10 11|", "0 1|2 3|4|5/6 7|8 9|10|11"


@pytest.mark.feature("H13", "H14", "H15", "H16")
def test_the_policy_decides_between_the_two_rules():
    dataset = Dataset.range(12).batch(6)
    for policy in (Policy.AUTO, Policy.DATA):
        assert steps(4, under(dataset, policy)) == lists(CHUNKS)
    for policy in (Policy.OFF, Policy.FILE, Policy.HINT):
        assert steps(4, under(dataset, policy)) == lists(FIXED)
    # A map behind the batch hides its size.
    hidden = under(dataset.map(lambda x: x), Policy.OFF)
    assert steps(4, hidden) == lists(CHUNKS)


@pytest.mark.feature("H14", "H16")
def test_files_have_fixed_sizes_unless_data_is_sharded(tmp_path):
    path = tmp_path / "f0"
    path.write_text("\n".join(map(str, range(14))))

    def found(n, size, policy):
        dataset = under(tf.data.TextLineDataset([str(path)]).batch(size), policy)
        return [[list(map(int, part)) for part in step] for step in steps(n, dataset)]

    for policy in (Policy.AUTO, Policy.FILE, Policy.OFF):
        assert found(4, 6, policy) == lists(FIXED + "/12 13|||")
        assert found(2, 8, policy) == lists("0 1 2 3|4 5 6 7/8 9 10 11|12 13")
    assert found(4, 6, Policy.DATA) == lists(CHUNKS + "/12|13||")
    assert found(2, 8, Policy.DATA) == lists("0 1 2 3|4 5 6 7/8 9 10|11 12 13")


@pytest.mark.feature("H05")
def test_boundaries_of_batches_are_kept():
    dataset = Dataset.range(6).batch(4).repeat(2)
    assert steps(2, dataset) == lists("0 1|2 3/4|5") * 2
    assert steps(4, dataset) == lists("0|1|2|3/4|5||") * 2
    # TensorFlow fills up a partial batch from the next; unisono does not.
    fixed = under(dataset, Policy.OFF)
    assert steps(2, fixed) == lists("0 1|2 3/4 5|") * 2


@pytest.mark.feature("H04", "H05")
def test_what_may_stand_behind_a_batch():
    assert steps(2, Dataset.range(3).batch(1)) == lists("0|/1|/2|")
    batched = Dataset.range(10).batch
    assert steps(2, batched(4, drop_remainder=True)) == lists("0 1|2 3/4 5|6 7")
    assert steps(2, batched(5, drop_remainder=True)) == lists("0 1 2|3 4/5 6 7|8 9")
    small = Dataset.range(6).batch(2, drop_remainder=True)
    assert steps(4, small) == lists("0|1||/2|3||/4|5||")
    mapped = Dataset.range(6).batch(4).map(lambda x: x * 10).prefetch(2)
    assert steps(2, mapped) == lists("0 10|20 30/40|50")
    assert steps(2, Dataset.range(3).batch(3).repeat(2)) == lists("0 1|2/0 1|2")
    assert steps(2, Dataset.range(12).batch(4).take(1)) == lists("0 1|2 3")
    assert steps(2, Dataset.range(3).repeat(2).batch(4)) == lists("0 1|2 0/1|2")
    assert steps(4, Dataset.range(100).batch(8))[0] == lists("0 1|2 3|4 5|6 7")[0]


@pytest.mark.feature("H27")
def test_elements_without_a_batch_axis():
    with pytest.raises(IndexError):
        steps(2, Dataset.range(4))
    assert steps(1, Dataset.range(3)) == [0, 1, 2]
    rows = Dataset.from_tensor_slices(np.arange(8.0).reshape(4, 2))
    assert steps(2, rows) == [[[2.0 * i], [2.0 * i + 1]] for i in range(4)]
    assert steps(2, Dataset.from_tensors(np.arange(6.0))) == lists("0 1 2|3 4 5")
    twice = Dataset.from_tensors(np.arange(5.0)).repeat(2)
    assert steps(2, twice) == lists("0 1 2|3 4") * 2


@pytest.mark.feature("H01")
def test_nested_elements_keep_their_structure(s):
    nested = {"x": np.arange(4.0), "y": (np.arange(4), np.arange(8).reshape(4, 2))}
    dataset = Dataset.from_tensor_slices(nested).batch(4)
    (x,) = s.experimental_distribute_dataset(dataset)
    assert [type(x), kind(x["x"]), type(x["y"])] == [dict, "PerReplica", tuple]
    assert local(s, x["x"]) == [[0.0, 1.0], [2.0, 3.0]]
    assert local(s, x["y"][0]) == [[0, 1], [2, 3]]
    assert local(s, x["y"][1]) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]

    short = Dataset.from_tensor_slices((np.ones([1, 3], np.float32), np.array(["a"])))
    (x,) = s.experimental_distribute_dataset(short.batch(4))
    found = s.experimental_local_results(x[0])
    assert [(v.shape, v.dtype) for v in found] == [
        ((1, 3), jnp.float32),
        ((0, 3), jnp.float32),
    ]
    assert local(s, x[1]) == [[b"a"], []]


# The distributed dataset itself.


@pytest.mark.feature("H01", "H02", "H03")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_types_and_places(n):
    s = mirrored(n)
    dataset = s.experimental_distribute_dataset(Dataset.range(8).batch(4))
    iterator = iter(dataset)
    assert isinstance(dataset, D.DistributedDataset)
    assert isinstance(iterator, D.DistributedIterator)
    step = next(iterator)
    assert kind(step) == ("array" if n == 1 else "PerReplica")
    places = [device_index(x) for x in s.experimental_local_results(step)]
    assert places == list(range(n))
    for name in ("map", "batch", "take"):
        assert not hasattr(dataset, name)
    assert dataset.cardinality == 2
    endless = s.experimental_distribute_dataset(Dataset.range(10).batch(4).repeat())
    assert endless.cardinality == tf.data.INFINITE_CARDINALITY == -1
    assert [local(s, x) for x in dataset] == [local(s, x) for x in dataset]


@pytest.mark.feature("H23")
def test_the_spec_has_one_part_per_replica(s):
    def spec(size, n=2, **more):
        dataset = Dataset.range(20).batch(size, **more)
        return mirrored(n).experimental_distribute_dataset(dataset).element_spec

    def parts(size, n=2):
        return PerReplicaSpec(*[Spec((size,), np.int64)] * n)

    assert spec(4) == parts(None)
    assert spec(4, drop_remainder=True) == parts(2)
    assert spec(4, 4, drop_remainder=True) == parts(1, 4)
    assert spec(5, drop_remainder=True) == parts(None)
    assert spec(4, 1) == Spec((None,), np.int64)
    made = s.distribute_datasets_from_function(lambda c: Dataset.range(8).batch(2))
    assert made.element_spec == parts(None)


@pytest.mark.feature("H24")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_spec_is_a_signature_outside_and_inside_of_run(n):
    s = mirrored(n)
    dataset = s.experimental_distribute_dataset(Dataset.range(6).batch(4))

    @tf.function(input_signature=[dataset.element_spec])
    def outside(x):
        return s.run(jnp.sum, args=(x,))

    @tf.function(input_signature=[dataset.element_spec])
    def inside(x):
        return jnp.sum(x)

    expected = {
        1: [[6], [9]],
        2: [[1, 5], [4, 5]],
        4: [[0, 1, 2, 3], [4, 5, 0, 0]],
    }[n]
    assert [local(s, outside(x)) for x in dataset] == expected
    assert [local(s, s.run(inside, args=(x,))) for x in dataset] == expected


@pytest.mark.feature("H02")
@pytest.mark.parametrize("static", [False, True])
def test_optionals_are_empty_when_no_replica_has_data(s, static):
    rows = 4 if static else 3
    dataset = Dataset.range(rows).batch(2, drop_remainder=static)
    iterator = iter(s.experimental_distribute_dataset(dataset))
    found = [iterator.get_next_as_optional() for _ in range(3)]
    assert [bool(o.has_value()) for o in found] == [True, True, False]
    assert [local(s, o.get_value()) for o in found[:2]] == lists(
        "0|1/2|3" if static else "0|1/2|"
    )
    with pytest.raises(tf.errors.InvalidArgumentError):
        found[2].get_value()
    endless = Dataset.range(2).repeat().batch(2)
    optional = iter(s.experimental_distribute_dataset(endless)).get_next_as_optional()
    assert local(s, optional.get_value()) == [[0], [1]]


@pytest.mark.feature("C13", "H02")
def test_elements_are_taken_outside_of_run_and_by_one_strategy(s):
    dataset = s.experimental_distribute_dataset(Dataset.range(4).batch(2))
    iterator = iter(dataset)
    with pytest.raises(ValueError, match=r"strategy\.run"):
        s.run(lambda: next(iterator))
    with mirrored(4).scope(), pytest.raises(RuntimeError, match="Mixing different"):
        next(iter(dataset))


@pytest.mark.feature("F10", "H02")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_loops_and_iterators_inside_a_function(n):
    s = mirrored(n)

    def total(x):
        return s.reduce(SUM, s.run(jnp.sum, args=(x,)), axis=None)

    @tf.function
    def epoch(dataset):
        result = jnp.asarray(0)
        for x in dataset:
            result += total(x)
        return result

    @tf.function
    def two(iterator):
        return total(next(iterator)) + total(next(iterator))

    def make(rows):
        return s.experimental_distribute_dataset(Dataset.range(rows).batch(4))

    assert plain(epoch(make(6))) == 15
    assert plain(two(iter(make(8)))) == 28
    folded = make(6).reduce(
        jnp.asarray(0), lambda state, x: state + s.reduce(SUM, x, axis=0)
    )
    assert plain(folded) == 15


@pytest.mark.feature("H19")
def test_input_options(s):
    mode = D.InputReplicationMode
    assert tuple(D.InputOptions()) == (True, mode.PER_WORKER, False, 1)
    options = D.InputOptions(experimental_replication_mode=mode.PER_REPLICA)
    with pytest.raises(NotImplementedError, match="only supported in"):
        s.experimental_distribute_dataset(Dataset.range(4).batch(2), options)


@pytest.mark.feature("H13", "H16")
def test_one_worker_loses_nothing_under_any_policy():
    assert {p.name: p.value for p in Policy} == {
        "OFF": -1,
        "AUTO": 0,
        "FILE": 1,
        "DATA": 2,
        "HINT": 3,
    }
    for policy in Policy:
        found = steps(2, under(Dataset.range(4).batch(2), policy))
        assert found == lists("0|1/2|3")
