"""State that is split over the devices of several workers."""

import json

import numpy as np
import pytest

import unisono
from tests.multiprocess import (
    flax_scenarios,
    harness,
    keras_scenarios,
    sharded_scenarios,
)

pytestmark = pytest.mark.timeout(180)

OPTIONS = {"state": "sharded", "shard_above": 32}


def start(directory, workers=2, devices=1, **options):
    given = json.dumps({**OPTIONS, **options})
    return harness.Group(directory, workers, devices, TEST_OPTIONS=given)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two workers with a device each, which have half of each large variable."""
    with start(tmp_path_factory.mktemp("pair")) as group:
        yield group


def alone(count=2):
    """Returns as many replicas in this process, with whole variables."""
    names = [f"CPU:{i}" for i in range(count)]
    return unisono.distribute.MirroredStrategy(names)


@pytest.mark.feature("K10")
def test_workers_train_with_the_numbers_of_whole_state(pair):
    losses, values = sharded_scenarios.train_in_parts(alone(), 0)
    for told in pair.call("sharded_scenarios.train_in_parts"):
        np.testing.assert_allclose(told[0], losses, rtol=1e-6)
        for found, wanted in zip(told[1], values, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_first_value_is_that_of_worker_0_however_it_is_given(pair):
    values, total, _ = sharded_scenarios.first_values(alone(), 0)
    for told in pair.call("sharded_scenarios.first_values"):
        assert told[0] == values
        assert told[1] == total
        assert all("parts=2" in split for split in told[2])


def test_workers_change_variables_in_parts_as_whole_ones(pair):
    wanted = sharded_scenarios.changes(alone(), 0)
    for told in pair.call("sharded_scenarios.changes"):
        assert len(told) == len(wanted)
        for found, value in zip(told, wanted, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-6)


def test_one_worker_may_look_at_a_variable_without_the_others(pair):
    (first, whole), (_, other) = pair.call("sharded_scenarios.looks_by_one_worker")
    shown, text, formatted, shapes, part, shape, table = first
    assert "part 0 of 2 along axis 0" in shown
    assert shown == text == formatted
    assert (shapes, shape) == ([[4, 6]], [8, 6])
    assert part == whole[:4]
    assert "axis 0, 2 parts" in table
    assert whole == other == sharded_scenarios.table().tolist()


def test_values_that_differ_between_workers_change_nothing(pair):
    for (kind, message), value in pair.call("sharded_scenarios.different_values"):
        assert kind == "ValueError"
        assert "'v'" in message
        assert value == sharded_scenarios.table().tolist()


@pytest.mark.parametrize("how", ["step", "other"])
def test_a_whole_value_that_one_worker_reads_alone_is_an_error_on_all(tmp_path, how):
    with start(tmp_path) as group:
        told = group.call("sharded_scenarios.read_alone", how=how)
    for kind, message in told:
        assert kind == "WorkerMismatchError"
        assert "worker 0" in message


def test_workers_have_uneven_numbers_of_devices(tmp_path):
    wanted = sharded_scenarios.changes(alone(3), 0, is_even=False)
    losses, _ = sharded_scenarios.train_in_parts(alone(3), 0)
    with start(tmp_path, devices=[1, 2]) as group:
        changed = group.call("sharded_scenarios.changes", is_even=False)
        trained = group.call("sharded_scenarios.train_in_parts")
    for told, (found, _) in zip(changed, trained, strict=True):
        for value, right in zip(told, wanted, strict=True):
            np.testing.assert_allclose(value, right, rtol=1e-6)
        np.testing.assert_allclose(found, losses, rtol=1e-6)


def test_keras_and_flax_models_are_trained_in_parts(pair):
    wanted = keras_scenarios.fit_in_parts(alone(), 0)
    for told in pair.call("keras_scenarios.fit_in_parts"):
        assert told.pop("shown") == 1  # One worker may look at a variable of Keras.
        assert told.keys() < wanted.keys()
        for name, value in told.pop("history").items():
            np.testing.assert_allclose(value, wanted["history"][name], rtol=1e-5)
        for name, values in told.items():
            for found, right in zip(values, wanted[name], strict=True):
                np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)
    losses, kernels, _ = flax_scenarios.train_in_parts(alone(), 0)
    for i, told in enumerate(pair.call("flax_scenarios.train_in_parts")):
        np.testing.assert_allclose(told[0], losses, rtol=1e-5)
        for found, right in zip(told[1], kernels, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)
        assert ("part 0 of 2 along axis 1" in told[2]) == (i == 0)


@pytest.fixture(scope="module")
def saved(pair, tmp_path_factory):
    """A checkpoint of two workers, and the losses of the steps after it."""
    directory = tmp_path_factory.mktemp("saved")
    told = pair.call("sharded_scenarios.save_in_parts", directory=str(directory))
    assert told[0] == told[1]
    return told[0]


def test_workers_restore_what_each_of_them_has_written(pair, saved):
    path, losses = saved
    told = pair.call("sharded_scenarios.restore_in_parts", path=path)
    assert told == [[losses, 3]] * 2


def test_one_process_restores_the_parts_of_workers(saved):
    path, losses = saved
    names = ["CPU:0", "CPU:1"]
    for options in ({}, OPTIONS):
        strategy = unisono.distribute.MirroredStrategy(names, **options)
        found, epoch = sharded_scenarios.restore_in_parts(strategy, 0, path)
        np.testing.assert_allclose(found, losses, rtol=1e-6)
        assert epoch == 3


def test_workers_restore_a_checkpoint_of_whole_variables_in_parts(pair, tmp_path):
    path, losses = sharded_scenarios.save_in_parts(alone(), 0, tmp_path)
    for found, _ in pair.call("sharded_scenarios.restore_in_parts", path=path):
        np.testing.assert_allclose(found, losses, rtol=1e-6)


def test_workers_save_their_parts_in_the_background(pair, tmp_path):
    options = {"directory": str(tmp_path), "how": "async", "width": 64}
    told = pair.call("sharded_scenarios.save_in_parts", **options)
    (path, losses), _ = told
    again = pair.call("sharded_scenarios.restore_in_parts", path=path, width=64)
    assert again == [[losses, 3]] * 2


def test_a_directory_that_workers_do_not_share_is_an_error_on_all(pair, tmp_path):
    told = pair.call("sharded_scenarios.save_apart", directory=str(tmp_path))
    for (kind, message), left, then in told:
        assert kind == "SaveError"
        assert f"Worker 0 saves {tmp_path}/worker0/c" in message
        assert f"worker 1 looked for {tmp_path}/worker1/c" in message
        assert left == []  # Neither the checkpoint nor a hidden directory.
        assert then == "ok"


def test_a_manager_and_an_exported_model_have_the_parts_of_all(pair, tmp_path):
    told = pair.call("sharded_scenarios.more_saving", directory=str(tmp_path))
    value = (sharded_scenarios.table() + 3.0).tolist()
    assert told == [[value, ["ckpt-2", "ckpt-3"], 2 * 48 * 47 / 2]] * 2


def test_a_worker_that_fails_to_restore_leaves_all_as_they_were(pair, saved):
    told = pair.call("sharded_scenarios.restore_damaged", path=saved[0], victim=1)
    ((kind, message), *first), ((own, _), *second) = told
    assert (kind, own) == ("WorkerFailedError", "DataLossError")
    assert "The disk is gone." in message
    assert first[0] and second[0]


def test_within_workers_only_sums_of_parts_go_from_worker_to_worker(tmp_path):
    losses, _ = sharded_scenarios.train_in_parts(alone(4), 0)
    within, between = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
    with start(tmp_path, devices=2, shard_over="worker") as group:
        every, other = group.call("sharded_scenarios.find_groups")
        trained = group.call("sharded_scenarios.train_in_parts")
        read = group.call("sharded_scenarios.read_by_one")
    assert every == other
    by_kind = {kind: [g for k, _, g in every if k == kind] for kind, _, _ in every}
    assert by_kind["all-gather"] == by_kind["reduce-scatter"] == [within] * 2
    # Half of each of the two large gradients.
    parts = [shape.split("{")[0] for _, shape, g in every if g == between]
    assert sorted(parts) == ["f32[8,4]", "f32[8,8]"]
    for found, _ in trained:
        np.testing.assert_allclose(found, losses, rtol=1e-6)
    assert read == [48 * 47 / 2, None]
