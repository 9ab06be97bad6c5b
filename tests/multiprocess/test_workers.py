"""Several workers give the numbers of one process with as many replicas."""

import jax
import numpy as np
import pytest

import unisono
from tests.multiprocess import harness, scenarios
from tests.unit.saving.format.test_safetensors_files import write

SIZES, LARGE = [(2, 1), (2, 2)], [(4, 1), (4, 2)]
pytestmark = pytest.mark.timeout(180)


def name(size):
    return f"{size[0]}x{size[1]}"


@pytest.fixture(scope="module", params=SIZES, ids=name)
def group(request, tmp_path_factory):
    workers, devices = request.param
    with harness.Group(tmp_path_factory.mktemp("workers"), workers, devices) as made:
        assert [t["result"] for t in made.started] == [workers * devices] * workers
        yield made


def alone(group, scenario, **arguments):
    """Returns the result of a scenario with all replicas in this process."""
    count = len(group.workers) * group.devices
    strategy = unisono.distribute.MirroredStrategy([f"CPU:{i}" for i in range(count)])
    return getattr(scenarios, scenario)(strategy, 0, **arguments)


def replicas(group):
    return len(group.workers) * group.devices


def pieces(group, values):
    """Returns a list with one entry per replica, cut into one list per worker."""
    k = group.devices
    return [values[i * k : (i + 1) * k] for i in range(len(group.workers))]


@pytest.mark.feature("T02", "N06", "N07", "U01", "U02", "E04")
def test_each_worker_knows_the_group_and_its_own_devices(group):
    for i, told in enumerate(group.call("basics")):
        names = [
            f"/job:worker/replica:0/task:{i}/device:CPU:{k}"
            for k in range(group.devices)
        ]
        chief = i == 0
        assert told == [replicas(group), names, "worker", i, chief, chief, True, True]


@pytest.mark.feature("E04")
def test_replica_ids_are_global_and_results_local(group):
    kind = "PerReplica" if group.devices > 1 else "ArrayImpl"
    ids = pieces(group, list(range(replicas(group))))
    told = group.call("run_ids")
    assert told == [[kind, own, replicas(group)] for own in ids]


@pytest.mark.feature("T02")
@pytest.mark.parametrize("group", [*SIZES, *LARGE], ids=name, indirect=True)
def test_the_chiefs_initial_value_wins(group):
    from jax import random

    key = random.key_data(random.key(7)).tolist()
    for told in group.call("var_init"):
        kinds, copies, large, made_key, on_read = told
        assert kinds == ["MirroredVariable", "SyncOnReadVariable"]
        assert copies == [10.0] * group.devices
        assert (large, made_key) == ([3.0], key)
        assert on_read == [5.0] * group.devices


@pytest.mark.feature("T02")
@pytest.mark.parametrize(
    "scenario",
    ["reduce", "reduce_sparse", "reduce_sparse_to", "gather", "total_of_a_range"],
)
def test_combined_values_are_those_of_one_process(group, scenario):
    wanted = alone(group, scenario)
    assert group.call(scenario) == [wanted] * len(group.workers)


@pytest.mark.feature("T02")
def test_plain_values_are_combined_over_workers(group):
    n = len(group.workers)
    total, mean = sum(3.0 + w for w in range(n)), 3.0 + (n - 1) / 2
    for told in group.call("reduce_host"):
        if group.devices == 1:
            assert told == [["ok", total], ["ok", total], ["ok", mean]]
        else:
            assert [t[0] for t in told] == ["ValueError", "ValueError", "ok"]
            assert told[2][1] == mean


@pytest.mark.feature("T02")
@pytest.mark.parametrize("scenario", ["all_reduce", "gradients"])
def test_collectives_of_replicas_reach_all_workers(group, scenario):
    wanted, told = alone(group, scenario), group.call(scenario)
    for part in (0, 1):
        if scenario == "all_reduce":
            for k in (0, 1):
                cut = pieces(group, wanted[part][k])
                assert [t[part][k] for t in told] == cut
        else:
            cut = pieces(group, wanted[part])
            for t, own in zip(told, cut):
                assert t[part] == [pytest.approx(g, rel=1e-5) for g in own]


@pytest.mark.feature("T02")
def test_assignments_are_aggregated_over_all_workers(group):
    n = replicas(group)
    total, mean = n * (n + 1) / 2, (n + 1) / 2
    for eager, compiled in group.call("assign"):
        k = group.devices
        assert eager == [[total] * k, [mean] * k, [1.0] * k]
        assert compiled == [[2 * total] * k, [2 * mean] * k, [2.0] * k]
    assert [t[0] for t in group.call("assign_none")] == ["ValueError"] * len(
        group.workers
    )


@pytest.mark.feature("T02")
def test_copies_on_different_workers_cannot_become_different(group):
    k = group.devices
    for told in group.call("assign_cross"):
        assert told == [[0.0] * k, 0.0, "ValueError", [0.0] * k]


def test_every_kind_of_variable_is_a_number_on_every_worker(group):
    wanted = alone(group, "python_numbers")
    assert wanted[:2] == [[2.5, 2, True, "2.500", "float32"]] * 2
    assert group.call("python_numbers") == [wanted] * len(group.workers)


def test_parts_of_variables_are_those_of_one_process(group):
    *wanted, _ = alone(group, "parts_of_variables")
    told = group.call("parts_of_variables")
    assert told == [[*wanted, "ValueError"]] * len(group.workers)


@pytest.mark.feature("T02")
def test_values_kept_per_replica_are_aggregated_when_read(group):
    n = replicas(group)
    rows = pieces(group, [10.0 * (i + 1) for i in range(n)])
    for told, own in zip(group.call("on_read"), rows):
        before, after, total = told
        assert before == [own, 5.0 * n * (n + 1), (n + 1) / 2, 1.0]
        assert (after, total) == ([8.0 / n] * group.devices, 8.0)


@pytest.mark.feature("T02")
def test_a_number_counts_once_per_worker_that_has_one_replica(group):
    n, k = len(group.workers), group.devices
    for eager, compiled in group.call("python_value_sum"):
        if k == 1:
            assert eager == ["ok", [2.0 * n], [3.0]]
            assert compiled == ["ok", [4.0 * n]]
        else:
            assert eager == ["ValueError", [0.0] * k, [3.0] * k]
            assert compiled == ["ValueError", [0.0] * k]


@pytest.mark.feature("T02")
def test_values_are_made_for_local_replicas_only(group):
    n = replicas(group)
    rows = pieces(group, [[i, n] for i in range(n)])
    for told, own in zip(group.call("values_from_function"), rows):
        doubled = [[2 * a, 2 * b] for a, b in own]
        total = [n * (n - 1) // 2, n * n]
        assert told == ["PerReplica", own, doubled, doubled, total]


@pytest.mark.feature("T02")
@pytest.mark.parametrize("kind", ["even", "uneven"])
def test_functions_use_values_of_replicas_as_eager_code_does(group, kind):
    for told in group.call("values_in_functions", kind=kind):
        eager = told.pop("eager")
        assert eager[0] == "ok"
        for where, found in told.items():
            assert found == eager, where


@pytest.mark.feature("T02")
def test_functions_take_the_local_results_of_their_own_worker(group):
    n, k = replicas(group), group.devices
    numbers = pieces(group, [1.0 + i for i in range(n)])
    for told, own in zip(group.call("local_in_functions"), numbers):
        tens = [10.0 * x for x in own]
        assert told == {
            "run": own,
            "structure": [{"a": [x], "b": 3} for x in own],
            "mirrored": [7.0] * k,
            "on read": own,
            "plain": [10.0],
            "dependent": tens,
            "summed": 10.0 * n * (n + 1) / 2,
            "merged": [[x] for x in tens],
        }


@pytest.mark.feature("T02")
def test_functions_combine_what_each_worker_has_captured(group):
    workers, k = len(group.workers), group.devices
    total = 2.0 * sum(1.0 + w for w in range(workers)) * k
    mean = 1.0 + (workers - 1) / 2
    keys = map(jax.random.key, range(workers))
    drawn = sum(float(scenarios.draw(key).sum()) for key in keys) * k
    for told in group.call("captured_in_functions"):
        assert told["batch"] == [28.0] * k
        assert told["taken"] == [[x] * k for x in (28.0, 92.0, 156.0, 220.0)]
        assert told["traced"] == 1
        assert told["array"] == [total] * k
        assert told["scaled"] == [2.0 * total] * k
        assert told["drawn"] == pytest.approx([drawn] * k)
        assert told["mean"] == [mean, mean]
        assert told["number"] == told["loss"] == ["ok", mean]


@pytest.mark.feature("T02")
def test_a_merge_function_sees_local_values_and_reduces_all(group):
    n, k = replicas(group), group.devices
    kind = "PerReplica" if k > 1 else "ArrayImpl"
    for told in group.call("merge"):
        assert told[0] == kind
        assert set(told[1]) == {n * (n + 1) / 2}


@pytest.mark.feature("T02")
def test_updates_reach_every_copy_and_may_not_differ(group):
    n, k = replicas(group), group.devices
    total = n * (n + 1) / 2
    for eager, compiled, refused, after in group.call("update"):
        assert eager == [[1.0 - total, 2.0 - total]] * k
        assert compiled == after == [[1.0 - 2 * total, 2.0 - 2 * total]] * k
        assert refused == "ValueError"


@pytest.mark.feature("T02")
@pytest.mark.parametrize("group", [*SIZES, *LARGE], ids=name, indirect=True)
def test_uneven_batches_give_what_one_process_gives(group):
    wanted, told = alone(group, "uneven"), group.call("uneven")
    for w, t in enumerate(told):
        for index in (0, 2):
            own = [pieces(group, part)[w] for part in wanted[index]]
            assert t[index] == own
        assert t[1] == wanted[1]
        assert t[3:] == wanted[3:]


@pytest.mark.feature("T02")
@pytest.mark.parametrize("group", [*SIZES, *LARGE], ids=name, indirect=True)
@pytest.mark.parametrize(
    ("compiled", "accumulate"),
    [(True, 1), (False, 1), (True, 2)],
    ids=["compiled", "eager", "accumulated"],
)
def test_training_gives_the_weights_of_one_process(group, compiled, accumulate):
    arguments = {"compiled": compiled, "accumulate": accumulate, "steps": 2}
    wanted = alone(group, "train", **arguments)
    told = group.call("train", **arguments)
    assert all(t == told[0] for t in told)
    losses, a, b, mean, iterations = told[0]
    assert losses == pytest.approx(wanted[0], rel=1e-5)
    for got, want in zip([*a, *b], [*wanted[1], *wanted[2]]):
        assert got == pytest.approx(want, rel=1e-4, abs=1e-6)
    assert mean == pytest.approx(wanted[3], rel=1e-5)
    assert iterations == wanted[4]


@pytest.mark.feature("T02")
def test_variables_made_in_replicas_begin_with_the_chiefs_value(group):
    n, k = replicas(group), group.devices
    total = 1.0 + n * (n + 1) / 2
    assert group.call("created_in_run") == [[total] * k] * len(group.workers)


@pytest.mark.feature("T02")
def test_workers_at_different_points_are_told_so_and_can_go_on(group):
    n = replicas(group)
    for told, again in group.call("different_points"):
        assert told[0] == "WorkerMismatchError"
        assert "worker 0: reduce SUM" in told[1]
        assert "worker 1: reduce MEAN" in told[1]
        assert again == n * (n + 1) / 2


@pytest.mark.feature("T02")
def test_functions_outside_replicas_use_variables_of_all_workers(group):
    wanted = alone(group, "cross_program")
    assert group.call("cross_program") == [wanted] * len(group.workers)


@pytest.mark.feature("T02")
def test_threads_of_workers_agree_without_the_main_threads(group):
    n = len(group.workers)
    for w, told in enumerate(group.call("notes", rounds=20)):
        rounds, totals, alone = told
        assert rounds == [[[i, k] for i in range(n)] for k in range(20)]
        assert totals == 1
        if w == 0:
            assert alone[0] == "WorkerStalledError"
            assert "Worker 1 has not said anything about late 20" in alone[1]


def test_copies_that_differ_between_workers_are_not_saved(group, tmp_path):
    for told, has_first, has_second in group.call(
        "save_of_copies_that_differ", directory=str(tmp_path)
    ):
        assert told[0] == "WorkerMismatchError"
        assert "copies of mirrored variables differ between workers 0 and 1" in told[1]
        assert "other" in told[1]
        assert "same" not in told[1]
        assert has_first
        assert not has_second


def test_the_worker_whose_replica_made_it_names_where_a_number_is_not_finite(group):
    first, second = group.call("invalid_numbers")
    file = scenarios.__file__
    for (kind, text), line, total, copies in (first, second):
        assert kind == "FloatingPointError"
        assert text.startswith("'step' computed a number that is not finite. ")
        assert f"psum at {file}:{line + 1}" in text
        # The step changed nothing, and goes on with other numbers.
        assert (total, copies) == (3.0 * replicas(group), [2.0] * group.devices)
    (_, text), line, *_ = second
    number = replicas(group) - 1
    assert f"on replica {number} as the result of div at {file}:{line}, " in text
    assert "float32[3], at position [2], which is example 2 of 3." in text
    (_, text), *_ = first
    assert "Nothing that this worker computes before the workers exchange" in text
    assert "Either the message of another worker names" in text


def test_workers_load_the_same_tensors_or_none(group, tmp_path):
    x = np.arange(12, dtype="float32").reshape(4, 3)
    right = str(write(tmp_path / "a.safetensors", {"v": x}))
    other = str(write(tmp_path / "b.safetensors", {"v": -x}))
    missing = str(tmp_path / "c.safetensors")
    for told, copies in group.call("load_tensors", paths=[right, right]):
        assert told == ["ok", {"v": "v"}]
        assert copies == [x.tolist()] * group.devices
    for told, copies in group.call("load_tensors", paths=[right, other]):
        assert told[0] == "WorkerMismatchError"
        assert "different tensors" in told[1]
        assert "b.safetensors has the mark" in told[1]
        assert copies == np.zeros((group.devices, 4, 3)).tolist()
    (first, _), (second, _) = group.call("load_tensors", paths=[right, missing])
    assert first[0] == "WorkerFailedError" and "no file" in first[1]
    assert second[0] == "NotFoundError"
    # The workers go on together.
    assert group.call("load_tensors", paths=[other, other])[0][0][0] == "ok"
