"""Gradient tapes follow Flax NNX variables that were made outside every scope."""

import concurrent.futures

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf

nnx = pytest.importorskip("flax.nnx")

X = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(4, 3)


class Model(nnx.Module):
    def __init__(self):
        self.linear = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
        self.norm = nnx.BatchNorm(2, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.norm(self.linear(x))


@pytest.mark.parametrize("how", ["plain", "nnx.jit"])
def test_gradients_are_those_of_flax_and_state_carries_none(how):
    model, other = Model(), Model()
    call = (lambda m, x: m(x)) if how == "plain" else nnx.jit(lambda m, x: m(x))
    expected = nnx.grad(lambda m: jnp.sum(m(X) ** 3))(other)
    with tf.GradientTape() as tape:
        loss = jnp.sum(call(model, X) ** 3)
    sources = [model.linear.kernel, model.norm.scale, model.norm.mean]
    kernel, scale, mean = tape.gradient(loss, sources)
    assert np.allclose(kernel, expected["linear"]["kernel"][...], atol=1e-5)
    assert np.allclose(scale, expected["norm"]["scale"][...], atol=1e-5)
    assert mean is None
    value = model.norm.mean.get_raw_value()
    assert not isinstance(value, jax.core.Tracer)
    assert np.allclose(value, other.norm.mean[...], atol=1e-6)
    assert any(v is model.linear.kernel for v in tape.watched_variables())


def test_a_variable_can_be_watched():
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(model.bias)
        loss = jnp.sum(model(X))
    kernel, bias = tape.gradient(loss, [model.kernel, model.bias])
    assert kernel is None and bias.tolist() == [4.0, 4.0]


def changed(before, owners):
    return {
        f"{owner.__name__}.{name}"
        for owner, old in zip(owners, before, strict=True)
        for name in old.keys() | vars(owner).keys()
        if old.get(name) is not vars(owner).get(name)
    }


def test_a_tape_replaces_two_attributes_and_gives_them_back_after_an_error():
    from flax.nnx import tracers

    owners = [
        nnx.Variable, type(nnx.Variable), tracers, nnx.graphlib, nnx.Optimizer,
        nnx.RngStream, nnx.metrics.Welford, nnx.Module,
    ]  # fmt: skip
    with tf.GradientTape():
        pass  # The integration is loaded.
    before = [dict(vars(owner)) for owner in owners]
    with pytest.raises(KeyError), tf.GradientTape():
        inside = changed(before, owners)
        raise KeyError
    assert inside == {"Variable._raw_value", "flax.nnx.tracers.current_jax_trace"}
    assert not changed(before, owners)
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        assert len(changed(before, owners)) == 7
    assert not changed(before, owners)


def test_a_tape_does_not_follow_what_another_thread_reads():
    v, w = nnx.Param(jnp.ones(2)), nnx.Param(jnp.ones(2))
    array = v.get_raw_value()
    with concurrent.futures.ThreadPoolExecutor(1) as pool, tf.GradientTape() as tape:
        assert pool.submit(v.get_raw_value).result(30) is array
        y = jnp.sum(w[...] * 2)
    assert [x is w for x in tape.watched_variables()] == [True]
    assert tape.gradient(y, w).tolist() == [2.0, 2.0]
