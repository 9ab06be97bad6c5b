"""A Slurm job step becomes a cluster; its variables are not taken on trust."""

import os

import hypothesis
import pytest
from hypothesis import strategies as st

import unisono as uni
from unisono._src.cluster import accelerators, untrusted
from unisono._src.cluster.resolvers import slurm

SlurmClusterResolver = uni.distribute.cluster_resolver.SlurmClusterResolver

pytestmark = pytest.mark.feature("U01")


@pytest.fixture
def step(monkeypatch):
    """Returns a function that sets the variables of a job step."""
    for name in list(os.environ):
        if name.startswith("SLURM_") or name == "CUDA_VISIBLE_DEVICES":
            monkeypatch.delenv(name)
    monkeypatch.setattr(accelerators, "_count_by_nvidia_smi", lambda: 0)

    def set_step(rank="0", nodes="t02n[13,41]", tasks="2(x2)", **more):
        values = {"PROCID": rank, "STEP_NODELIST": nodes, "STEP_TASKS_PER_NODE": tasks}
        for name, value in (values | more).items():
            monkeypatch.setenv(f"SLURM_{name}", value)

    return set_step


def test_every_task_of_the_step_is_a_worker(step):
    step(rank="3", STEP_NUM_TASKS="4")
    r = SlurmClusterResolver()
    assert (r.task_type, r.task_id) == ("worker", 3) == r.get_task_info()
    assert r.cluster_spec().as_dict() == {
        "worker": ["t02n13:8888", "t02n13:8889", "t02n41:8888", "t02n41:8889"]
    }
    assert (r.master(), r.master("worker", 0)) == (
        "grpc://t02n41:8889",
        "grpc://t02n13:8888",
    )
    assert (r.rpc_layer, r.environment, r.num_accelerators()) == (
        "grpc",
        "",
        {"GPU": 0},
    )
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_jobs_share_the_tasks_in_the_order_of_their_names(step):
    step(rank="1", nodes="n[1-4]", tasks="1(x4)")
    r = SlurmClusterResolver({"worker": 3, "ps": 1}, port_base=1000, rpc_layer=None)
    assert r.get_task_info() == ("worker", 0)
    assert r.cluster_spec().as_dict() == {
        "ps": ["n1:1000"],
        "worker": ["n2:1000", "n3:1000", "n4:1000"],
    }
    assert r.master() == "n2:1000"


def test_nodes_stay_in_slurm_s_order(step):
    step(rank="0", nodes="n[9-10]", tasks="1(x2)")
    assert SlurmClusterResolver().cluster_spec().task_address("worker", 0) == "n9:8888"


def test_tasks_per_node_may_be_given(step):
    step(rank="2", nodes="n[1-2]", tasks="7")
    r = SlurmClusterResolver(tasks_per_node=2)
    assert r.cluster_spec().num_tasks("worker") == 4
    r = SlurmClusterResolver(tasks_per_node={"x": 1, "y": 2})
    assert r.cluster_spec().as_dict() == {"worker": ["x:8888", "y:8888", "y:8889"]}


def test_a_task_is_shown_its_share_of_the_gpus(step, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    step(rank="3")
    r = SlurmClusterResolver()
    assert r.num_accelerators() == {"GPU": 2}
    for _ in range(2):  # Asked again, it says the same.
        r.cluster_spec()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "6,7"


def test_numbers_of_gpus_may_be_given(step, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    step(rank="1")
    r = SlurmClusterResolver(gpus_per_node=4, gpus_per_task=1)
    r.cluster_spec()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


def test_gpus_that_slurm_or_the_program_chose_are_left_alone(step, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    step(rank="1", GPUS_PER_TASK="2")
    r = SlurmClusterResolver()
    r.cluster_spec()
    assert (os.environ["CUDA_VISIBLE_DEVICES"], r.num_accelerators()["GPU"]) == (
        "0,1",
        2,
    )
    step(rank="1")
    SlurmClusterResolver(auto_set_gpu=False).cluster_spec()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_more_gpus_than_there_are_is_an_error(step):
    step()
    with pytest.raises(RuntimeError, match="Requested more GPUs per node"):
        SlurmClusterResolver(gpus_per_node=2, gpus_per_task=2)


def test_another_number_of_tasks_than_the_step_has_is_an_error(step):
    step()
    with pytest.raises(
        RuntimeError, match="Requested 3 tasks but only 4 were assigned"
    ):
        SlurmClusterResolver({"worker": 3})
    step(STEP_NUM_TASKS="5")
    with pytest.raises(RuntimeError, match="Requested 5 tasks but only 4"):
        SlurmClusterResolver()


def test_outside_a_step_the_missing_variable_is_named(step):
    with pytest.raises(RuntimeError, match=r"SLURM_STEP_NODELIST not found .* srun"):
        SlurmClusterResolver()


def test_ranks_dealt_out_in_turn_are_refused(step):
    step(rank="1", NODEID="1", LOCALID="0")
    with pytest.raises(RuntimeError, match=r"SLURM_NODEID=0 .* --distribution=block"):
        SlurmClusterResolver()
    step(rank="1", NODEID="0", LOCALID="1")
    assert SlurmClusterResolver().task_id == 1


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"rank": "-1"}, "SLURM_PROCID must be a whole number"),
        ({"rank": "four"}, "SLURM_PROCID must be a whole number"),
        ({"rank": "9" * 30}, "SLURM_PROCID must be a whole number"),
        ({"rank": "65536"}, "SLURM_PROCID is 65536; it must be between 0 and 65535"),
        ({"STEP_NUM_TASKS": "0"}, "SLURM_STEP_NUM_TASKS is 0; it must be between 1"),
        ({"nodes": "n[1-2"}, "SLURM_STEP_NODELIST must be a list of hosts such as"),
        ({"nodes": "n[[1]]"}, "SLURM_STEP_NODELIST must be a list of hosts"),
        ({"nodes": ""}, "SLURM_STEP_NODELIST must be a list of hosts"),
        ({"nodes": "a,,b"}, "SLURM_STEP_NODELIST must be a list of hosts"),
        ({"nodes": "n[2-1]"}, "the range '2-1', which runs backwards"),
        ({"nodes": "n[1-999999999]"}, "stands for more than 65,536 hosts"),
        ({"nodes": "[1-999][1-999][1-999]"}, "stands for more than 65,536 hosts"),
        ({"nodes": "a;rm"}, "names the host 'a;rm'"),
        ({"nodes": "a,b,a"}, "names the host 'a' twice"),
        ({"tasks": "2(x"}, "SLURM_STEP_TASKS_PER_NODE must be a list such as"),
        ({"tasks": "0(x2)"}, "every node has at least one task"),
        ({"tasks": "9(x999999999)"}, "all have at most 65,536"),
        (
            {"tasks": "2(x3)"},
            "names 2 hosts, but SLURM_STEP_TASKS_PER_NODE speaks of 3",
        ),
        ({"NODEID": "x"}, "SLURM_NODEID must be a whole number"),
    ],
)
def test_every_malformed_variable_has_its_own_message(step, variables, message):
    step(**variables)
    with pytest.raises(ValueError, match=message):
        SlurmClusterResolver()


def test_a_rank_outside_the_step_is_an_error(step):
    step(rank="4")
    with pytest.raises(RuntimeError, match="SLURM_PROCID is 4, but the step has 4"):
        SlurmClusterResolver()


def test_a_port_beyond_the_last_is_refused(step):
    step()
    with pytest.raises(ValueError, match=r"The last port.*65536"):
        SlurmClusterResolver(port_base=65_535)


@hypothesis.given(st.text("n0123456789[]-,x() ", max_size=40))
def test_any_list_of_hosts_is_read_or_refused_in_words(text):
    for expand in (slurm.expand_hosts, slurm.expand_counts):
        try:
            found = expand("SLURM_X", text)
        except ValueError as error:
            assert "SLURM_X" in str(error)
        else:
            assert 0 < len(found) <= untrusted.MAX_TASKS


@hypothesis.given(
    st.lists(st.integers(0, 9999), min_size=1, max_size=30, unique=True),
    st.integers(1, 4),
)
def test_a_compressed_list_stands_for_its_hosts(numbers, width):
    hosts = sorted({f"n{str(i).zfill(width)}" for i in numbers})
    compressed = "n[" + ",".join(h[1:] for h in hosts) + "]"
    assert slurm.expand_hosts("X", compressed) == hosts
    assert slurm.expand_hosts("X", ",".join(hosts)) == hosts


def test_explain_names_slurm_s_variables(step):
    step(rank="1")
    told = {f.what: f.source for f in SlurmClusterResolver().explain().findings}
    assert told["task_id"] == "SLURM_PROCID"
    assert "SLURM_STEP_NODELIST" in told["worker 0"]
