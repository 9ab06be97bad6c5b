"""A group is started again with the workers that are left."""

import types

import pytest

from unisono._src.cli.launch import group, runs


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
