"""Replicas meet through ports, whatever runs them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import mirrored
from unisono._src.values import jax_traces, ports


def topology():
    return mirrored(2).extended._placement.topology


def lockstep(suspend):
    return ports.LockstepPort(0, topology(), range(2), suspend, [])


def test_a_port_says_how_its_replica_is_run():
    spmd = ports.SpmdPort(topology(), ())
    assert [
        (p.is_alone, p.is_spmd)
        for p in (ports.SingleReplicaPort(), spmd, lockstep(None))
    ] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    assert (spmd.replicas, spmd.here, ports.SingleReplicaPort().replicas) == (2, 2, 1)


def test_a_program_for_all_replicas_knows_what_they_share():
    seen = []

    def outer(x):
        port = ports.SpmdPort(topology(), (jax_traces.trace_of(x),))

        def body(y):
            with jax.ensure_compile_time_eval():
                made = jnp.ones(1)
            merged = y * 2.0
            seen.append([port.is_shared(v) for v in (x, y, made, 1.0, np.ones(1))])
            port.own(made)
            port.share(merged)
            seen.append([port.is_shared(made), port.is_shared(merged)])
            seen.append([port.is_merged(x), port.is_merged(merged)])
            return y

        return jax.vmap(body)(x)

    jax.jit(outer)(jnp.ones(2))
    # What the replica has computed is its own, and so are arrays of NumPy.
    assert seen[0] == [True, False, True, True, False]
    assert seen[1:] == [[False, True], [False, True]]


def test_a_replica_meets_the_others_with_its_payload():
    asked = []

    def suspend(request):
        asked.append(request)
        return "answer"

    def combine(payloads):
        return payloads

    assert lockstep(suspend).meet(combine, [1.0, "a"]) == "answer"
    assert asked == [(combine, [1.0, "a"])]


def test_a_replica_meets_outside_the_gradient_that_it_takes():
    payloads = []

    def suspend(request):
        payloads.append(request[1])
        return request[1]

    port = lockstep(suspend)
    grad = jax.grad(lambda x: port.meet(list, {"x": x * 3.0}, list)["x"])(2.0)
    # Once for the value, once for the gradient; both are plain arrays.
    assert [type(p["x"]) for p in payloads] == [type(jnp.ones(()))] * 2
    assert [float(p["x"]) for p in payloads] == [6.0, 1.0]
    assert float(grad) == 3.0


def test_a_meeting_without_a_transpose_stops_the_gradient():
    port = lockstep(lambda request: request[1])
    assert float(jax.grad(lambda x: x * port.meet(list, x))(2.0)) == 2.0


def test_replicas_cannot_meet_in_a_body_that_jax_traces():
    port = lockstep(lambda request: request[1])
    with pytest.raises(RuntimeError, match="Move it out of that body"):
        jax.jit(lambda x: port.meet(list, x))(1.0)


def test_replicas_that_need_turns_get_them():
    plain, strategy = tf.Variable(0.0), mirrored(2)
    tf.function(lambda: strategy.run(lambda: plain.assign_add(1.0)))()
    assert float(plain.numpy()) == 2.0
