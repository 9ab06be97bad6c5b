"""Every cell of the table of strategies and features is true.

A program of a feature gives the numbers of one device, or is refused as the table says.
"""

import inspect
import json
import pathlib
from typing import Any

import jax
import numpy as np
import pytest

import unisono as tf
from tests.parity import strategy_features as table
from tests.unit.servers import clusters

pytestmark = pytest.mark.needs_devices(8)

_TESTS = pathlib.Path(__file__).parents[1]
_WITH_TWO_PROCESSES = {
    "MultiWorker": "test_workers.py::test_training_gives_the_weights_of_one_process",
    "TPU": "test_workers_logical.py::"
    "test_workers_train_with_replicas_of_two_logical_devices",
    "ParameterServer": "test_ray.py::test_workers_add_up_what_servers_keep",
}
_SHARDED_BY_TWO_PROCESSES = (
    "test_workers_sharded.py::test_workers_train_with_the_numbers_of_whole_state"
)


def _run(feature, strategy, folder):
    program: Any = table.FEATURES[feature]
    folders = [folder] * ("folder" in inspect.signature(program).parameters)
    with table.STRATEGIES[strategy]() as job:
        return program(job, *folders)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Returns what each feature's program gives without a strategy."""
    return {
        feature: _run(feature, "none", tmp_path_factory.mktemp("none"))
        for feature in table.FEATURES
    }


@pytest.mark.parametrize("strategy", [s for s in table.STRATEGIES if s != "none"])
@pytest.mark.parametrize("feature", table.FEATURES)
def test_a_cell_of_the_table_is_true(feature, strategy, expected, tmp_path):
    if (feature, strategy) == ("datasets", "ParameterServer"):
        with pytest.raises(NotImplementedError, match="create_per_worker_dataset"):
            _run(feature, strategy, tmp_path)
        return
    found = _run(feature, strategy, tmp_path)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
        found,
        expected[feature],
    )


def test_the_numbers_are_not_trivial(expected):
    for feature, found in expected.items():
        assert all(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(found)), (
            feature
        )


def test_state_is_split_where_the_table_says_so():
    parts = {}
    for name in ("Mirrored", "Mirrored, sharded", "TPU"):
        with table.STRATEGIES[name]() as job:
            parts[name] = table.stored_part(job)
    split = table.Plain(table.tpu(**table.SHARDED))
    parts["TPU, split"] = table.stored_part(split)
    two = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    with clusters.cluster(workers=1, partitioner=two) as made:
        parts["ParameterServer"] = table.stored_part(table.Scheduled(*made))
    assert parts == {
        "Mirrored": 1,
        "Mirrored, sharded": 0.5,
        "TPU": 1,
        "TPU, split": 0.5,
        "ParameterServer": 0.5,
    }
    refused: list[Any] = [
        tf.distribute.OneDeviceStrategy,
        tf.distribute.experimental.CentralStorageStrategy,
    ]
    for each in refused:
        with pytest.raises(TypeError, match="state"):
            each(state="sharded")


def test_strategies_of_one_process_take_no_notice_of_other_workers(monkeypatch):
    cluster = {"cluster": {"worker": ["a:1", "b:1"]}}
    task = {"task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster | task))
    for name in table.STRATEGIES:
        if table.CELLS["several workers", name] == table.NO:
            with table.STRATEGIES[name]() as job:
                assert job.strategy.num_replicas_in_sync <= 2


def test_the_strategies_of_several_workers_have_tests_with_processes():
    claimed = {
        name
        for name in table.STRATEGIES
        if table.CELLS["several workers", name] == table.YES
    }
    assert claimed == set(_WITH_TWO_PROCESSES)
    for test in (*_WITH_TWO_PROCESSES.values(), _SHARDED_BY_TWO_PROCESSES):
        file, _, name = test.partition("::")
        assert f"def {name}(" in (_TESTS / "multiprocess" / file).read_text("utf-8")


def test_the_page_has_the_table():
    page = _TESTS.parent / "docs" / "how-to" / "choose-a-strategy.md"
    assert table.render() in page.read_text("utf-8"), (
        f"Write into it:\n{table.render()}"
    )
