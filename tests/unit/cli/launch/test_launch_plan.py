"""What each worker is given: addresses, devices, and its part of a larger job."""

import json
import os

import pytest

from unisono._src.cli.launch import allocation, launch_plan, runs
from unisono._src.cluster import accelerators

pytestmark = pytest.mark.feature("U01")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    jobs = ("SLURM_", "OMPI_", "PMI_", "MV2_", "MPI_", "KUBERNETES_")
    others = ("TF_CONFIG", "JOB_COMPLETION_INDEX", "CUDA_VISIBLE_DEVICES", "XLA_FLAGS")
    for name in list(os.environ):
        if name.startswith(jobs) or name in (*others, "NPROC", "JAX_PLATFORMS"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(accelerators, "_count_by_nvidia_smi", lambda: 0)


# --------------------------------------------------------------------------- devices


def environments(count, platform=launch_plan.Platform.AUTO, each=None):
    return launch_plan.Devices(platform, each).environments(count, os.environ)


def test_without_wishes_and_gpus_the_environment_stays():
    assert environments(2) == [{}, {}]


def test_virtual_devices_are_asked_of_jax_with_threads_for_them(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--a=1 --xla_force_host_platform_device_count=8")
    assert environments(1, each=4) == [
        {
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": "4",
            "XLA_FLAGS": "--a=1",
            "NPROC": str(max(10, os.cpu_count() or 1)),
        }
    ]
    assert "NPROC" not in environments(1, each=1)[0]


def test_gpus_are_shared_out(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-ab,5,6,7")
    assert [e["CUDA_VISIBLE_DEVICES"] for e in environments(2)] == ["3,GPU-ab", "5,6"]
    assert [e["CUDA_VISIBLE_DEVICES"] for e in environments(3, each=1)] == [
        "3",
        "GPU-ab",
        "5",
    ]
    with pytest.raises(ValueError, match=r"3 worker\(s\) × 2 GPU\(s\).* but 5 can be"):
        environments(3, each=2)
    with pytest.raises(ValueError, match=r"6 worker\(s\) × 1 GPU"):
        environments(6)


def test_gpus_are_left_alone_when_the_cpu_is_asked_for(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert environments(1, launch_plan.Platform.CPU) == [{"JAX_PLATFORMS": "cpu"}]
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert environments(1) == [{}]


def test_gpus_that_are_not_there_are_not_promised():
    with pytest.raises(ValueError, match="but 0 can be seen here"):
        environments(1, launch_plan.Platform.GPU)


def test_the_tpu_of_a_machine_is_not_divided(monkeypatch, tmp_path):
    (tmp_path / "accel0").touch()
    (tmp_path / "accel_other").touch()
    monkeypatch.setattr(accelerators, "_DEVICES", tmp_path)
    assert accelerators.count() == {"TPU": 1}
    assert environments(1) == [{}]
    for count, each in ((2, None), (1, 1)):
        with pytest.raises(ValueError, match="belong to one worker"):
            environments(count, each=each)
    assert environments(2, launch_plan.Platform.CPU, 1)[0]["JAX_NUM_CPU_DEVICES"] == "1"


@pytest.mark.parametrize(
    ("value", "found"), [("", []), ("-1", []), ("0,-1,2", ["0"]), ("1, 2", ["1", "2"])]
)
def test_visible_gpus_are_read_as_cuda_reads_them(monkeypatch, value, found):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert accelerators.visible_gpus() == found
    assert accelerators.count() == ({"GPU": len(found)} if found else {})


# ------------------------------------------------------------------------ local groups


def test_a_local_group_has_ports_of_its_own_on_loopback():
    placement = launch_plan.local_placement(20)
    addresses = placement.cluster.job_tasks("worker")
    assert len(set(addresses)) == 20 == placement.count
    assert all(a.startswith("127.0.0.1:") for a in addresses)
    assert placement.mine == tuple(range(20)) and placement.is_local


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_a_local_group_is_neither_empty_nor_huge(count):
    with pytest.raises(ValueError, match="1 to 1024 workers can be started here"):
        launch_plan.local_placement(count)


def test_a_command_has_the_task_in_its_environment():
    made = launch_plan.plan_commands(
        ("prog", "x"),
        launch_plan.local_placement(2),
        launch_plan.Devices(),
        3,
        [(7,), (8,)],
    )
    for index, command in enumerate(made):
        assert json.loads(command.env["TF_CONFIG"])["task"] == {
            "type": "worker",
            "index": index,
        }
        assert command.env["UNISONO_RESTART"] == "3"
        assert command.argv == ("prog", "x", str(7 + index))
        assert command.name == f"worker {index}/2"


def test_a_job_with_servers_has_a_chief_and_a_secret_in_common(monkeypatch):
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setattr(accelerators, "visible_gpus", lambda: ["0", "1"])
    made = launch_plan.plan_server_job(["train.py"], 2, 1, launch_plan.Devices())
    assert [c.name for c in made] == ["chief 0/1", "ps 0/1", "worker 0/2", "worker 1/2"]
    assert [c.serves for c in made] == [False, True, True, True]
    configs = [json.loads(c.env["TF_CONFIG"]) for c in made]
    jobs = configs[0]["cluster"]
    assert {k: len(v) for k, v in jobs.items()} == {"chief": 1, "worker": 2, "ps": 1}
    assert len({a for addresses in jobs.values() for a in addresses}) == 4
    assert all(c["cluster"] == jobs for c in configs)
    (secret,) = {c.env["RAY_AUTH_TOKEN"] for c in made}
    assert len(secret) == 64
    assert [c.env.get("JAX_PLATFORMS") for c in made] == ["cpu", "cpu", None, None]
    assert [c.env.get("CUDA_VISIBLE_DEVICES") for c in made[2:]] == ["0", "1"]


def test_servers_are_for_one_machine(monkeypatch):
    config = {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    request = runs.RunRequest(
        argv=("train.py",),
        size=runs.GroupSize.from_options(None, None, None),
        servers=1,
        place=runs.JobAttachment(allocation.JobKind.AUTO),
    )
    with pytest.raises(ValueError, match="--ps starts a job on one machine"):
        runs.run(request, None)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ((4, None, None), runs.GroupSize(4)),
        ((None, None, None), runs.GroupSize(None)),
        ((None, 2, None), runs.GroupSize(2, 2)),
        ((None, None, 4), runs.GroupSize(4)),
        ((3, 2, 4), runs.GroupSize(3, 2)),
    ],
)
def test_the_size_follows_from_three_options(given, size):
    assert runs.GroupSize.from_options(*given) == size


# ---------------------------------------------------------------------- larger jobs


def test_without_a_larger_job_one_worker_is_started():
    placement = allocation.place(allocation.JobKind.AUTO, None)
    assert placement.is_local and placement.count == 1


def slurm_step(monkeypatch, rank, tasks="1(x2)"):
    monkeypatch.setenv("SLURM_STEP_NODELIST", "n[1-2]")
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", tasks)
    monkeypatch.setenv("SLURM_PROCID", str(rank))


def test_a_slurm_step_starts_one_worker_per_task(monkeypatch):
    slurm_step(monkeypatch, 1)
    placement = allocation.place(allocation.JobKind.AUTO, None, port=1000)
    assert placement.cluster.job_tasks("worker") == ["n1:1000", "n2:1000"]
    assert (placement.mine, placement.is_local) == ((1,), False)


def test_a_slurm_step_may_start_several_per_task(monkeypatch):
    slurm_step(monkeypatch, 3, "2(x2)")
    placement = allocation.place(allocation.JobKind.AUTO, 2, port=1000)
    assert placement.cluster.job_tasks("worker") == [
        f"n{node}:{1000 + i}" for node in (1, 2) for i in range(4)
    ]
    assert placement.mine == (6, 7)


def test_a_slurm_task_shares_its_own_gpus_among_its_workers(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    slurm_step(monkeypatch, 3, "2(x2)")
    placement = allocation.place(allocation.JobKind.AUTO, 2)
    made = launch_plan.plan_commands(("x",), placement, launch_plan.Devices())
    assert [c.env["CUDA_VISIBLE_DEVICES"] for c in made] == ["4,5", "6,7"]


def test_the_script_of_a_slurm_job_is_told_of_srun(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    with pytest.raises(RuntimeError, match="srun unisono launch"):
        allocation.place(allocation.JobKind.AUTO, 2)
    assert allocation.place(allocation.JobKind.NONE, 2).is_local
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    assert allocation.place(allocation.JobKind.AUTO, 2).is_local


def kubernetes_pod(monkeypatch, index="2", host="train-2"):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", index)
    monkeypatch.setattr("socket.gethostname", lambda: host)


def test_a_pod_of_an_indexed_job_knows_its_peers(monkeypatch):
    kubernetes_pod(monkeypatch)
    placement = allocation.place(allocation.JobKind.AUTO, 2, 1000, 3, "peers")
    assert placement.cluster.job_tasks("worker") == [
        f"train-{i}.peers:{port}" for i in range(3) for port in (1000, 1001)
    ]
    assert placement.mine == (4, 5)


@pytest.mark.parametrize(
    ("pod", "options", "error", "message"),
    [
        ({}, (None, "peers"), ValueError, "say --nodes N"),
        ({}, (3, None), ValueError, "--service NAME"),
        (
            {"index": "3"},
            (3, "peers"),
            ValueError,
            "JOB_COMPLETION_INDEX is 3; it must",
        ),
        (
            {"index": "x"},
            (3, "peers"),
            ValueError,
            "JOB_COMPLETION_INDEX must be a who",
        ),
        ({"host": "other"}, (3, "peers"), RuntimeError, "This pod is called 'other'"),
        ({}, (3, "a b"), ValueError, "--service names the host 'a b'"),
    ],
)
def test_what_a_pod_lacks_is_named(monkeypatch, pod, options, error, message):
    kubernetes_pod(monkeypatch, **pod)
    with pytest.raises(error, match=message):
        allocation.place(allocation.JobKind.AUTO, None, 1000, *options)


def test_a_pod_without_an_index_is_told_of_the_mode():
    with pytest.raises(RuntimeError, match="completionMode: Indexed"):
        allocation.place(allocation.JobKind.KUBERNETES, 1, 1000, 3, "peers")


def test_ranks_of_mpi_start_their_workers(monkeypatch):
    for name, value in (("RANK", "1"), ("SIZE", "2"), ("LOCAL_SIZE", "2")):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    placement = allocation.place(allocation.JobKind.AUTO, 2, 1000)
    assert placement.cluster.job_tasks("worker") == [
        f"localhost:{1000 + i}" for i in range(4)
    ]
    assert placement.mine == (2, 3)


def test_tf_config_needs_a_task_to_start(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1"]}}')
    with pytest.raises(ValueError, match="it has no task with a type and index"):
        allocation.place(allocation.JobKind.AUTO, None)
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert allocation.place(allocation.JobKind.AUTO, None).is_local


def test_a_malformed_tf_config_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(ValueError, match="TF_CONFIG is not JSON"):
        allocation.place(allocation.JobKind.AUTO, None)


def test_ports_beyond_the_last_are_refused(monkeypatch):
    slurm_step(monkeypatch, 0)
    with pytest.raises(ValueError, match="The last port of a machine"):
        allocation.place(allocation.JobKind.AUTO, 2, port=65_535)
