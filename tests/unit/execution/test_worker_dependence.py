"""What could make workers differ is found in the program."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from tests import machine
from unisono._src.execution import worker_dependence
from unisono._src.machines.topology import AXIS, Topology

SPLIT, SAME = PartitionSpec(AXIS), PartitionSpec()
OWN, RATE = worker_dependence.OWN, 2


def mapped(body, in_specs, out_specs):
    mesh = Topology.of(machine.names(2)).mesh
    return jax.shard_map(
        body, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )


def find(program):
    """Returns the sources of the new value of a program of a variable, rows and a rate.

    Each worker passes a rate of its own.
    """
    closed = jax.make_jaxpr(program)(jnp.ones(3), jnp.ones((2, 3)), jnp.float32(1))
    follows = worker_dependence.Dependence()
    (found,) = follows.outputs(closed.jaxpr, [0, 0, RATE])
    return found, follows.decisive


def total(rows):
    return mapped(lambda x: jax.lax.psum(x[0], AXIS), SPLIT, SAME)(rows)


def own_row(rows):
    return mapped(lambda x: x[0], SPLIT, SAME)(rows)


def scaled_in_replicas(v, rows, rate):
    def body(x, rate):
        return jax.lax.psum(x[0], AXIS) * rate

    return v - mapped(body, (SPLIT, SAME), SAME)(rows, rate)


def scaled_before_the_sum(v, rows, rate):
    def body(x, rate):
        return jax.lax.psum(x[0] * rate, AXIS)

    return v - mapped(body, (SPLIT, SAME), SAME)(rows, rate)


def looped(v, rows, rate):
    def body(x, v):
        def turn(v, _):
            return v - jax.lax.psum(x[0] * v, AXIS), None

        return jax.lax.scan(turn, v, None, 3)[0]

    return mapped(body, (SPLIT, SAME), SAME)(rows, v)


def counted(v, rows, rate):
    return jax.lax.while_loop(lambda c: c[0] < rate, lambda c: c + 1.0, v)


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda v, rows, rate: v - total(rows), 0),
        (lambda v, rows, rate: v - rate * total(rows), RATE),
        (scaled_in_replicas, RATE),
        # The sum over the replicas is equal, whatever each has added.
        (scaled_before_the_sum, 0),
        (lambda v, rows, rate: v - own_row(rows), OWN),
        # Rows of all replicas are one array that all workers share.
        (lambda v, rows, rate: v - rows.sum(0), 0),
        (looped, 0),
        (counted, RATE),
        (lambda v, rows, rate: jnp.where(rate > 0, v, -v), RATE),
        (lambda v, rows, rate: jax.lax.cond(rate > 0, lambda: v, lambda: -v), RATE),
        (lambda v, rows, rate: jax.jit(lambda a: a * rate)(v), RATE),
        (
            lambda v, rows, rate: jax.pure_callback(
                lambda x: x, jax.ShapeDtypeStruct((3,), "float32"), v
            ),
            OWN,
        ),
    ],
)
def test_a_new_value_depends_on_what_no_collective_has_made_equal(program, expected):
    assert find(program) == (expected, 0)


@pytest.mark.needs_devices(2)
def test_what_decides_whether_replicas_communicate_is_found():
    def program(v, rows, rate):
        return jax.lax.cond(rate > 0, lambda: total(rows), lambda: v)

    assert find(program) == (RATE, RATE)
