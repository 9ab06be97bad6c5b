"""Programs with statements on tensors give the numbers that TensorFlow has given."""

import json

import numpy as np
import pytest

import unisono
from tests.unit.autograph import programs, record

RECORDED = json.loads(record.PATH.read_text())["programs"]


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_a_program_gives_the_numbers_of_tensorflow(name):
    found = programs.PROGRAMS[name](unisono)
    assert len(found) == len(RECORDED[name])
    for mine, wanted in zip(found, RECORDED[name], strict=True):
        np.testing.assert_allclose(np.asarray(mine), wanted, rtol=1e-6)
