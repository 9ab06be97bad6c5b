"""Functions of a program are called with the arguments that they take."""

import pytest

import unisono as uni
from tests.unit.estimator.models import (
    data,
    make,
    model_fn,
)

E = uni.estimator


def test_functions_with_other_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="must include features"):
        E.Estimator(lambda x: x)
    with pytest.raises(ValueError, match="does not include params"):
        E.Estimator(lambda features: 0, params={"a": 1})
    with pytest.raises(ValueError, match="not expected args"):
        E.Estimator(lambda features, colour: 0)
    with pytest.raises(ValueError, match="different values"):
        E.Estimator(model_fn, "a", E.RunConfig(model_dir="b"))
    unlabelled = make(tmp_path, None, lambda features, mode: None)
    with pytest.raises(ValueError, match="does not take labels"):
        unlabelled.train(data(8))
    silent = make(tmp_path, None, lambda features, labels: None)
    with pytest.raises(ValueError, match="should return an EstimatorSpec"):
        silent.train(data(8))
