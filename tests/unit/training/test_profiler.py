"""Profiles: written where asked, with the names and numbers of steps."""

import gzip
import json

import jax.numpy as jnp
import pytest

import unisono as uni
from tests import machine

profiler = uni.profiler.experimental


def events(directory):
    """Returns the names of what a profile has recorded, with their arguments."""
    (path,) = directory.rglob("*.trace.json.gz")
    found = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return [(e["name"], e.get("args", {})) for e in found if "name" in e]


def numbers(found, name):
    """Returns the step numbers of the events of a name."""
    return sorted(
        int(args["step_num"]) for n, args in found if n == name and "step_num" in args
    )


def make_step(strategy):
    with strategy.scope():
        total = uni.Variable(0.0, aggregation=uni.VariableAggregation.SUM)

    @uni.function
    def counting_step(x):
        strategy.run(lambda: total.assign_add(jnp.sum(x)))

    return counting_step, total


@pytest.mark.feature("V08")
@pytest.mark.parametrize("count", [1, 2])
def test_steps_have_the_name_and_number_of_their_function(count, tmp_path):
    strategy = uni.distribute.MirroredStrategy(machine.names(count))
    step, total = make_step(strategy)
    step(1.0)  # Made before the profile, like one that is made in it.
    with profiler.Profile(tmp_path):
        for _ in range(3):
            step(1.0)
        for size in (2, 3, 2):  # Other shapes: other programs of the function.
            step(jnp.ones(size))
        total.numpy()
    found = events(tmp_path)
    assert set(numbers(found, "counting_step")) == set(range(6))
    # The program itself has the name, on the host and on the devices.
    assert any("jit_counting_step" in str(e) for e in found)


def test_a_step_of_the_users_own_is_the_step(tmp_path):
    step, total = make_step(uni.distribute.OneDeviceStrategy(machine.name(0)))
    step(1.0)
    profiler.start(tmp_path, profiler.ProfilerOptions(host_tracer_level=1))
    for i in range(10, 13):
        with profiler.Trace("train", step_num=i, _r=1):
            step(1.0)
    with profiler.Trace("reading", of="total"):
        total.numpy()
    profiler.stop()
    found = events(tmp_path)
    assert numbers(found, "train") == [10, 11, 12]
    assert numbers(found, "counting_step") == [0, 1, 2]
    assert ("reading", "total") in [(n, a.get("of")) for n, a in found]


def test_programs_are_called_as_they_are_when_no_profile_is_taken(tmp_path):
    step, _ = make_step(uni.distribute.OneDeviceStrategy(machine.name(0)))
    step(1.0)
    program = step._last.found[1]
    plain = program.call
    with profiler.Profile(tmp_path):
        assert program.call != plain
        step(1.0)
    assert program.call == plain


def test_one_profile_at_a_time(tmp_path):
    with pytest.raises(uni.errors.FailedPreconditionError, match="No profiler"):
        profiler.stop()
    again = pytest.raises(uni.errors.FailedPreconditionError, match="Another")
    with profiler.Profile(tmp_path), again:
        profiler.start(tmp_path)
    assert list(tmp_path.rglob("*.xplane.pb"))
