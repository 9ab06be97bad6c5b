"""`print` has TensorFlow's format, also in a compiled step."""

import sys

import jax.numpy as jnp
import pytest

import unisono
from tests.unit.ops import everyday_programs


def test_it_gives_what_tensorflow_gives():
    everyday_programs.check(unisono, "printing")


def test_a_message_goes_where_it_is_sent(capsys):
    said = []
    unisono.print("to", jnp.asarray(1))
    unisono.print("to", jnp.asarray(2), output_stream=sys.stdout)
    unisono.print("to", jnp.asarray(3), output_stream=said.append)
    assert capsys.readouterr() == ("to 2\n", "to 1\n")
    assert said == ["to 3"]


@pytest.mark.needs_devices(2)
def test_a_compiled_step_prints_each_time_on_each_replica(capsys, caplog):
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    step = unisono.function(
        lambda x: strategy.run(lambda x: unisono.print("x:", {"v": x * 2}), (x,))
    )
    step(unisono.distribute.PerReplica((jnp.asarray(1.0), jnp.asarray(2.0))))
    step(unisono.distribute.PerReplica((jnp.asarray(3.0), jnp.asarray(4.5))))
    lines = sorted(capsys.readouterr().err.splitlines())
    assert lines == ["x: {'v': 2}", "x: {'v': 4}", "x: {'v': 6}", "x: {'v': 9}"]
