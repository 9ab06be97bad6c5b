"""Replicas of several logical devices, on several workers."""

import numpy as np
import pytest

import unisono
from tests.multiprocess import harness, scenarios

pytestmark = pytest.mark.timeout(180)


@pytest.mark.feature("T03", "K10")
def test_workers_train_with_replicas_of_two_logical_devices(tmp_path):
    alone = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    wanted = scenarios.logical_devices(alone, 0)
    with harness.Group(tmp_path, workers=2, devices=2) as group:
        told = group.call("logical_devices")
    for losses, variable, count in told:
        np.testing.assert_allclose(losses, wanted[0], rtol=1e-5)
        np.testing.assert_allclose(variable, wanted[1], rtol=1e-5)
        assert count == wanted[2] == 9.0
