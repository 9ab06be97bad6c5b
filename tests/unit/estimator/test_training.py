"""`train_and_evaluate`: checkpoints are evaluated and exported."""

import dataclasses
import os

import numpy as np
import pytest

import unisono as uni
from tests.unit.estimator.models import (
    X,
    data,
    four_batches,
    killed_at,
    make,
    make_small,
    mirrored,
)

E = uni.estimator


def test_train_and_evaluate_evaluates_checkpoints_and_exports(tmp_path):
    evaluated = []

    class Hook(E.SessionRunHook):
        def begin(self):
            evaluated.append("begin")

    receiver = E.export.build_raw_serving_input_receiver_fn({"x": X})
    exporters = [
        E.LatestExporter("latest", receiver, 2),
        E.FinalExporter("final", receiver),
    ]
    estimator = make(tmp_path, mirrored(2), save_checkpoints_steps=4)
    train = E.TrainSpec(data(4), max_steps=10)
    evaluation = E.EvalSpec(
        data(4, repeat=False),
        steps=None,
        hooks=[Hook()],
        exporters=exporters,
        start_delay_secs=0,
        throttle_secs=0,
    )
    result, exports = E.train_and_evaluate(estimator, train, evaluation)
    assert result["global_step"] == 10
    assert len(evaluated) == 3  # After steps 4, 8 and 10.
    assert len(os.listdir(tmp_path / "export" / "latest")) == 2
    loaded = uni.saved_model.load(exports[1])
    found = loaded.signatures["serving_default"]({"x": X})
    wanted = [p["y"] for p in estimator.predict(data(48, repeat=False))]
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-5, atol=1e-6)
    # Throttled: only at the end.
    del evaluated[:]
    throttled = dataclasses.replace(evaluation, throttle_secs=600, start_delay_secs=600)
    E.train_and_evaluate(estimator, E.TrainSpec(data(4), max_steps=20), throttled)
    assert len(evaluated) == 1


class Recorder(E.Exporter):
    """Remembers for which step it was called, and whether for the last time."""

    name = "recorder"

    def __init__(self):
        self.told = []

    def export(
        self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export
    ):
        assert checkpoint_path.endswith(f"-{eval_result['global_step']}")
        self.told.append((int(eval_result["global_step"]), is_the_final_export))


class Count(E.SessionRunHook):
    def __init__(self):
        self.count = 0

    def end(self, session):
        self.count += 1


def train_and_evaluate(estimator, input_fn, max_steps=None, throttle_secs=0):
    """Returns for which steps there were exports, and how many evaluations."""
    recorder, count = Recorder(), Count()
    evaluation = E.EvalSpec(
        four_batches,
        hooks=[count],
        exporters=recorder,
        start_delay_secs=0,
        throttle_secs=throttle_secs,
    )
    train = E.TrainSpec(input_fn, max_steps=max_steps)
    E.train_and_evaluate(estimator, train, evaluation)
    return recorder.told, count.count


@pytest.mark.feature("V06")
def test_every_checkpoint_is_evaluated_once_also_of_a_training_that_goes_on(tmp_path):
    def endless():
        return four_batches().repeat()

    estimator = make_small(tmp_path, save_checkpoints_steps=2)
    found = train_and_evaluate(estimator, endless, 6)
    assert found == ([(2, False), (4, False), (6, True)], 3)
    found = train_and_evaluate(estimator, endless, 12)
    assert found == ([(8, False), (10, False), (12, True)], 3)
    # Nothing is left to train.
    assert train_and_evaluate(estimator, endless, 12) == ([(12, True)], 1)


def test_a_training_that_its_data_ends_is_exported_for_the_last_time_once(tmp_path):
    estimator = make_small(tmp_path, save_checkpoints_steps=2)
    # That step 4 is the last was not known when it was saved first.
    found = train_and_evaluate(estimator, four_batches)
    assert found == ([(2, False), (4, False), (4, True)], 2)
    found = train_and_evaluate(estimator, four_batches, throttle_secs=600)
    assert found == ([(6, False), (8, True)], 2)
    # Killed when all was done: the first call only finishes that.
    killed_at(tmp_path / "killed", 4)
    estimator = make_small(tmp_path / "killed", save_checkpoints_steps=2)
    assert train_and_evaluate(estimator, four_batches) == ([(4, True)], 1)
