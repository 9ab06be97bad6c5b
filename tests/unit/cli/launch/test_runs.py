"""A group is started again with the workers that are left."""

import types

import pytest

from unisono._src.cli.launch import group, launch_plan, runs


def killed(job):
    """Returns what is read of a failure by SIGKILL."""
    command = types.SimpleNamespace(job=job)
    worker = types.SimpleNamespace(command=command, code=-9)
    return group.WorkerFailure(worker, 137, 0.0, (), group.FailureCause.OWN)


@pytest.mark.feature("U02")
@pytest.mark.parametrize(
    ("jobs", "left"), [(["worker"], 2), (["chief"], 3), (["ps", "worker"], 2)]
)
def test_only_a_worker_that_was_killed_is_one_worker_less(jobs, left):
    outcome = group.GroupOutcome(tuple(map(killed, jobs)), None, False)
    assert runs.GroupSize(3, minimum=1).next_size(outcome).start == left


@pytest.mark.parametrize(("given", "told"), [(None, "7"), (100, "100"), (0, "0")])
def test_workers_are_told_how_often_to_compare_their_copies(monkeypatch, given, told):
    monkeypatch.setenv("UNISONO_CHECK_REPLICAS", "7")
    request = runs.RunRequest(("train.py",), runs.GroupSize(2), check_replicas=given)
    placement = launch_plan.local_placement(2)
    made = runs._plan_commands(request, placement, 0, 10.0)
    assert [c.env["UNISONO_CHECK_REPLICAS"] for c in made] == [told, told]


def test_copies_of_parameter_servers_are_not_compared():
    request = runs.RunRequest(
        ("train.py",), runs.GroupSize(2), servers=1, check_replicas=5
    )
    with pytest.raises(ValueError, match=r"--check-replicas .* --ps"):
        runs.run(request, None)
