"""`distribute.Server`: what it refuses before it starts anything."""

import pytest

import unisono
from unisono import distribute

pytest.importorskip("ray")
CLUSTER = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2", "127.0.0.1:3"]}


@pytest.mark.parametrize(
    ("cluster", "given", "message"),
    [
        (
            CLUSTER,
            ("ps", 0),
            "job_name is 'ps'; the cluster has",
        ),
        (CLUSTER, ("worker", 5), r"task_index is 5; 'worker' has tasks \[0, 1\]"),
        (CLUSTER, ("worker",), "task_index is missing"),
        (CLUSTER, (), "job_name is missing"),
        (CLUSTER, ("worker", 0, "ucx"), "protocol is 'ucx'; Ray speaks 'grpc'"),
        (CLUSTER, ("worker", 0, "grpc", {}), "is a compat.v1.ConfigProto, or None"),
        ({"worker": ["10.0.0.1:2"]}, ("worker", 0), "The cluster has no chief"),
    ],
)
def test_a_task_that_is_not_clear_is_refused(cluster, given, message):
    with pytest.raises(ValueError, match=message):
        distribute.Server(unisono.train.ClusterSpec(cluster), *given)


def test_without_a_token_nothing_starts(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    with pytest.raises(RuntimeError, match="before anything listens at 127"):
        distribute.Server(CLUSTER, "worker", 0)


def test_a_server_that_is_not_started_has_an_address(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    made = distribute.Server(CLUSTER, job_name="worker", task_index=1, start=False)
    assert made.target == "grpc://127.0.0.1:3"


def test_the_tasks_of_one_process_need_no_chief():
    config = unisono.compat.v1.ConfigProto(inter_op_parallelism_threads=4)
    made = distribute.Server({"ps": ["localhost:2"]}, "ps", 0, config=config)
    assert made.target == "grpc://localhost:2"
    with pytest.raises(ValueError, match="Only the tasks of one process need none"):
        made.join()
    with pytest.raises(AttributeError):
        config.inter_op_threads = 4  # type: ignore[attr-defined]


def test_a_local_server_is_a_cluster_of_its_own():
    first, second = (distribute.Server.create_local_server() for _ in range(2))
    assert first.target.startswith("grpc://localhost:")
    assert first.target != second.target
    with pytest.raises(ValueError, match="received"):
        distribute.Server.create_local_server(config={})
