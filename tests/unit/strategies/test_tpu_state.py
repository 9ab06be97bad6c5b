"""State that is split over the logical devices of a replica."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as tf
from tests.unit.strategies.test_tpu import BLOCKS, partitions

pytestmark = pytest.mark.needs_devices(8)

IMAGES = np.random.RandomState(1).rand(4, 8, 8, 8).astype(np.float32)
KERNELS = [
    np.random.RandomState(i).randn(3, 3, 8, 8).astype(np.float32) / 8 for i in (2, 3)
]
X = np.random.RandomState(4).rand(8, 3, 16).astype(np.float32)
START = np.random.RandomState(5).rand(8, 16).astype(np.float32)


def make(logical, replicas=None, **options):
    built = tf.tpu.experimental.DeviceAssignment.build(
        tf.tpu.experimental.initialize_tpu_system(),
        computation_shape=BLOCKS[logical],
        num_replicas=replicas or 8 // logical,
    )
    return tf.distribute.TPUStrategy(experimental_device_assignment=built, **options)


def sharded(logical, replicas=None):
    return make(logical, replicas, state="sharded", shard_above=64)


class Training:
    """A network with a norm over all gradients, trained for three steps."""

    def __init__(self, strategy):
        self.strategy = strategy
        rng = np.random.RandomState(0)
        with strategy.scope():
            self.weights = [
                tf.Variable(rng.randn(16, 32).astype(np.float32) / 4),
                tf.Variable(jnp.zeros(32)),
                tf.Variable(lambda: jax.random.normal(jax.random.key(0), (32, 8)) / 4),
            ]
            tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-2))
            self.optimizer = tf.optimizers.Optimizer(tx, self.weights)
            self.seen = tf.metrics.Mean()
        count = strategy.num_replicas_in_sync
        self.x = strategy.experimental_distribute_values_from_function(
            lambda c: jnp.asarray(np.split(X, count)[c.replica_id_in_sync_group])
        )
        self.step = tf.function(lambda x: strategy.run(self.replica, args=(x,)))

    def replica(self, x):
        def loss():
            hidden = jnp.tanh(x @ self.weights[0] + self.weights[1])
            return jnp.sum((hidden @ self.weights[2] - x[..., :8]) ** 2) / len(X)

        value, gradients = tf.value_and_grad(loss, self.weights)()
        self.optimizer.apply_gradients(zip(gradients, self.weights))
        self.seen.update_state(x)
        return value

    def state(self):
        every = [*self.weights, *self.optimizer.variables]
        return [*(v.numpy() for v in every), self.seen.result()]

    def train(self):
        for _ in range(3):
            self.step(self.x)
        return self.state()


@pytest.fixture(scope="module")
def wanted():
    return Training(make(1, replicas=1)).train()


def assert_close(found, wanted, **limits):
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(
            own, other, **({"rtol": 5e-5, "atol": 2e-6} | limits)
        )


@pytest.mark.feature("T03", "K04")
@pytest.mark.parametrize(("logical", "replicas"), [(2, 4), (4, 2), (8, 1), (1, 8)])
def test_training_gives_the_numbers_of_one_device(logical, replicas, wanted):
    trained = Training(sharded(logical, replicas))
    assert_close(trained.train(), wanted)
    count = logical if logical > 1 else replicas
    rows = trained.strategy.describe([*trained.weights, *trained.optimizer.variables])
    assert {r.placement for r in rows.rows if len(r.shape) == 2} == {"sharded"}
    assert rows.rows[0].bytes_per_device == 16 * 32 * 4 // count
    held = {
        s.data.shape for s in trained.weights[0].state_cell.array.addressable_shards
    }
    assert held == {(16, 32 // count)}


@pytest.mark.feature("K04")
@pytest.mark.parametrize("logical", [2, 8])
def test_products_are_split_and_gather_no_weight(logical):
    trained = Training(sharded(logical))
    text = trained.step.lowered(trained.x).compile().as_text()
    gathered = re.findall(r"= \w+(\[[\d,]*\])\S* all-gather\(", text)
    # The layout of a part on its device may be written with the axes exchanged.
    assert not {"[16,32]", "[32,16]", "[32,8]"} & set(gathered)
    weights = {f"[16,{32 // logical}]", f"[{32 // logical},8]"}
    taken = set(re.findall(r"= f32(\[[\d,]*\])\S* parameter\(", text))
    assert weights <= taken
    assert not {"[16,32]", "[32,8]"} & taken


@pytest.mark.feature("T03")
def test_variables_are_read_and_assigned_on_all_replicas():
    strategy = sharded(2)
    with strategy.scope():
        v = tf.Variable(START, aggregation=tf.VariableAggregation.MEAN)
    for part in v.values:
        np.testing.assert_array_equal(part.numpy(), START)
    v.assign(2 * START)
    strategy.run(lambda: v.assign_add(START))
    strategy.extended.update(v, lambda c: c.assign_add(START))
    tf.function(lambda: strategy.run(lambda: v.assign_add(START)))()
    np.testing.assert_allclose(v.numpy(), 5 * START, rtol=1e-6)
    assert {s.data.shape for s in v.state_cell.array.addressable_shards} == {(8, 8)}


@pytest.mark.feature("K01")
def test_a_variable_of_one_logical_device_is_whole():
    strategy = sharded(2)
    with strategy.scope():
        with strategy.extended.experimental_logical_device(1):
            whole = tf.Variable(START)
        split = tf.Variable(START)
    assert (whole.state_cell.split, split.state_cell.split.parts) == (None, 2)
    step = tf.function(lambda: strategy.run(lambda: jnp.sum(whole * split)))
    for found in strategy.experimental_local_results(step()):
        np.testing.assert_allclose(found, np.sum(START**2), rtol=1e-5)


@pytest.mark.feature("T03")
def test_a_checkpoint_moves_between_whole_and_split_state(tmp_path, wanted):
    before, after = Training(make(2)), Training(sharded(4))
    before.train()
    kept = {"weights": before.weights, "optimizer": before.optimizer}
    path = tf.train.Checkpoint(**kept).save(tmp_path / "one")
    kept = {"weights": after.weights, "optimizer": after.optimizer}
    tf.train.Checkpoint(**kept).restore(path).assert_consumed()
    assert_close(after.state()[:-1], wanted[:-1])


def convolved(strategy, x, kernels, parts):
    if parts is not None:
        x = strategy.experimental_split_to_logical_devices(x, parts)
    for kernel in kernels:
        x = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    return jnp.sum(x**2)


@pytest.mark.feature("K04")
@pytest.mark.parametrize(
    ("logical", "replicas", "parts"),
    [
        (n, r, p)
        for n, r in [(2, 4), (4, 1)]
        for p in [None, *partitions(n, 4)]
        # Split along both space and channels: refused, with or without split kernels.
        if p is None or not (p[3] > 1 and max(p[1:3]) > 1)
    ],
)
def test_split_kernels_get_the_gradients_of_one_device(logical, replicas, parts):
    strategy = sharded(logical, replicas)
    with strategy.scope():
        kernels = [tf.Variable(k) for k in KERNELS]

    @tf.function
    def step(x):
        def value():
            return convolved(strategy, x, [k.read_value() for k in kernels], parts)

        return tf.grad(value, kernels)()

    wanted = jax.grad(lambda k: convolved(None, IMAGES, k, None))(KERNELS)
    for own, other in zip(strategy.run(step, args=(IMAGES,)), wanted):
        found = strategy.experimental_local_results(own)[0]
        np.testing.assert_allclose(found, other, rtol=1e-4, atol=1e-3)


@pytest.mark.feature("K04")
@pytest.mark.parametrize(
    ("logical", "replicas", "in_replicas"), [(8, 1, True), (4, 2, False)]
)
def test_weights_that_would_split_an_image_are_gathered_first(
    logical, replicas, in_replicas
):
    # From a split matrix XLA splits the space of the image, from a split kernel its
    # channels; the gradient of the kernel would be too large, by as much as 15 times.
    rng = np.random.RandomState(7)
    start = [rng.randn(*s).astype(np.float32) for s in [(5, 16), (3, 3, 4, 8), (32, 3)]]
    x = rng.rand(8, 5).astype(np.float32)

    def value(x, first, kernel, last):
        image = (x @ first).reshape(-1, 2, 2, 4)
        image = jax.lax.conv_general_dilated(
            image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jnp.sum(jax.nn.relu(image).reshape(len(x), -1) @ last) ** 2

    strategy = sharded(logical, replicas)
    with strategy.scope():
        weights = [tf.Variable(w) for w in start]

    @tf.function
    def step(x):
        found = tf.grad(lambda: value(x, *(w.value() for w in weights)), weights)()
        if in_replicas:
            return found
        for weight, gradient in zip(weights, found):
            weight.assign(gradient)
        return [w.value() for w in weights]

    found = strategy.run(step, args=(x,)) if in_replicas else step(x)
    wanted = jax.grad(value, (1, 2, 3))(x, *start)
    assert_close(found, wanted, rtol=1e-4, atol=1e-2)
    assert all(w.state_cell.split is not None for w in weights)
