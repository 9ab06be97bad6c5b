import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni
from tests import machine
from unisono.testing.pytest_plugin import check_parity as check_parity


def test_the_fixture_fails_a_test_over_a_difference_and_returns_the_report(
    check_parity,
):
    s = uni.distribute.MirroredStrategy(machine.names(2))

    def step(op):
        return uni.function(lambda x: s.reduce("SUM", s.run(op, args=(x,)), axis=None))

    batches = [np.arange(8.0, dtype="f")]
    assert check_parity(step(jnp.sum), batches, (1, 2), strategy=s).replicas == (2,)
    with pytest.raises(pytest.fail.Exception, match="times-n"):
        check_parity(step(jnp.mean), batches, (1, 2), strategy=s)
