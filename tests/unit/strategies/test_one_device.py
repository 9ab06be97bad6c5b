"""One replica on one device, whose values are not wrapped."""

import jax.numpy as jnp

import unisono as uni
from tests import machine


def test_arguments_results_and_new_arrays_are_on_the_device():
    strategy = uni.distribute.OneDeviceStrategy(machine.another())
    seen = []

    def step(x):
        seen.append(jnp.ones(1).device)
        return x + 1

    found = strategy.run(step, args=(jnp.arange(2),))
    (device,) = found.devices()
    assert seen == [device]
    with strategy.scope():
        weight = uni.Variable(1.0)
    assert weight.value().devices() == {device}
    assert strategy.extended.worker_devices == strategy.extended.parameter_devices


def test_what_one_replica_returns_is_what_the_caller_gets():
    strategy = uni.distribute.OneDeviceStrategy(machine.name(0))
    made = object()
    assert strategy.run(lambda: made) is made
    assert strategy.reduce("SUM", made, axis=None) is made
    assert strategy.gather(made, axis=0) is made
    assert strategy.experimental_local_results(made) == (made,)
    assert strategy.extended.value_container(made) is made
