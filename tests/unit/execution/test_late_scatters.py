"""Which sums of stacked gradients a loop can do slice by slice."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from tests import machine
from unisono._src.execution import equations, late_scatters
from unisono._src.machines.topology import AXIS, Topology

pytestmark = pytest.mark.needs_devices(2)


def traced(fn):
    """The program of a replica that stacks slices, and what is said of the stack."""
    topology = Topology.of(machine.names(2))

    def body(x):
        _, stack = jax.lax.scan(lambda c, _: (c, c * 2.0), x, None, length=3)
        return fn(stack)

    mapped = jax.shard_map(
        body,
        mesh=topology.mesh,
        in_specs=PartitionSpec(),
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    (outer,) = jax.make_jaxpr(mapped)(jnp.ones((4, 6))).jaxpr.eqns
    jaxpr = equations.jaxpr_of(outer.params["jaxpr"])
    (loop,) = [e for e in jaxpr.eqns if e.primitive.name == "scan"]
    uses = late_scatters.Uses(jaxpr)
    return uses, jaxpr, uses.scatter_of(loop.outvars[-1])


def scatter(x, axis=1):
    return jax.lax.psum_scatter(x, AXIS, scatter_dimension=axis, tiled=True)


@pytest.mark.parametrize(
    ("fn", "casts"),
    [(scatter, 0), (lambda s: scatter(s.astype(jnp.bfloat16), axis=2), 1)],
)
def test_a_stack_that_only_a_sum_reads_can_be_summed_in_slices(fn, casts):
    uses, jaxpr, found = traced(fn)
    assert len(found.before) == casts
    done = [uses.is_done(e) for e in jaxpr.eqns]
    assert not any(done)
    found.is_done = True
    assert [uses.is_done(e) for e in jaxpr.eqns] == [False] + [True] * (1 + casts)


@pytest.mark.parametrize(
    "fn",
    [
        lambda s: scatter(jnp.concatenate([s, s[:1]]), axis=0),  # the axis of turns
        lambda s: (scatter(s), s),
        lambda s: scatter(s) + scatter(s * 2.0),
        lambda s: scatter(s * 2.0),
        lambda s: jax.lax.psum_scatter(s.reshape(3, 2, 12), AXIS, scatter_dimension=1),
    ],
)
def test_any_other_reader_gets_the_stack(fn):
    assert traced(fn)[2] is None
