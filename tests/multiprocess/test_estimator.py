"""Estimators on several workers give the numbers of one process."""

import pathlib

import pytest

import unisono
from tests.multiprocess import estimators, harness

pytestmark = pytest.mark.timeout(180)


def alone(scenario, **arguments):
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    return getattr(estimators, scenario)(strategy, 0, **arguments)


@pytest.mark.feature("V06", "T02")
def test_workers_train_evaluate_and_predict_together(tmp_path):
    with harness.Group(tmp_path, 2) as pair:
        shared = str(tmp_path / "shared")
        wanted = alone("estimate", directory=str(tmp_path / "one"), max_steps=7)
        for told in pair.call("estimate", directory=shared, max_steps=7):
            assert told[0].keys() == {"loss", "error", "global_step"}
            for found, expected in zip(told, wanted):
                assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
        saved = {p.name for p in pathlib.Path(shared).glob("model.ckpt-*")}
        assert saved == {f"model.ckpt-{i}" for i in (0, 3, 6, 7)}
        # Another number of workers goes on; by the chief's clock, and to the end.
        wanted = alone("estimate", directory=str(tmp_path / "one"), max_steps=25)
        told = pair.call("estimate", directory=shared, max_steps=25, save_secs=0.01)
        assert told[0] == told[1]
        assert told[0][1] == pytest.approx(wanted[1], rel=1e-4, abs=1e-6)
        # Eleven batches, dealt to two.
        ends = pair.call("estimate_until_the_end", directory=str(tmp_path / "end"))
        assert ends == [5, 5]
        assert alone("estimate_until_the_end", directory=str(tmp_path / "e")) == 5


@pytest.mark.feature("V06", "T02")
def test_workers_export_one_model_together(tmp_path):
    with harness.Group(tmp_path, 2) as pair:
        told = pair.call("estimate_and_export", directory=str(tmp_path / "shared"))
    assert told[0] == told[1]
    latest, made, is_right = told[0]
    assert is_right
    exported = [tmp_path / "shared" / "export" / "latest", tmp_path / "shared" / "own"]
    for base, path in zip(exported, (latest, made), strict=True):
        assert [str(p) for p in base.iterdir()] == [path]
