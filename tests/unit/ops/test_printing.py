"""`print` has TensorFlow's format, also in a compiled step."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
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


def test_a_step_on_one_device_prints_in_order_and_once(capsys, monkeypatch):
    # The suite has more devices, and this program uses one.
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    made = []

    @unisono.function
    def step(x):
        if not made:
            made.append(unisono.Variable(1.0))
        unisono.print("first", x)
        unisono.while_loop(
            lambda i: i < 2, lambda i: (unisono.print("loop", i), i + 1)[1], [0]
        )
        unisono.print("then", made[0].assign_add(x))
        unisono.print("last")

    step(jnp.asarray(1.0))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["first 1", "loop 0", "loop 1", "then 2", "last"]


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


def test_arrays_and_text_of_the_host_are_printed_as_others(capsys):
    element = next(iter(unisono.data.Dataset.from_tensor_slices({"x": [[1.5, 2]]})))
    words = unisono.constant(["a", 'b"'])
    unisono.print(element, words, unisono.constant("c"), np.int64(3))
    assert capsys.readouterr().err == '{\'x\': [1.5 2]} ["a" "b\\""] "c" 3\n'


@pytest.mark.parametrize("returned", [None, 3, "argument"])
def test_each_replica_prints_also_without_results(returned, capfd):
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def replica(x):
        unisono.print("hello")
        return x if returned == "argument" else returned

    unisono.function(lambda x: strategy.run(replica, args=(x,)))(jnp.ones(1))
    assert capfd.readouterr().err.count("hello\n") == 2
