"""Workers save and restore together; nobody is left waiting for one who does not."""

import pathlib

import pytest

import unisono
from tests.multiprocess import harness, saving

pytestmark = pytest.mark.timeout(180)


def mirrored(count):
    return unisono.distribute.MirroredStrategy([f"CPU:{i}" for i in range(count)])


def alone(count, scenario, **arguments):
    """Returns the result of a scenario with replicas in this process."""
    return getattr(saving, scenario)(mirrored(count), 0, **arguments)


def close(told, wanted):
    assert told.keys() == wanted.keys()
    for key, value in wanted.items():
        assert told[key] == pytest.approx(value, rel=1e-5, abs=1e-6), key


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with harness.Group(tmp_path_factory.mktemp("pair"), 2, TEST_TIMEOUT="6") as made:
        yield made


@pytest.mark.feature("S01", "S02", "T02")
def test_what_workers_save_is_restored_on_any_number_of_them(pair, tmp_path):
    wanted = alone(2, "train_and_save", directory=str(tmp_path / "calm"), steps=6)[-1]
    shared = str(tmp_path / "shared")
    first = pair.call("train_and_save", directory=shared, steps=2, how="async")
    for found, saved, names, seen in first:
        assert (found, saved, names) == (None, f"{shared}/ckpt-1", ["ckpt-1"])
        assert seen == first[0][-1]
    # On one process with two replicas, on one with four, and on two workers again.
    found, saved, _, _ = alone(2, "train_and_save", directory=shared, steps=1)
    assert (found, saved) == (f"{shared}/ckpt-1", f"{shared}/ckpt-2")
    with harness.Group(tmp_path, 2, devices=2) as four:
        for found, _, _, _ in four.call("train_and_save", directory=shared, steps=1):
            assert found == f"{shared}/ckpt-2"
        alone(4, "train_and_save", directory=shared, steps=1)
    last = pair.call("train_and_save", directory=shared, steps=1)
    for found, saved, names, seen in last:
        assert (found, saved) == (f"{shared}/ckpt-4", f"{shared}/ckpt-5")
        assert names == ["ckpt-4", "ckpt-5"]
        close(seen, wanted)


def test_workers_save_in_the_background_and_keep_the_newest(pair, tmp_path):
    told = pair.call("save_often", directory=str(tmp_path))
    assert told == [["ckpt-3", "ckpt-4"]] * 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ckpt-3", "ckpt-4"]


@pytest.mark.parametrize("how", ["function", "files"])
def test_positions_of_each_worker_are_restored_to_it(pair, tmp_path, how):
    for i in range(4):
        lines = "".join(f"{i}-{k}\n" for k in range(30))
        (tmp_path / f"{i}.txt").write_text(lines)
    arguments = {"directory": str(tmp_path), "how": how}
    saved = pair.call("positions", **arguments)
    assert saved[0] != saved[1]
    assert pair.call("positions", restore=True, **arguments) == saved
    with pytest.raises(ValueError, match="saved by 2 workers, each of which had"):
        alone(2, "positions", restore=True, **arguments)


def test_workers_may_each_have_a_directory_and_the_chiefs_is_kept(pair, tmp_path):
    told = pair.call("save_to_own_directories", directory=str(tmp_path))
    assert told == [[2.0, ["ckpt-2"]]] * 2


def test_a_checkpoint_that_not_all_workers_see_is_restored_by_none(pair, tmp_path):
    for w, told in enumerate(
        pair.call("restore_from_own_directories", directory=str(tmp_path))
    ):
        missing, nothing, latest, fine = told
        assert missing[0] == ("NotFoundError" if w else "WorkerFailedError")
        assert "not-here-1" in missing[1]
        assert nothing[0] == "WorkerMismatchError"
        assert "worker 1: nothing" in nothing[1]
        assert latest[0] == ("NotFoundError" if w else "WorkerFailedError")
        assert fine == ["ok", "fine"]


def test_workers_that_save_different_objects_are_told_which(pair, tmp_path):
    path = str(tmp_path / "c")
    for told, is_there in pair.call("save_different_objects", path=path):
        assert told[0] == "WorkerMismatchError"
        assert "worker 1 alone has extra/" in told[1]
        assert not is_there


def test_what_the_chief_cannot_write_fails_on_all(pair, tmp_path):
    path = tmp_path / "c"
    for number in (1, 2):
        pathlib.Path(f"{path}-{number}").write_text("in the way")
    for sync, background, count in pair.call("save_where_it_cannot", path=str(path)):
        for told in (sync, background):
            assert told[0] == "SaveError"
            assert "something else under this name" in told[1]
        assert count == 1


@pytest.mark.parametrize(
    ("what", "error", "says"),
    [
        ("steps", "WorkerMismatchError", "a save of a checkpoint"),
        ("restores", "WorkerMismatchError", "a restore of a checkpoint"),
        ("sleeps", "WorkerStalledError", "Worker 1 lives, but is still at step"),
    ],
)
def test_a_save_that_only_some_call_is_an_error_on_all(tmp_path, what, error, says):
    path = str(tmp_path / "c")
    with harness.Group(tmp_path, 2, TEST_TIMEOUT="3") as group:
        told = group.call("save_on_some", path=path, what=what)
    for kind, _, seconds, is_there in told:
        assert kind == error if what != "sleeps" else kind.startswith("Worker")
        assert seconds < 12.0
        assert not is_there
    assert says in told[0][1]
    assert told[0][0] == error


@pytest.mark.feature("S06", "T02")
def test_workers_export_a_model_together(pair, tmp_path):
    told = pair.call("export_models", directory=str(tmp_path))
    assert told == [[[0.0, 2.0, 4.0]] * 6] * 2
    found = sorted(p.name for p in tmp_path.iterdir())
    assert found == ["own-0", "own-1", "shared"]


# Barriers.


def test_a_barrier_lets_workers_wait_for_what_the_chief_writes(pair, tmp_path):
    told = pair.call("barrier_for_a_file", directory=str(tmp_path))
    assert told == [True, True]
    # One worker alone has nobody to wait for.
    assert mirrored(2).barrier("nobody else") is None


def test_a_barrier_names_the_worker_that_does_not_come(pair, tmp_path):
    answers = pair.call("barrier_with_a_late_worker", directory=str(tmp_path))
    (kind, message), other = answers
    assert kind == "WorkerStalledError"
    assert "barrier('late') has waited 0.5 s for worker 1" in message
    assert other == ["ok", None]


def test_a_barrier_tells_workers_that_meet_at_different_ones(pair):
    for kind, message in pair.call("barrier_of_two_names"):
        assert kind == "WorkerMismatchError"
        assert "worker 0: strategy.barrier('point 0')" in message
        assert "worker 1: strategy.barrier('point 1')" in message


def test_a_barrier_is_refused_where_it_would_be_traced(pair):
    for kind, message in pair.call("barrier_in_a_replica")[0]:
        assert kind == "RuntimeError"
        assert "Call it between the steps" in message
