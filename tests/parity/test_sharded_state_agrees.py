"""Random programs give the numbers of mirrored state when their state is sharded.

A program is a list of layers of several kinds, an optimizer, a number of replicas, and
batches that may be uneven. What a step gathers, and where, must change no number.
"""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as tf
from tests import machine
from tests.random_programs import tries
from unisono._src.execution import late_gathers

keras = pytest.importorskip("keras")

WIDTH, DEPTH = 12, 2
pytestmark = pytest.mark.needs_devices(8)


def dense(x, w):
    return jnp.tanh(x @ w.value()[0])


def each(x, w):
    for i in range(DEPTH):
        x = jnp.tanh(x @ jnp.asarray(w)[i])
    return x


def loop(x, w):
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w.value())[0]


def loop_again(x, w):
    body = jax.checkpoint(lambda x, w: (jnp.tanh(x @ w), None))
    return jax.lax.scan(body, x, w.value(), reverse=True)[0]


def again(x, w):
    return jax.checkpoint(lambda x, w: jnp.tanh(x @ w[0]) @ w[1])(x, w.value())


def twice(x, w):
    return jnp.tanh(x @ w.value()[0]) @ w.value()[0].T + x @ w.value()[1]


def branch(x, w):
    return jax.lax.cond(x[0, 0] > 0, lambda x: x @ w.value()[0], lambda x: x + 1, x)


def turns(x, w):
    """Every turn reads the weight."""
    return jax.lax.fori_loop(0, 2, lambda i, x: jnp.tanh(x @ w.value()[i]), x)


def half(x, w):
    small = w.value().astype(jnp.bfloat16)
    x, _ = jax.lax.scan(lambda x, w: (x @ w, None), x.astype(jnp.bfloat16), small)
    return jnp.tanh(x.astype(jnp.float32))


def jitted(x, w):
    return jax.jit(lambda x: loop(x, w) + jnp.sum(w.value() ** 2) * 1e-3)(x)


LAYERS = [dense, each, loop, loop_again, again, twice, branch, turns, half, jitted]
# With `eps` that is above rounding: else the sign of a gradient that is almost zero,
# which depends on the order of a sum, decides about an update.
OPTIMIZERS = {
    "sgd": lambda: optax.sgd(0.1),
    "adam": lambda: optax.adam(0.01, eps=1e-3),
    "norm": lambda: optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1, 0.9)),
    "lamb": lambda: optax.lamb(0.01, eps=1e-3),
    "adafactor": lambda: optax.adafactor(0.01, min_dim_size_to_factor=4, eps=1e-6),
}


def train(layers, optimizer, replicas, sizes, seed, **options):
    """Train two steps; returns losses and weights."""
    strategy = tf.distribute.MirroredStrategy(machine.names(replicas), **options)
    rng = np.random.default_rng(seed)
    with strategy.scope():
        values = [rng.normal(size=(DEPTH, WIDTH, WIDTH)) / 4 for _ in layers]
        weights = [tf.Variable(w.astype(np.float32)) for w in values]
        own = tf.optimizers.Optimizer(OPTIMIZERS[optimizer](), weights)

    def replica(x):
        def loss():
            y = x
            for layer, w in zip(layers, weights, strict=True):
                y = layer(y, w)
            return jnp.sum(y**2) / 16

        value, gradients = tf.value_and_grad(loss, weights)()
        own.apply_gradients(zip(gradients, weights, strict=True))
        return value

    @tf.function
    def step(x):
        return strategy.reduce("SUM", strategy.run(replica, args=(x,)), axis=None)

    rows = [rng.normal(size=(n, WIDTH)).astype(np.float32) for n in sizes[:replicas]]
    batch = tf.distribute.PerReplica(tuple(map(jnp.asarray, rows)))
    losses = [float(step(batch if replicas > 1 else rows[0])) for _ in range(2)]
    state = [*weights, *own.variables]
    return [np.array(losses), *(np.asarray(v.numpy(), np.float64) for v in state)]


@tries(6)
@hypothesis.given(
    layers=st.lists(st.sampled_from(LAYERS), min_size=1, max_size=3),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    replicas=st.sampled_from([1, 2, 3, 4, 5, 6, 8]),
    sizes=st.one_of(
        st.just([2] * 8), st.lists(st.integers(1, 3), min_size=8, max_size=8)
    ),
    shared=st.sampled_from([0, 600, late_gathers.SHARED]),
    axis=st.sampled_from([None, 0, 1, 2]),
    seed=st.integers(0, 9),
)
@hypothesis.example(
    layers=[loop, half, loop_again], optimizer="sgd", replicas=6, sizes=[2] * 8,
    shared=0, axis=None, seed=0,
)  # fmt: skip
def test_sharded_programs_give_the_numbers_of_mirrored_ones(
    layers, optimizer, replicas, sizes, shared, axis, seed
):
    program = layers, optimizer, replicas, sizes, seed
    wanted = train(*program)
    divides = axis is not None and (DEPTH, WIDTH, WIDTH)[axis] % replicas == 0
    rules = {"shard_rules": {"Variable": axis}} if divides else {}
    before, late_gathers.SHARED = late_gathers.SHARED, shared
    try:
        found = train(*program, state="sharded", shard_above=8, **rules)
    finally:
        late_gathers.SHARED = before
    # Half precision rounds sums of gradients in the order of the replicas.
    limit = 2e-2 if half in layers else 5e-5
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=limit, atol=limit / 10)


# Sums of gradients between two updates.


class Accumulating:
    """A step of two layers that is applied at each third call."""

    def __init__(self, optimizer, replicas, **options):
        names = machine.names(replicas)
        self.strategy = tf.distribute.MirroredStrategy(names, **options)
        rng = np.random.default_rng(3)
        with self.strategy.scope():
            shapes = [(WIDTH, 40), (40,), (40, WIDTH)]
            values = [(rng.normal(size=s) / 4).astype(np.float32) for s in shapes]
            self.weights = [tf.Variable(x) for x in values]
            self.optimizer = tf.optimizers.Optimizer(
                OPTIMIZERS[optimizer](), self.weights, accumulate_steps=3
            )
        self.saved = tf.train.Checkpoint(weights=self.weights, optimizer=self.optimizer)
        self.compiled = tf.function(self.step)

    def replica(self, x):
        first, bias, second = self.weights

        def loss():
            return jnp.sum((jnp.tanh(x @ first + bias) @ second) ** 2) / 16

        value, gradients = tf.value_and_grad(loss, self.weights)()
        self.optimizer.apply_gradients(zip(gradients, self.weights, strict=True))
        return value

    def step(self, x):
        found = self.strategy.run(self.replica, args=(x,))
        return self.strategy.reduce("SUM", found, axis=None)

    def call(self, rows):
        """Make one call with all rows, of which replicas get as many as they can."""
        count = self.strategy.num_replicas_in_sync
        own = [jnp.asarray(x) for x in np.array_split(rows, count)]
        return self.compiled(tf.distribute.PerReplica(own) if count > 1 else own[0])

    def state(self):
        every = [*self.weights, *self.optimizer.variables]
        return [np.asarray(v.numpy(), np.float64) for v in every]


def parts_of_sums(run):
    """The bytes of each sum on each device, and those of its variable."""
    found = []
    for v in [*run.weights, *run.optimizer.variables[-5:-2]]:
        shards = v.state_cell.array.addressable_shards
        found.append({s.data.nbytes for s in shards})
    return found[3:], found[:3]


@tries(3)
@hypothesis.given(
    optimizer=st.sampled_from(["sgd", "adam", "lamb", "adafactor"]),
    replicas=st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8]),
    others=st.sampled_from([1, 2, 3, 5, 8]),
    state=st.sampled_from(["sharded", "mirrored"]),
    calls=st.integers(1, 5),
    rows=st.sampled_from([8, 11, 12, 15]),
)
@hypothesis.example(
    optimizer="lamb", replicas=8, others=5, state="sharded", calls=4, rows=11
)
@hypothesis.example(
    optimizer="adam", replicas=3, others=2, state="mirrored", calls=2, rows=12
)
def test_sums_of_gradients_are_split_saved_and_restored(
    tmp_path_factory, optimizer, replicas, others, state, calls, rows
):
    batches = np.random.default_rng(5).normal(size=(7, rows, WIDTH)).astype(np.float32)
    sharded = {"state": "sharded", "shard_above": 8}
    wanted = Accumulating(optimizer, 1)
    found = Accumulating(optimizer, replicas, **sharded)
    for batch in batches[:calls]:
        wanted.call(batch)
        found.call(batch)
    sums, weights = parts_of_sums(found)
    assert sums == weights
    path = found.saved.save(str(tmp_path_factory.mktemp("saved") / "state"))
    resumed = Accumulating(optimizer, others, **(sharded if state == "sharded" else {}))
    resumed.saved.restore(path).assert_consumed()
    for batch in batches[calls:]:
        wanted.call(batch)
        resumed.call(batch)
    for own, other in zip(resumed.state(), wanted.state(), strict=True):
        np.testing.assert_allclose(own, other, rtol=5e-5, atol=5e-6)


# Keras' own step, under `fit`.


def plain(width):
    return [keras.layers.Dense(width, activation="tanh")]


def normal(width):
    # Without a bias: its gradient would be rounding, of which Adam makes steps.
    made = keras.layers.Dense(width, use_bias=False)
    return [made, keras.layers.BatchNormalization(), keras.layers.ReLU()]


def dropped(width):
    return [keras.layers.Dense(width), keras.layers.Dropout(0.3, seed=2)]


def decayed(width):
    return [keras.layers.Dense(width, kernel_regularizer="l2", activation="gelu")]


def stepped(width):
    inner = keras.layers.Dense(width)
    return [keras.layers.Reshape((3, width // 3)), inner, keras.layers.Flatten()]


def recurrent(width):
    return [keras.layers.Reshape((3, width // 3)), keras.layers.GRU(width)]


def convolved(width):
    turned = keras.layers.Conv1DTranspose(4, 3, strides=2, activation="tanh")
    conv = [keras.layers.Conv1D(8, 2, strides=2, padding="same"), turned]
    return [keras.layers.Reshape((3, width // 3)), *conv, keras.layers.Flatten()]


def looked_up(width):
    cast = keras.layers.Lambda(lambda x: keras.ops.cast(x * 9, "int32") % 8)
    return [cast, keras.layers.Embedding(8, width), keras.layers.Flatten()]


BLOCKS = [plain, normal, dropped, decayed, stepped, recurrent, convolved, looked_up]
KERAS_OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01, epsilon=1e-3),
    "ema": lambda: keras.optimizers.AdamW(
        0.01, epsilon=1e-3, global_clipnorm=0.5, use_ema=True
    ),
    "lamb": lambda: keras.optimizers.Lamb(0.01, epsilon=1e-3),
    "adafactor": lambda: keras.optimizers.Adafactor(0.01, epsilon_1=1e-6),
    "sums": lambda: keras.optimizers.Adam(
        0.01, epsilon=1e-3, gradient_accumulation_steps=2
    ),
}


def fit(blocks, optimizer, replicas, rows, steps, **options):
    """Fit two epochs; returns histories, predictions, weights and slots."""
    names = machine.names(replicas)
    strategy = tf.distribute.MirroredStrategy(names, **options)
    with strategy.scope():
        keras.utils.set_random_seed(1)
        # Behind each, its width is right for the next one.
        made = [
            layer
            for block in blocks
            for layer in (*block(WIDTH), keras.layers.Dense(WIDTH))
        ]
        model = keras.Sequential(
            [keras.layers.Input((WIDTH,)), *made, keras.layers.Dense(2)]
        )
        model.compile(
            KERAS_OPTIMIZERS[optimizer](),
            "mse",
            metrics=["mae"],
            steps_per_execution=steps,
        )
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, WIDTH)).astype(np.float32)
    y, weight = rng.normal(size=(rows, 2)), rng.uniform(0.5, 1.5, rows)
    given = {"batch_size": 8, "verbose": 0}
    history = model.fit(
        x, y, epochs=2, sample_weight=weight, validation_data=(x, y), **given
    )
    slots = [np.asarray(v) for v in model.optimizer.variables]
    found = [model.evaluate(x, y, **given), model.predict(x, **given)]
    return [*history.history.values(), *found, *model.get_weights(), *slots]


@tries(2)
@hypothesis.given(
    blocks=st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=2),
    optimizer=st.sampled_from(sorted(KERAS_OPTIMIZERS)),
    replicas=st.sampled_from([2, 3, 4, 5, 8]),
    rows=st.integers(9, 21),
    steps=st.sampled_from([1, 2]),
    shared=st.sampled_from([0, 600, late_gathers.SHARED]),
)
@hypothesis.example(
    blocks=[normal, stepped], optimizer="lamb", replicas=4, rows=19, steps=2, shared=0
)
@hypothesis.example(
    blocks=[looked_up, convolved], optimizer="adam", replicas=4, rows=19, steps=1,
    shared=0,
)  # fmt: skip
def test_sharded_models_fit_as_mirrored_ones(
    blocks, optimizer, replicas, rows, steps, shared
):
    model = blocks, optimizer, replicas, rows, steps
    wanted = fit(*model)
    before, late_gathers.SHARED = late_gathers.SHARED, shared
    try:
        found = fit(*model, state="sharded", shard_above=8)
    finally:
        late_gathers.SHARED = before
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=5e-5, atol=5e-6)
