"""Losses that are right however the batch is cut."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.parity.programs import EXECUTIONS, execute, mirrored, per_replica, plain

average = unisono.nn.compute_average_loss
scale = unisono.nn.scale_regularization_loss


@pytest.mark.feature("V08")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_average_losses_add_up_to_the_mean_of_the_global_batch(how, n):
    s = mirrored(n)
    losses = np.arange(n + 3, dtype=np.float32)
    size = -(-len(losses) // n)
    parts = [losses[i * size : (i + 1) * size] for i in range(n)]
    total = s.reduce(
        "SUM",
        execute(
            how,
            s,
            lambda x: average(x, global_batch_size=len(losses)) + scale(jnp.ones(2)),
            args=(per_replica(s, *parts),),
        ),
        axis=None,
    )
    assert plain(total) == pytest.approx(losses.mean() + 2.0)


def test_the_global_batch_is_taken_for_even_by_default():
    s = mirrored(2)
    assert plain(average([1.0, 2.0, 3.0])) == 2.0
    parts = s.run(lambda: average(jnp.asarray([1.0, 3.0])))
    assert plain(s.reduce("SUM", parts, None)) == 2.0
    assert plain(average(3.0)) == 3.0


def test_losses_may_be_weighted():
    weighted = average([1.0, 2.0], sample_weight=[3.0, 0.5], global_batch_size=2)
    assert plain(weighted) == 2.0
    by_row = average(
        jnp.ones([2, 2]), sample_weight=jnp.asarray([1.0, 3.0]), global_batch_size=4
    )
    assert plain(by_row) == 2.0


@pytest.mark.parametrize("wrong", [0, -1, 2.0, np.asarray([2]), [2], "2"], ids=repr)
def test_the_size_of_the_global_batch_is_checked(wrong):
    with pytest.raises(ValueError, match="global_batch_size"):
        average([1.0], global_batch_size=wrong)


def test_the_size_of_the_global_batch_may_be_an_array():
    assert plain(average([1.0], global_batch_size=jnp.asarray(2))) == 0.5
    traced = unisono.function(lambda n: average([1.0], global_batch_size=n))
    assert plain(traced(jnp.asarray(4))) == 0.25


def test_across_replicas_the_number_of_examples_is_not_known():
    s = mirrored(2)
    with s.scope():
        with pytest.raises(RuntimeError, match="cross replica context"):
            average([1.0])
        assert plain(average([1.0], global_batch_size=2)) == 0.5
        with pytest.raises(RuntimeError, match="cross replica context"):
            scale(1.0)
    assert plain(scale([1.0, 2.0])) == 3.0
