"""Losses that are right however the batch is cut."""

import jax
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
    assert plain(average(jnp.zeros([0]))) == 0.0


def test_losses_may_be_weighted():
    weighted = average([1.0, 2.0], sample_weight=[3.0, 0.5], global_batch_size=2)
    assert plain(weighted) == 2.0
    by_row = average(
        jnp.ones([2, 2]), sample_weight=jnp.asarray([1.0, 3.0]), global_batch_size=4
    )
    assert plain(by_row) == 2.0


SHAPES = [
    # losses, weights, their average with a global batch of 2, as TensorFlow 2.21 has it
    ([1.0, 2.0, 3.0], [[1.0], [0.0], [1.0]], 2.0),
    ([[1.0, 2.0], [3.0, 4.0]], [[[1.0]], [[0.0]]], 1.5),
    ([[1.0, 2.0], [3.0, 4.0]], [1.0, 0.0], 1.5),
    (np.ones([2, 3, 4]), [1.0, 0.0, 1.0, 1.0], 9.0),
    ([1.0, 2.0], np.ones([2, 1, 1]), 3.0),
    ([1.0, 2.0], 2.0, 3.0),
    ([1, 3], [0.5, 0.5], 0.5),
    ([1.0, 2.0], [[1.0, 2.0]], "Can not squeeze dim.1., expected a dimension of 1"),
    ([[1.0, 2.0]] * 2, [1.0, 0.0, 1.0], "Incompatible shapes: .2, 2. vs. .3, 1."),
    (np.ones([2, 3, 4]), [1.0, 0.0], "Incompatible shapes: .2, 3, 4. vs. .2."),
    (2.0, [1.0], "Expected a tensor with at least rank 1"),
]


@pytest.mark.parametrize("losses, weights, expected", SHAPES)
def test_weights_get_the_rank_of_the_losses(losses, weights, expected):
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            average(losses, sample_weight=weights, global_batch_size=2)
    else:
        found = average(losses, sample_weight=weights, global_batch_size=2)
        assert plain(found) == expected


SIZES = [
    (-1, unisono.errors.InvalidArgumentError, "non-negative; received -1"),
    (2.0, TypeError, "an integer; received 2.0"),
    (True, TypeError, "an integer"),
    ("2", TypeError, "an integer"),
    (np.asarray([2]), ValueError, "scalar"),
    ([2], ValueError, "scalar"),
]


@pytest.mark.parametrize("wrong, error, words", SIZES, ids=repr)
def test_the_size_of_the_global_batch_is_checked(wrong, error, words):
    with pytest.raises(error, match="global_batch_size must be " + words):
        average([1.0], global_batch_size=wrong)


def test_a_global_batch_of_no_examples_has_the_loss_zero_and_no_gradient():
    assert plain(average([1.0], global_batch_size=0)) == 0.0
    traced = jax.value_and_grad(lambda x, n: average(x, global_batch_size=n))
    loss, gradient = jax.jit(traced)(jnp.ones(2), jnp.asarray(0))
    assert plain(loss) == 0.0
    np.testing.assert_array_equal(gradient, [0.0, 0.0])


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
