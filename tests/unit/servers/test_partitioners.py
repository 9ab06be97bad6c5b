"""Cutting variables into parts, TensorFlow's facts 7, 8 and 40."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono
from tests.unit.servers import clusters
from unisono._src.servers import partitioners as lib
from unisono.distribute import coordinator as api
from unisono.distribute.experimental import partitioners

pytestmark = pytest.mark.feature("T06")


def cut(parts, servers=2):
    return clusters.cluster(
        1,
        servers,
        partitioners.FixedShardsPartitioner(parts),
        api.ThreadCarrier(synchronous=True),
    )


def test_parts_are_named_and_spread_and_small_variables_are_whole():
    with cut(5) as (strategy, _), strategy.scope():
        table: Any = unisono.Variable(jnp.arange(13.0), name="table")
        scalar = unisono.Variable(1.0)
        single = unisono.Variable([[1.0, 2.0]])
        with strategy.extended.colocate_vars_with(single):
            beside = unisono.Variable(jnp.zeros(13))
        assert [v.shape[0] for v in table.variables] == [3, 3, 3, 2, 2]
        assert [v.name for v in table][:2] == ["table/part_0:0", "table/part_1:0"]
        assert len({v.device for v in table}) == 2
        assert table.numpy().tolist() == list(range(13))
        whole = (scalar, single, beside)
        assert all(isinstance(v, unisono.Variable) for v in whole)
        with pytest.raises(ValueError, match="initial_value"):
            unisono.Variable(shape=(3,), dtype="float32")


def test_first_values_are_made_by_parts_if_the_function_can():
    calls: list[Any] = []

    def by_parts(partition_shape=None, partition_offset=None):
        calls.append((partition_shape, partition_offset))
        return jnp.full(partition_shape, float(partition_offset[0]))

    def as_a_whole():
        calls.append("whole")
        return jnp.arange(8.0).reshape(4, 2)

    with cut(3) as (strategy, _), strategy.scope():
        kind = {"shape": (4, 2), "dtype": "float32"}
        first = unisono.Variable(by_parts, **kind)
        assert calls == [((2, 2), (0, 0)), ((1, 2), (2, 0)), ((1, 2), (3, 0))]
        assert first.numpy()[:, 0].tolist() == [0.0, 0.0, 2.0, 3.0]
        calls.clear()
        for given in (kind, {}):
            second = unisono.Variable(as_a_whole, **given)
            assert second.numpy().ravel().tolist() == list(range(8))
        assert calls == ["whole", "whole"]


def test_a_large_first_value_that_is_made_whole_is_told(monkeypatch, caplog):
    monkeypatch.setattr(lib, "_LARGE", 7)
    with cut(2) as (strategy, _), strategy.scope():
        for rows in (7, 8):
            unisono.Variable(
                lambda n=rows: jnp.zeros(n), shape=(rows,), dtype="float32"
            )
    assert ["(8,)" in r.message for r in caplog.records] == [True]


def test_an_exported_model_has_one_variable_and_is_loaded_anywhere(tmp_path):
    class Model(unisono.Module):
        def __init__(self):
            self.table = unisono.Variable(np.arange(6.0).reshape(3, 2), name="table")

        @unisono.function(input_signature=[unisono.TensorSpec([None], "int32")])
        def find(self, ids):
            return unisono.nn.embedding_lookup(self.table, ids) + self.table[0]

    with cut(2) as (strategy, _):
        with strategy.scope():
            model: Any = Model()
        unisono.saved_model.save(model, str(tmp_path))
        assert len(model.table.variables) == 2
        with strategy.scope():
            there = unisono.saved_model.load(str(tmp_path))
        assert there.find(np.int32([2])).tolist() == [[4.0, 6.0]]
    loaded = unisono.saved_model.load(str(tmp_path))
    assert loaded.table.shape == (3, 2)
    assert loaded.find(np.int32([2, 0])).tolist() == [[4.0, 6.0], [0.0, 2.0]]


def build(strategy):
    """Returns a table, a weight, their optimizer and a checkpoint of all."""
    rng = np.random.default_rng(0)
    with strategy.scope():
        table = unisono.Variable(rng.normal(size=(13, 2)).astype(np.float32))
        weight = unisono.Variable(jnp.ones((2, 1)))
        optimizer = unisono.optimizers.Optimizer(optax.adam(0.1), [table, weight])
    checkpoint = unisono.train.Checkpoint(t=table, w=weight, o=optimizer)
    return table, weight, optimizer, checkpoint


def step(table, weight, optimizer):
    def loss_fn():
        rows = unisono.nn.embedding_lookup(table, jnp.array([1, 5, 12]))
        return jnp.sum((rows @ weight) ** 2)

    _, gradients = unisono.value_and_grad(loss_fn, [table, weight])()
    optimizer.apply_gradients(zip(gradients, [table, weight]))


def state(built):
    """Returns all of the state as arrays, whatever its parts are."""
    table, weight, optimizer, _ = built
    slots = optimizer._checkpoint_children()["slots"]
    return [x.numpy() for x in (table, weight, optimizer.iterations, *slots)]


def test_checkpoints_go_to_any_number_of_parts_and_any_strategy(tmp_path):
    with cut(3) as (strategy, _):
        built = build(strategy)
        step(*built[:3])
        path = built[3].save(str(tmp_path / "parts"))
        wanted = state(built)
    mirrored = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    other = build(mirrored)
    other[3].restore(path).assert_consumed()
    for x, y in zip(state(other), wanted, strict=True):
        np.testing.assert_array_equal(x, y)
    back = other[3].save(str(tmp_path / "mirrored"))
    with cut(4, servers=3) as (strategy, _):
        again = build(strategy)
        again[3].restore(back).assert_consumed()
        for x, y in zip(state(again), wanted, strict=True):
            np.testing.assert_array_equal(x, y)
        step(*again[:3])
        assert int(again[2].iterations.numpy()) == 2


def test_updates_that_treat_parts_as_variables_are_refused_by_name():
    with cut(2) as (strategy, _), strategy.scope():
        table = unisono.Variable(np.ones((6, 2), np.float32), name="table")
        bias = unisono.Variable(1.0)
        # To Optax the table is one entry, so masks fit.
        masked = optax.masked(optax.sgd(0.1), [True, False])
        unisono.optimizers.Optimizer(masked, [table, bias])
        with pytest.raises(NotImplementedError, match="parts of 'table'"):
            unisono.optimizers.Optimizer(optax.lamb(0.1), [table, bias])


@pytest.mark.parametrize(
    ("partitioner", "shape", "parts"),
    [
        (lib.FixedShardsPartitioner(2), (6, 1), [2, 1]),
        (lib.FixedShardsPartitioner(9), (6, 1), [6, 1]),
        (lib.MinSizePartitioner(4, 2), (6, 1), [2, 1]),
        (lib.MinSizePartitioner(4, 10), (6, 1), [6, 1]),
        (lib.MinSizePartitioner(1024, 10), (6, 1), [1, 1]),
        (lib.MinSizePartitioner(max_shards=4), (1 << 18, 1), [4, 1]),
        (lib.MaxSizePartitioner(4), (6, 1), [6, 1]),
        (lib.MaxSizePartitioner(4, max_shards=2), (6, 1), [2, 1]),
        (lib.MaxSizePartitioner(1024), (6, 1), [1, 1]),
        (lib.MaxSizePartitioner(8), (6,), [3]),
    ],
)
def test_partitioners_cut_as_documented(partitioner, shape, parts):
    assert partitioner(shape, "float32") == parts


@pytest.mark.parametrize(
    "make",
    [
        lambda: lib.FixedShardsPartitioner(0),
        lambda: lib.MinSizePartitioner(0),
        lambda: lib.MinSizePartitioner(max_shards=0),
        lambda: lib.MinSizePartitioner(bytes_per_string=0),
        lambda: lib.MaxSizePartitioner(0),
        lambda: lib.MaxSizePartitioner(1, max_shards=0),
        lambda: lib.MaxSizePartitioner(1, bytes_per_string=0),
    ],
)
def test_arguments_must_be_positive(make):
    with pytest.raises(ValueError, match="positive"):
        make()


def test_the_first_parts_have_one_row_more():
    assert lib.lengths(13, 5) == [3, 3, 3, 2, 2]
    assert lib.lengths(10, 4) == [3, 3, 2, 2]
    assert lib.count_parts(lib.FixedShardsPartitioner(5), (3, 2), "float32", "v") == 3
    assert lib.count_parts(lib.FixedShardsPartitioner(5), (), "float32", "v") == 1


@pytest.mark.parametrize("found", [[], [0, 1], [1, 2], [2], [2, 1, 1]])
def test_a_partitioner_must_cut_along_the_first_axis(found):
    with pytest.raises(ValueError, match="'v'"):
        lib.count_parts(lambda shape, dtype: found, (6, 1), "float32", "v")
