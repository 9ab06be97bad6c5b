"""A strategy of one replica gives what plain JAX gives, where its device is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni
from tests import machine
from tests.parity.programs import EXECUTIONS, execute, local

STRATEGIES = {
    "default": uni.distribute.get_strategy,
    "one-device": lambda: uni.distribute.OneDeviceStrategy(machine.another()),
    "mirrored": lambda: uni.distribute.MirroredStrategy([machine.another()]),
    "sharded": lambda: uni.distribute.MirroredStrategy(
        [machine.another()], state="sharded", shard_above=1
    ),
    "central": lambda: uni.distribute.experimental.CentralStorageStrategy(
        [machine.name(0)], machine.name(0)
    ),
}

NUMBERS = np.linspace(-1.0, 2.0, 12, dtype=np.float32).reshape(3, 4)

# What replicas compute, on an array of 3 x 4 numbers.
COMPUTATIONS = {
    "elements": lambda x: jnp.tanh(x) * 2 + jnp.where(x > 0, x, -x),
    "matrix product": lambda x: x @ x.T,
    "matrix product in bfloat16": lambda x: x.astype(jnp.bfloat16) @ x[0],
    "convolution": lambda x: jnp.convolve(x[0], x[1]),
    "einsum": lambda x: jnp.einsum("ij,kj,kl->il", x, x, x),
    "sort and top": lambda x: (jnp.sort(x, axis=1), jax.lax.top_k(x, 2)),
    "running sum": lambda x: jnp.cumsum(x, axis=0),
    "reductions": lambda x: {"sum": x.sum(), "max": x.max(0), "mean": x.mean(1)},
    "indexing": lambda x: x.at[jnp.array([0, 2]), 1].add(x[1, 2]),
    "integers": lambda x: jnp.bitwise_xor((x * 9).astype(jnp.int32), 5),
    "loop": lambda x: jax.lax.fori_loop(0, 4, lambda i, y: y * 0.5 + i, x),
    "scan": lambda x: jax.lax.scan(lambda c, y: (c + y, c * y), x[0], x),
    "branch": lambda x: jax.lax.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1),
    "random numbers": lambda x: x + jax.random.normal(jax.random.key(3), x.shape),
    "gradient": lambda x: jax.value_and_grad(lambda y: jnp.sum(jnp.sin(y) ** 2))(x),
    "softmax": lambda x: jax.nn.log_softmax(x, axis=-1),
    "vmap": lambda x: jax.vmap(lambda r: jnp.outer(r, r))(x),
    "cholesky": lambda x: jnp.linalg.cholesky(x @ x.T + 9 * jnp.eye(3)),
    "fourier": lambda x: jnp.abs(jnp.fft.rfft(x, axis=1)),
}


def shortly(cases):
    """Marks all cases but the first: on CPUs, tests of several replicas prove them."""
    first, *others = cases
    return [first, *(pytest.param(c, marks=pytest.mark.accelerator) for c in others)]


@pytest.fixture(params=STRATEGIES)
def s(request):
    return STRATEGIES[request.param]()


@pytest.mark.feature("D01", "T01")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("name", shortly(COMPUTATIONS))
def test_a_run_gives_jax_s_numbers_on_the_strategy_s_device(name, how, s):
    compute = COMPUTATIONS[name]
    wanted = jax.tree.leaves(compute(jnp.asarray(NUMBERS)))
    found = jax.tree.leaves(execute(how, s, compute, (jnp.asarray(NUMBERS),)))
    assert len(found) == len(wanted)
    # A GPU rounds bfloat16 elsewhere in a program than step by step.
    rtol = 1e-2 if "bfloat16" in name else 2e-5
    for a, b in zip(found, wanted):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.devices() <= set(machine.local_devices())
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=1e-6)


def _counting():
    v = uni.Variable(1.0, aggregation=uni.VariableAggregation.SUM)
    return v, lambda: v.assign_add(2.0), 3.0


def _assigning():
    v = uni.Variable(jnp.zeros((2, 3)), aggregation=uni.VariableAggregation.MEAN)
    return v, lambda: v.assign(jnp.full((2, 3), 4.0)), np.full((2, 3), 4)


def _reading():
    v = uni.Variable([1.0, 2.0])
    return v, lambda: jnp.sum(v * v), 5.0


def _on_read():
    on_read = uni.VariableSynchronization.ON_READ
    v = uni.Variable(
        1.0, synchronization=on_read, aggregation=uni.VariableAggregation.SUM
    )
    return v, lambda: v.assign_add(3.0), 4.0


def _gradient():
    v = uni.Variable([1.0, 3.0])
    return v, lambda: uni.grad(lambda: jnp.sum(v**3), v)(), [3.0, 27.0]


def _reducing():
    v = uni.Variable(2.0)
    context = uni.distribute.get_replica_context
    return v, lambda: context().all_reduce("SUM", v * 3.0), 6.0


def _gathering():
    v = uni.Variable([2.0, 5.0])
    context = uni.distribute.get_replica_context
    return v, lambda: context().all_gather(v + 1.0, axis=0), [3.0, 6.0]


def _merging():
    v = uni.Variable(2.0)

    def merge(strategy, x):
        return strategy.extended.reduce_to("MEAN", x, v)

    context = uni.distribute.get_replica_context
    return v, lambda: context().merge_call(merge, (v * 2.0,)), 4.0


STATEFUL = (
    _merging,
    _counting,
    _assigning,
    _reading,
    _on_read,
    _gradient,
    _reducing,
    _gathering,
)


@pytest.mark.feature("R01", "L07")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("make", shortly(STATEFUL))
def test_a_step_on_variables_gives_the_same_numbers(make, how, s):
    with s.scope():
        v, step, wanted = make()
    (found,) = local(s, execute(how, s, step))
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-6)
    assert jnp.asarray(v).devices() <= set(machine.local_devices())


@pytest.mark.feature("V04", "V08")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("name", shortly(["sgd", "adam", "lamb"]))
def test_training_gives_optax_s_numbers(name, how, s):
    optax = pytest.importorskip("optax")
    tx = getattr(optax, name)(0.1)

    def loss(w, x):
        return jnp.mean((x @ w - 1.0) ** 2)

    wanted = jnp.ones(4)
    state = tx.init(wanted)
    for _ in range(3):
        updates, state = tx.update(jax.grad(loss)(wanted, NUMBERS), state, wanted)
        wanted = optax.apply_updates(wanted, updates)

    with s.scope():
        w = uni.Variable(jnp.ones(4), aggregation=uni.VariableAggregation.MEAN)
        optimizer = uni.optimizers.Optimizer(tx, [w])

    def step(x):
        optimizer.apply_gradients([(uni.grad(lambda: loss(w.value(), x), w)(), w)])

    for _ in range(3):
        execute(how, s, step, (jnp.asarray(NUMBERS),))
    np.testing.assert_allclose(np.asarray(w), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.feature("H02", "S04")
def test_batches_reach_the_device_and_a_checkpoint_brings_them_back(s, tmp_path):
    data = uni.data.Dataset.range(10).map(lambda i: i / 2).batch(4)
    with s.scope():
        total = uni.Variable(0.0, aggregation=uni.VariableAggregation.SUM)
    checkpoint = uni.train.Checkpoint(total=total)

    @uni.function
    def step(batch):
        s.run(lambda x: total.assign_add(jnp.sum(x)), args=(batch,))

    for batch in s.experimental_distribute_dataset(data):
        step(batch)
    assert jnp.asarray(total).devices() <= set(machine.local_devices())
    path = checkpoint.save(tmp_path / "c")
    assert float(total.numpy()) == 22.5
    total.assign(0.0)
    checkpoint.restore(path).assert_consumed()
    assert float(total.numpy()) == 22.5
