"""`nnx.BatchNorm(axis_name="replica")` on any number of replicas and examples."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni

nnx = pytest.importorskip("flax.nnx")


def _train(norm, x):
    """Returns the gradient of the scale of a layer, by the examples of a replica."""
    fn = nnx.value_and_grad(lambda norm: jnp.sum(jnp.tanh(norm(x)) ** 2))
    return fn(norm)[1].scale[...]


def _make(**kwargs):
    norm = nnx.BatchNorm(2, momentum=0.5, rngs=nnx.Rngs(0), **kwargs)
    norm.scale[...] = jnp.array([1.0, 2.0])
    return norm


# Of five examples two replicas get three and two, and of eight replicas three get none.
@pytest.mark.parametrize("replicas", [1, 2, 8])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_batch_norm_has_the_statistics_of_the_global_batch(replicas, is_compiled):
    x = np.random.default_rng(0).normal(3, 2, size=(5, 2)).astype("float32")
    alone = _make()
    wanted = _train(alone, x)
    strategy = uni.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    with strategy.scope():
        norm = _make(axis_name="replica")

    def step(batch):
        found = strategy.run(lambda part: _train(norm, part), args=(batch,))
        return strategy.reduce("SUM", found, axis=None)

    step = uni.function(step) if is_compiled else step
    data = uni.data.Dataset.from_tensor_slices(x).batch(5)
    (gradient,) = [step(b) for b in strategy.experimental_distribute_dataset(data)]
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4)
    np.testing.assert_allclose(norm.mean[...], alone.mean[...], rtol=1e-5)
    np.testing.assert_allclose(norm.var[...], alone.var[...], rtol=1e-5)


def test_a_mask_leaves_examples_out():
    x = np.arange(10, dtype="float32").reshape(5, 2)
    strategy = uni.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        norm = _make(axis_name="replica")
    mask = np.array([[1], [1], [1], [0], [0]], bool)
    strategy.run(lambda: norm(x, mask=mask))
    np.testing.assert_allclose(norm.mean[...], x[:3].mean(0) / 2, rtol=1e-6)


def test_another_axis_is_still_an_error():
    strategy = uni.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        norm = _make(axis_name="other")
    with pytest.raises(NameError, match="other"):
        strategy.run(lambda: norm(jnp.ones((3, 2))))
