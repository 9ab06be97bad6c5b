"""Programs started by mpirun or Ray find their peers."""

import contextlib
import os
import threading
import types

import pytest

import unisono as uni

MPIClusterResolver = uni.distribute.cluster_resolver.MPIClusterResolver
RayClusterResolver = uni.distribute.cluster_resolver.RayClusterResolver

pytestmark = pytest.mark.feature("U01")


@pytest.fixture
def mpi(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("OMPI_", "PMI_", "MV2_", "MPI_")):
            monkeypatch.delenv(name)

    def set_variables(**values):
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return set_variables


@pytest.mark.parametrize(
    "names",
    [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
        ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ],
)
def test_ranks_of_one_machine_need_no_host_names(mpi, names):
    mpi(**dict(zip(names, ("1", "3", "3"))))
    r = MPIClusterResolver(port_base=1000)
    assert (r.task_type, r.task_id, r.master()) == ("worker", 1, "localhost:1001")
    assert r.cluster_spec().as_dict() == {
        "worker": ["localhost:1000", "localhost:1001", "localhost:1002"]
    }
    assert r.explain().findings[0].source == f"{names[0]} and {names[1]}"


def test_hosts_may_be_given(mpi):
    mpi(PMI_RANK="2", PMI_SIZE="3", MPI_LOCALNRANKS="1")
    r = MPIClusterResolver(["a", "a", "b"], rpc_layer="grpc")
    assert r.cluster_spec().job_tasks("worker") == ["a:8888", "a:8889", "b:8888"]
    assert r.master() == "grpc://b:8888"
    with pytest.raises(ValueError, match="MPI has 3 ranks, but 2 hosts are named"):
        MPIClusterResolver(["a", "b"])


class Communicator:
    """As many of mpi4py's methods as are needed, between threads."""

    def __init__(self, rank, hosts, barrier, buffers):
        self.rank, self.hosts = rank, hosts
        self.barrier, self.buffers = barrier, buffers

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return len(self.hosts)

    def Allgather(self, mine, everyone):
        self.buffers[self.rank] = bytes(mine)
        self.barrier.wait(timeout=10)
        everyone[:] = b"".join(self.buffers)


def test_mpi_itself_tells_which_hosts_take_part(mpi, monkeypatch):
    hosts = ["node-a", "node-b", "node-a"]
    barrier, buffers, found = threading.Barrier(3), [b""] * 3, {}
    names = threading.local()
    monkeypatch.setattr("socket.gethostname", lambda: names.host)

    def run(rank):
        names.host = hosts[rank]
        comm = Communicator(rank, hosts, barrier, buffers)
        found[rank] = MPIClusterResolver(comm=comm)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank in range(3):
        assert found[rank].task_id == rank
        assert found[rank].cluster_spec().job_tasks("worker") == [
            "node-a:8888",
            "node-b:8888",
            "node-a:8889",
        ]


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({}, RuntimeError, "Not started by mpirun"),
        ({"PMI_RANK": "x", "PMI_SIZE": "2"}, ValueError, "PMI_RANK must be a whole"),
        ({"PMI_RANK": "2", "PMI_SIZE": "2"}, ValueError, "PMI_RANK is 2; it must be"),
        ({"PMI_RANK": "0", "PMI_SIZE": "0"}, ValueError, "PMI_SIZE is 0; it must be"),
        (
            {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "3"},
            ValueError,
            "MPI_LOCALNRANKS is 3",
        ),
    ],
)
def test_what_mpi_s_variables_lack_is_named(mpi, values, error, message):
    mpi(**values)
    with pytest.raises(error, match=message):
        MPIClusterResolver()


def test_without_hosts_and_mpi4py_the_remedy_is_told(mpi, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mpi4py", None)
    mpi(PMI_RANK="0", PMI_SIZE="2")
    with pytest.raises(RuntimeError, match="Install mpi4py, or pass hosts="):
        MPIClusterResolver()


class FakeRay(types.SimpleNamespace):
    """As much of Ray as the resolver asks for."""

    def __init__(self, rank=None, size=None):
        store = {}
        super().__init__(
            store=store,
            is_initialized=lambda: True,
            get_runtime_context=lambda: types.SimpleNamespace(get_job_id=lambda: "01"),
            util=types.SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1"),
            train=types.SimpleNamespace(
                get_context=lambda: types.SimpleNamespace(
                    get_world_rank=lambda: rank, get_world_size=lambda: size
                )
            ),
            experimental=types.SimpleNamespace(
                internal_kv=types.SimpleNamespace(
                    _internal_kv_put=lambda key, value, overwrite, namespace: (
                        store.__setitem__((namespace, key), value)
                    ),
                    _internal_kv_get=lambda key, namespace: store.get((namespace, key)),
                )
            ),
        )


def test_workers_of_ray_find_one_another():
    found = meet(FakeRay(), 3)
    clusters = [r.cluster_spec() for r in found]
    assert clusters[0] == clusters[1] == clusters[2]
    assert [r.master() for r in found] == clusters[0].job_tasks("worker")
    assert len(set(clusters[0].job_tasks("worker"))) == 3


def test_ray_train_knows_rank_and_size():
    r = RayClusterResolver(client=FakeRay(rank=0, size=1))
    assert (r.task_type, r.task_id) == ("worker", 0)
    assert r.explain().findings[0].source == "ray.train.get_context()"
    with pytest.raises(RuntimeError, match="pass task_id= and num_workers="):
        RayClusterResolver(client=FakeRay())


def test_a_worker_of_ray_that_does_not_come_is_named():
    with pytest.raises(TimeoutError, match=r"Worker 0 waited 0.2 s .* \[1, 2\] of 3"):
        RayClusterResolver(0, 3, client=FakeRay(), timeout_seconds=0.2)


@pytest.mark.parametrize(
    ("left", "message"),
    [
        (b"\xff\x1b[2J", "What worker 1 left in Ray's store is malformed: "),
        (b"[]", "is malformed"),
        (b'{"own": "a", "address": "a:1", "seen": {"x": "y"}}', "is malformed"),
        (
            b'{"own": "a", "address": "a b:1", "seen": {}}',
            "The address of worker 1 nam",
        ),
        (b"[" * (1 << 20) + b"x", "1,048,577 characters long"),
    ],
)
def test_what_a_peer_leaves_in_ray_s_store_is_checked(left, message):
    ray = FakeRay()
    ray.store[b"unisono", b"01/workers/1"] = left
    with pytest.raises(ValueError, match=message):
        RayClusterResolver(0, 2, client=ray)


def test_a_group_s_name_is_checked():
    with pytest.raises(ValueError, match="The group is 'a/b'"):
        RayClusterResolver(0, 1, group="a/b", client=FakeRay())


def meet(ray, size):
    found = {}

    def run(rank):
        found[rank] = RayClusterResolver(rank, size, client=ray, timeout_seconds=10)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[i] for i in range(size)]


def test_what_an_earlier_start_left_is_not_taken_for_a_peer():
    ray = FakeRay()
    first = meet(ray, 3)[0].cluster_spec()
    with pytest.raises(TimeoutError, match=r"worker\(s\) \[0, 2\] of 3"):
        RayClusterResolver(1, 3, client=ray, timeout_seconds=0.2)
    second = [r.cluster_spec() for r in meet(ray, 3)]
    assert second[0] == second[1] == second[2] != first


def test_outside_ray_the_remedy_is_told(monkeypatch):
    with contextlib.suppress(KeyError):
        monkeypatch.delitem(__import__("sys").modules, "ray")
    with pytest.raises(RuntimeError, match="pip install ray"):
        RayClusterResolver(0, 1)
