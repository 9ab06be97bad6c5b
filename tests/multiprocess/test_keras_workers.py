"""Keras on several workers: the numbers of one process with as many replicas."""

import numpy as np
import pytest

pytest.importorskip("keras")

import unisono
from tests.integration.conftest import quick_programs  # noqa: F401
from tests.multiprocess import harness, keras_scenarios

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Variables that let all workers share compiled programs."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("programs")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }


@pytest.fixture(scope="module")
def pair(tmp_path_factory, programs):
    with harness.Group(tmp_path_factory.mktemp("pair"), 2, **programs) as made:
        yield made


def alone(count, scenario, **arguments):
    """Returns the result of a scenario with replicas in this process."""
    strategy = unisono.distribute.MirroredStrategy([f"CPU:{i}" for i in range(count)])
    return getattr(keras_scenarios, scenario)(strategy, 0, **arguments)


def close(told, wanted):
    assert told.keys() == wanted.keys()
    for name in wanted:
        for one, two in zip(flat(told[name]), flat(wanted[name]), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6, err_msg=name)


def flat(value):
    if isinstance(value, dict):
        return [value[k] for k in sorted(value)]
    return value if isinstance(value, list) else [value]


@pytest.mark.feature("V01", "T02")
@pytest.mark.parametrize("how", ["arrays", "dataset"])
def test_fit_on_two_workers_gives_the_numbers_of_two_replicas(pair, how):
    # 19 examples in batches of 8: the last batch does not divide.
    wanted = alone(2, "fit", how=how)
    for told in pair.call("keras_scenarios.fit", how=how):
        close(told, wanted)
    # The chief writes progress, nobody else.
    logs = [worker.log.read_text() for worker in pair.workers]
    assert "Epoch 2/2" in logs[0]
    assert "Epoch" not in logs[1]


@pytest.mark.feature("V01", "T02")
def test_workers_with_two_devices_each_and_then_without_one_of_them(tmp_path, programs):
    wanted = alone(4, "fit")
    with harness.Group(tmp_path, 2, devices=2, TEST_TIMEOUT="10", **programs) as four:
        for told in four.call("keras_scenarios.fit"):
            close(told, wanted)
        four.send("keras_scenarios.lose_one")
        told, gone = four.collect()
    assert gone == {"gone": 3}
    assert told["error"].startswith("Worker")
    assert "orker 1" in told["message"]


def test_steps_of_replicas_on_two_workers_give_the_numbers_of_two_replicas(pair):
    wanted = alone(2, "steps_of_replicas")
    for told in pair.call("keras_scenarios.steps_of_replicas"):
        for name in wanted:
            for key in wanted[name]:
                np.testing.assert_allclose(
                    np.ravel(flat(told[name][key])),
                    np.ravel(flat(wanted[name][key])),
                    rtol=1e-5,
                    atol=1e-6,
                    err_msg=f"{name} {key}",
                )


def test_callbacks_run_on_every_worker_and_see_the_same(pair):
    first, second = pair.call("keras_scenarios.callbacks")
    assert first == second
    assert [x[0] for x in first] == [0, 1, 0]
    assert first[-1][1] == ["accuracy", "loss", "val_accuracy", "val_loss"]


# An epoch has 8 steps.
@pytest.mark.parametrize(
    ("who", "at", "how"),
    [
        ([1], ("batch", 3), "arrays"),
        ([0], ("batch", 3), "dataset"),
        ([1], ("batch", 8), "arrays"),
        ([0], ("batch", 11), "distributed"),
        ([1], ("epoch", 2), "arrays"),
        ([0], ("epoch", 1), "distributed"),
    ],
)
def test_when_one_worker_stops_all_stop_after_the_same_step(pair, who, at, how):
    first, second = pair.call("keras_scenarios.stop", who=who, at=at, how=how)
    (asker,) = (told for i, told in enumerate([first, second]) if i in who)
    assert asker.pop("seconds") < 5.0
    for told in (first, second):
        told.pop("seconds", None)
        assert told["has_stopped"]
    assert first == second
    batches = [b for kind, b in first["seen"] if kind == "batch"]
    assert first["steps"] == len(batches)
    # The epoch in which it stops ends as usual, and it is not followed by another.
    assert first["seen"][-1][0] == "epoch"
    wanted = at[1] if at[0] == "batch" else 8 * at[1]
    # Another worker may have begun further steps of the epoch when it learns of it.
    assert wanted <= len(batches) <= -(-wanted // 8) * 8
    if wanted % 8 == 0:
        assert len(batches) == wanted


def test_workers_that_all_stop_after_a_step_take_no_other(pair):
    told = pair.call("keras_scenarios.stop", who=[0, 1], at=("batch", 3))
    assert [t["steps"] for t in told] == [3, 3]
    assert pair.call("keras_scenarios.early") == [[3, 2], [3, 2]]


@pytest.mark.feature("S06")
def test_files_of_keras_and_checkpoints_on_every_worker(pair, tmp_path):
    first, second = pair.call("keras_scenarios.files", directory=str(tmp_path))
    assert first == second
    assert first[0] == [True, True, True]


@pytest.mark.feature("V01", "T02")
def test_what_a_model_gets_outside_the_scope_joins_all_workers(pair):
    wanted = alone(2, "edge")
    for told in pair.call("keras_scenarios.edge"):
        close(told, wanted)


def test_all_workers_load_the_file_that_the_chief_has_saved(pair, tmp_path):
    told = pair.call("keras_scenarios.save_for_all", directory=str(tmp_path))
    assert told == [[["model.keras"], True]] * 2


def test_files_that_are_dealt_to_workers_are_all_read_once(pair, tmp_path):
    for name, numbers in [("0", range(5)), ("1", range(10, 13))]:
        text = "".join(f"{n}\n" for n in numbers)
        (tmp_path / f"{name}.txt").write_text(text)
    told = pair.call("keras_scenarios.read_files", directory=str(tmp_path))
    assert told[0] == told[1]
    # Each worker reads its file in halves of a batch; the parts differ in size.
    steps = [[0, 1, 10, 11], [2, 3, 12], [4]]
    assert told[0][0] == [0, 1, 2]
    assert told[0][1] == [pytest.approx(-sum(np.mean(s) for s in steps))]


@pytest.mark.feature("V01", "T02")
def test_a_backup_of_two_workers_goes_on_in_one_process_and_back(pair, tmp_path):
    calm = alone(2, "backup", directory=str(tmp_path / "calm"), stop=99)
    assert calm["steps"] == 12
    shared = {"directory": str(tmp_path / "b")}
    assert pair.call("keras_scenarios.backup", stop=3, **shared) == [None, None]
    assert alone(2, "backup", stop=4, **shared) is None
    for told in pair.call("keras_scenarios.backup", **shared):
        close(told, calm)
    assert not (tmp_path / "b").exists()
