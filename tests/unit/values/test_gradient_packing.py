"""Arrays that are reduced together have the totals that they have one by one."""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from unisono._src.foundation.options import ReduceOp
from unisono._src.values import gradient_packing

REPLICAS = 4
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
TYPES = st.sampled_from([np.float32, np.int32, np.float16])


def reduced(op, arrays, size):
    mesh = Mesh(np.array(jax.devices()[:REPLICAS]), ("replica",))
    split, same = PartitionSpec("replica"), PartitionSpec()

    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=split, out_specs=same, check_vma=False
    )
    def body(own):
        # Empty arrays are made here: no program of the library lets them in.
        own = [x[0] if x.size else jnp.zeros(x.shape[1:], x.dtype) for x in own]
        return gradient_packing.reduce_together(op, own, REPLICAS, size)

    return jax.jit(body)(arrays), jax.make_jaxpr(body)(arrays)


@pytest.mark.needs_devices(4)
@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(
    kinds=st.lists(st.tuples(SHAPES, TYPES), min_size=1, max_size=6),
    size=st.sampled_from([0, 1, 24, 200]),
    op=st.sampled_from(list(ReduceOp)),
)
def test_packs_give_what_arrays_give(kinds, size, op):
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(-8, 8, (REPLICAS, *shape)).astype(kind) for shape, kind in kinds
    ]
    totals, _ = reduced(op, arrays, size)
    for array, total in zip(arrays, totals, strict=True):
        wanted = jnp.sum(array, 0, dtype=array.dtype)
        if op is ReduceOp.MEAN:
            wanted = wanted / REPLICAS
        assert total.dtype == wanted.dtype
        np.testing.assert_array_equal(total, wanted)


@pytest.mark.parametrize(("size", "calls"), [(0, 2), (16, 4), (1 << 20, 2)])
def test_arrays_of_one_type_share_a_collective_up_to_a_size(size, calls):
    arrays = [
        np.ones((REPLICAS, n), kind)
        for n, kind in [(4, np.float32), (4, np.float32), (4, np.int32), (3, "f4")]
    ]
    _, program = reduced(ReduceOp.SUM, arrays, size)
    assert str(program).count("psum") == calls
