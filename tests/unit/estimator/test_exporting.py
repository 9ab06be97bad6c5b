"""Exported models: the features that they take, and the directories they go to."""

import numpy as np
import pytest

import unisono as uni
from tests.unit.estimator.models import four_batches, make_small

E = uni.estimator


def test_features_are_told_by_specs_without_the_size_of_the_batch():
    make = E.export.build_raw_serving_input_receiver_fn(
        {"x": np.zeros((8, 3), "int32")}
    )
    spec = make().features["x"]
    assert (tuple(spec.shape), spec.dtype) == ((None, 3), np.int32)
    with pytest.raises(TypeError, match="must be TensorSpecs"):
        E.export.ServingInputReceiver({"x": np.zeros((8, 3))})


def test_each_export_has_a_directory_of_its_own_and_the_newest_the_largest_number(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("unisono._src.estimator.exporting.time.time", lambda: 5.0)
    estimator = make_small(tmp_path / "model")
    estimator.train(four_batches, steps=1)
    receiver = E.export.build_raw_serving_input_receiver_fn(np.ones((2, 1), "float32"))
    made = [estimator.export_saved_model(tmp_path / "out", receiver) for _ in range(2)]
    assert [path.rpartition("/")[2] for path in made] == ["5", "6"]
    serve = uni.saved_model.load(made[1]).signatures["serving_default"]
    found = serve(np.float32([[2.0], [3.0]]))
    weight = float(estimator.get_variable_value("w"))
    np.testing.assert_allclose(found["output"], [2 * weight, 3 * weight], rtol=1e-6)
