"""Which workers compute together."""

import json

import pytest

import unisono
from unisono._src.workers import process_group

CLUSTER = {
    "worker": ["a:1", "b:2"],
    "chief": ["c:3"],
    "evaluator": ["e:4"],
    "ps": ["p:5"],
}


@pytest.mark.feature("U01", "N06")
def test_the_chief_is_the_first_of_the_group():
    group = process_group.group_of(CLUSTER, "chief", 0)
    assert group.tasks == (("chief", 0), ("worker", 0), ("worker", 1))
    assert group.addresses == ("c:3", "a:1", "b:2")
    assert (group.index, group.is_chief, group.size) == (0, True, 3)
    worker = process_group.group_of(CLUSTER, "worker", 1)
    assert (worker.index, worker.is_chief) == (2, False)


@pytest.mark.feature("U01")
def test_without_a_chief_worker_0_is_the_chief():
    group = process_group.group_of({"worker": {1: "b:2", 0: "a:1"}}, "worker", 0)
    assert group.is_chief
    assert group.addresses == ("a:1", "b:2")


@pytest.mark.parametrize(
    "cluster, task", [({}, None), (CLUSTER, None), (CLUSTER, "evaluator")]
)
def test_nobody_computes_with_an_evaluator_or_without_a_cluster(cluster, task):
    assert process_group.group_of(cluster, task, 0) is process_group.ALONE


def test_a_task_outside_the_cluster_is_refused_by_name():
    with pytest.raises(ValueError, match=r"task 2 of the job 'worker'.*chief:0, w"):
        process_group.group_of(CLUSTER, "worker", 2)
    with pytest.raises(ValueError, match="job 'ps' cannot run this strategy"):
        process_group.group_of(CLUSTER, "ps", 0)


def _is_whole(strategy, replicas):
    assert strategy.num_replicas_in_sync == replicas
    assert strategy.extended.should_checkpoint
    context = unisono.distribute.get_replica_context
    ids = strategy.run(lambda: context().replica_id_in_sync_group)
    found = [int(i) for i in strategy.experimental_local_results(ids)]
    assert found == list(range(replicas))
    assert int(strategy.reduce("SUM", ids, axis=None)) == sum(found)


@pytest.mark.feature("T02")
def test_without_a_cluster_the_strategy_has_one_cpu_device(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    strategy = unisono.distribute.MultiWorkerMirroredStrategy()
    assert strategy.cluster_resolver.task_type is None
    _is_whole(strategy, 1)


@pytest.mark.feature("T02")
def test_a_cluster_of_one_worker_has_all_its_devices(monkeypatch):
    text = {
        "cluster": {"worker": ["127.0.0.1:1"]},
        "task": {"type": "worker", "index": 0},
    }
    monkeypatch.setenv("TF_CONFIG", json.dumps(text))
    _is_whole(unisono.distribute.MultiWorkerMirroredStrategy(), 8)


@pytest.mark.feature("T02")
def test_the_experimental_name_takes_a_communication(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    experimental = unisono.distribute.experimental
    ring = experimental.CollectiveCommunication.RING
    strategy = experimental.MultiWorkerMirroredStrategy(communication=ring)
    assert isinstance(strategy, unisono.distribute.MultiWorkerMirroredStrategy)
    assert strategy.extended._placement.communication.implementation is ring


def test_a_cluster_cannot_be_joined_after_jax_has_started(monkeypatch):
    text = {
        "cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]},
        "task": {"type": "worker", "index": 0},
    }
    monkeypatch.setenv("TF_CONFIG", json.dumps(text))
    with pytest.raises(RuntimeError, match="before anything uses JAX's devices"):
        unisono.distribute.MultiWorkerMirroredStrategy()
