"""Split weights are gathered where they are read: the same numbers, less memory."""

import functools
import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as tf
from tests import machine
from unisono._src.execution import late_gathers

LAYERS, SIZE, ROWS = 6, 64, 2
RNG = np.random.default_rng(0)
STACK = (RNG.normal(size=(LAYERS, SIZE, SIZE)) / 8).astype(np.float32)
X = RNG.normal(size=(8, ROWS, SIZE)).astype(np.float32)
LAYER = SIZE * SIZE * 4
pytestmark = pytest.mark.needs_devices(8)


@pytest.fixture(autouse=True)
def no_sharing(monkeypatch):
    """Layers are small here: without this, all would be shared."""
    monkeypatch.setattr(late_gathers, "SHARED", 0)


class Program:
    """A training step of a loss function, compiled, with one kind of state."""

    def __init__(self, kind, loss, values, replicas=8, tx=None, **options):
        if kind == "sharded":
            options |= {"state": "sharded", "shard_above": 64}
        names = machine.names(replicas)
        self.strategy = tf.distribute.MirroredStrategy(names, **options)
        with self.strategy.scope():
            self.weights = [tf.Variable(w, name=f"w{i}") for i, w in enumerate(values)]
            tx = tx or optax.sgd(0.01)
            self.optimizer = tf.optimizers.Optimizer(tx, self.weights)
        self.loss = loss
        self.step = tf.function(self._step)
        self.x = self.strategy.experimental_distribute_values_from_function(
            lambda context: jnp.asarray(X[context.replica_id_in_sync_group])
        )

    def _step(self, x):
        found = self.strategy.run(self._replica, args=(x,))
        return self.strategy.reduce("SUM", found, axis=None)

    def _replica(self, x):
        def loss():
            return self.loss(x, *self.weights)

        value, gradients = tf.value_and_grad(loss, self.weights)()
        self.optimizer.apply_gradients(zip(gradients, self.weights))
        return value

    def compiled(self):
        return self.step.lowered(self.x).compile()

    def numbers(self):
        losses = [float(self.step(self.x)) for _ in range(2)]
        return [*losses, *(v.numpy() for v in self.weights)]


def count(text, name):
    """How many operations of a name a compiled program has."""
    lines = re.findall(rf"= (\(.*?\)|\S+) {name}(?:-start)?\(", text)
    return sum(len(re.findall(r"\w+\[[\d,]*\]", line)) for line in lines)


def held(compiled):
    """What a step holds besides its arguments, in layers."""
    return compiled.memory_analysis().temp_size_in_bytes / LAYER


def assert_same(loss, values, **options):
    """Sharded state gives the numbers of mirrored state, bit for bit."""
    found = Program("sharded", loss, values, **options).numbers()
    options.pop("gather", None)
    options.pop("shard_rules", None)
    wanted = Program("mirrored", loss, values, **options).numbers()
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(own, other)


def unrolled(x, *weights, wrap=lambda f: f):
    for w in weights:
        x = wrap(lambda x, w: jnp.tanh(x @ w))(x, jnp.asarray(w))
    return jnp.sum(x**2) / 16


def looped(x, stack, wrap=lambda f: f):
    body = wrap(lambda x, w: (jnp.tanh(x @ w), None))
    x, _ = jax.lax.scan(body, x, stack.value())
    return jnp.sum(x**2) / 16


def test_layer_after_layer_two_gathers_and_one_scatter_for_each():
    program = Program("sharded", unrolled, STACK)
    compiled = program.compiled()
    text = compiled.as_text()
    # The gradient of the input is not asked for, so the first weight is read once.
    assert count(text, "all-gather") == 2 * LAYERS - 1
    assert count(text, "reduce-scatter") == LAYERS
    assert held(compiled) < 2.6
    assert_same(unrolled, STACK)


def test_two_devices_forget_a_weight_before_its_gradient_is_there():
    compiled = Program("sharded", unrolled, STACK, replicas=2).compiled()
    # A layer, a gradient, and the half that is sent or received.
    assert held(compiled) < 2.8


def test_all_weights_before_the_step_if_that_is_asked_for():
    program = Program("sharded", unrolled, STACK, gather="step")
    compiled = program.compiled()
    assert count(compiled.as_text(), "all-gather") == LAYERS
    assert held(compiled) > LAYERS - 1
    assert_same(unrolled, STACK, gather="step")


def test_readers_near_each_other_share_a_gather(monkeypatch):
    monkeypatch.setattr(late_gathers, "SHARED", LAYER)
    compiled = Program("sharded", unrolled, STACK).compiled()
    # The last layer of the forward pass is the first of the backward pass.
    assert count(compiled.as_text(), "all-gather") == 2 * LAYERS - 2
    monkeypatch.setattr(late_gathers, "SHARED", LAYERS * LAYER)
    compiled = Program("sharded", unrolled, STACK).compiled()
    assert count(compiled.as_text(), "all-gather") == LAYERS


@pytest.mark.parametrize("wrap", [lambda f: f, jax.checkpoint], ids=["plain", "again"])
def test_a_loop_over_layers_gathers_and_scatters_in_its_turns(wrap):
    loss = functools.partial(looped, wrap=wrap)
    compiled = Program("sharded", loss, [STACK]).compiled()
    text = compiled.as_text()
    assert count(text, "all-gather") == 2
    assert count(text, "reduce-scatter") == 1
    # No stack of weights or gradients: only slices.
    assert f"f32[{LAYERS},{SIZE},{SIZE}]" not in text
    assert held(compiled) < 5
    assert_same(loss, [STACK])


def test_a_checkpoint_of_ones_own_computes_again():
    loss = functools.partial(unrolled, wrap=jax.checkpoint)
    compiled = Program("sharded", loss, STACK).compiled()
    assert count(compiled.as_text(), "reduce-scatter") == LAYERS
    assert held(compiled) < 2.6
    assert_same(loss, STACK)


def test_a_loop_over_the_cut_axis_is_told_of(caplog):
    program = Program("sharded", looped, [STACK[:4]], replicas=4, shard_rules={"": 0})
    with caplog.at_level(logging.WARNING, "unisono"):
        program.compiled()
    (record,) = caplog.records
    assert "'w0' of shape (4, 64, 64) is gathered whole" in record.getMessage()
    assert "shard_rules={'w0': 1}" in record.getMessage()
    assert_same(looped, [STACK[:4]], replicas=4, shard_rules={"": 0})


def narrow(x, *weights):
    for w in weights:
        x = jnp.tanh(x.astype(jnp.bfloat16) @ jnp.asarray(w, jnp.bfloat16))
    return jnp.sum(x.astype(jnp.float32) ** 2) / 16


def narrow_loop(x, stack):
    def body(x, w):
        return jnp.tanh(x @ w), None

    cast = stack.value().astype(jnp.bfloat16)
    x, _ = jax.lax.scan(body, x.astype(jnp.bfloat16), cast)
    return jnp.sum(x.astype(jnp.float32) ** 2) / 16


@pytest.mark.parametrize(
    ("loss", "values"), [(narrow, STACK), (narrow_loop, [STACK])], ids=["each", "loop"]
)
def test_half_precision_is_cast_before_it_is_gathered(loss, values):
    program = Program("sharded", loss, values)
    text = program.step.lowered(program.x).as_text()
    gathered = re.findall(r'"stablehlo.all_gather".*?-> tensor<\w*x(\w+)>', text, re.S)
    assert set(gathered) == {"bf16"}
    assert f"f32[{LAYERS},{SIZE},{SIZE}]" not in program.compiled().as_text()
    assert_same(loss, values)


def test_layers_of_a_stack_may_be_written_one_after_the_other():
    def loss(x, stack):
        for i in range(LAYERS):
            x = jnp.tanh(x @ jnp.asarray(stack)[i])
        return jnp.sum(x**2) / 16

    program = Program("sharded", loss, [STACK])
    text = program.compiled().as_text()
    assert count(text, "all-gather") == 2 * LAYERS - 1
    assert_same(loss, [STACK])


def twice(x, a, b):
    """Weights that are read twice, transposed, and by themselves."""
    y = jnp.tanh(x @ a) @ jnp.asarray(a).T
    y = y + x @ (jnp.asarray(b) * jnp.asarray(b)) + jnp.sum(jnp.asarray(b) ** 2) * 1e-3
    return jnp.sum(y**2) / 64


def branches(x, a, b):
    """A weight in a branch that each replica takes by itself, and in a `while`."""
    x = jax.lax.cond(x[0, 0] > 0, lambda x: x @ a.value(), lambda x: x * 2, x)

    def body(state):
        i, y = state
        return i + 1, jnp.tanh(y @ b.value())

    turns = jax.lax.stop_gradient(x[0, 0] > 0).astype(jnp.int32) + 1
    _, y = jax.lax.while_loop(lambda s: s[0] < turns, body, (0, x))
    return jnp.sum(x**2 + jax.lax.stop_gradient(y)) / 16


@jax.custom_jvp
def odd(w):
    return w * 2.0


@odd.defjvp
def _(primals, tangents):
    return odd(*primals), tangents[0] * 5.0


@jax.custom_vjp
def other(w, x):
    return x @ w


other.defvjp(lambda w, x: (x @ w, (w, x)), lambda kept, g: (kept[1].T @ g, g @ kept[0]))


def rules(x, a, b):
    """Functions with rules of their own for gradients; jitted ones."""
    y = jax.jit(lambda x, w: other(w, x))(jnp.tanh(x @ odd(a.value())), b.value())
    kept = (
        jax.lax.stop_gradient(odd(a.value()))
        + jax.lax.stop_gradient(other(b.value(), x)).sum()
    )
    return jnp.sum(y**2) / 64 + jnp.sum(kept) * 1e-3


def shared_in_loop(x, a, b):
    """A weight that every turn of a loop reads, and one that no turn reads."""

    def body(x, noise):
        return jnp.tanh(x @ a.value() + noise), jnp.sum(x)

    noise = jnp.arange(4.0)
    x, seen = jax.lax.scan(body, x, noise, reverse=True)
    return jnp.sum((x @ b) ** 2) / 16 + jnp.sum(seen) * 1e-3


@pytest.mark.parametrize("loss", [twice, branches, rules, shared_in_loop])
@pytest.mark.parametrize("shared", [0, 1 << 22])
def test_any_reader_gets_the_numbers_of_mirrored_state(loss, shared, monkeypatch):
    monkeypatch.setattr(late_gathers, "SHARED", shared)
    assert_same(loss, STACK[:2], replicas=4)


def nested(x, stack, bias):
    def inner(x, w):
        return jnp.tanh(x @ w), jnp.sum(w)

    def outer(x, given):
        ws, b = given
        x, sums = jax.jit(lambda x: jax.lax.scan(inner, x, ws))(x)
        return x + b, sums

    pairs = stack.value().reshape(3, 2, SIZE, SIZE), bias.value()
    x, sums = jax.lax.scan(outer, x, pairs)
    return (jnp.sum(x**2) + jnp.sum(sums)) / 64


def nested_stack(x, stack, bias):
    def inner(x, w):
        return jnp.tanh(x @ w), jnp.sum(w)

    def outer(x, given):
        ws, b = given
        x, sums = jax.jit(lambda x: jax.lax.scan(inner, x, ws))(x)
        return x + b, sums

    x, sums = jax.lax.scan(outer, x, (stack.value(), bias.value()))
    return (jnp.sum(x**2) + jnp.sum(sums)) / 64


def test_loops_in_loops():
    bias = np.ones((3, SIZE), np.float32)
    assert_same(nested, [STACK, bias])
    stack = STACK.reshape(3, 2, SIZE, SIZE)
    compiled = Program("sharded", nested_stack, [stack, bias]).compiled()
    assert f"f32[3,2,{SIZE},{SIZE}]" not in compiled.as_text()
    assert_same(nested_stack, [stack, bias])


def test_numbers_that_are_not_finite_change_no_weight():
    def loss(x, *weights):
        for w in weights:
            x = jnp.where(jnp.isnan(x), 1.0, x) @ w
            x = x.at[0, 0].set(jnp.nan)
        return jnp.sum(jnp.where(jnp.isnan(x), 0.0, x) ** 2) / 1e6

    assert_same(loss, STACK[:3], replicas=2)


def test_an_update_on_gathered_values_and_a_read_after_it():
    tx = optax.adafactor(1e-2, min_dim_size_to_factor=4)
    wanted = Program("mirrored", unrolled, STACK[:3], tx=tx).numbers()
    found = Program("sharded", unrolled, STACK[:3], tx=tx).numbers()
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-5, atol=2e-6)


def test_integers_and_truth_values_are_gathered_too():
    strategy = tf.distribute.MirroredStrategy(
        machine.names(4), state="sharded", shard_above=4
    )
    with strategy.scope():
        mask = tf.Variable(np.arange(16) % 3 == 0)
        number = tf.Variable(np.arange(16, dtype=np.int32))

    @tf.function
    def step():
        def replica():
            index = tf.distribute.get_replica_context().replica_id_in_sync_group
            return jnp.where(mask.value(), number * index, -number + jnp.asarray(index))

        return strategy.experimental_local_results(strategy.run(replica))

    for i, found in enumerate(step()):
        n = np.arange(16)
        np.testing.assert_array_equal(found, np.where(n % 3 == 0, n * i, i - n))


# Three times the gradient, to see that the rules are used.


@jax.custom_jvp
def by_tangents(x, *weights):
    return unrolled(x, *weights)


@by_tangents.defjvp
def _(primals, tangents):
    value, tangent = jax.jvp(unrolled, primals, tangents)
    return value, 3 * tangent


@jax.custom_vjp
def by_cotangents(x, *weights):
    return unrolled(x, *weights)


by_cotangents.defvjp(
    lambda *args: jax.vjp(unrolled, *args), lambda pull, g: pull(3 * g)
)


@pytest.mark.parametrize("ruled", [by_tangents, by_cotangents], ids=["jvp", "vjp"])
def test_functions_with_a_rule_for_gradients_gather_inside_and_keep_it(ruled):
    strategy = tf.distribute.MirroredStrategy(
        machine.names(8), state="sharded", shard_above=64
    )
    with strategy.scope():
        weights = [tf.Variable(w) for w in STACK]

    def replica(x):
        return ruled(x, *(w.value() for w in weights))

    @tf.function
    def forward(x):
        return strategy.reduce("SUM", strategy.run(replica, args=(x,)), axis=None)

    x = tf.distribute.PerReplica(tuple(map(jnp.asarray, X)))
    compiled = forward.lowered(x).compile()
    assert count(compiled.as_text(), "all-gather") == LAYERS
    assert held(compiled) < 2.6
    with tf.GradientTape() as tape:
        value = forward(x)
    found = tape.gradient(value, weights)
    wanted, slopes = jax.value_and_grad(
        lambda ws: sum(unrolled(x, *ws) for x in X)
    )(list(STACK))  # fmt: skip
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    for own, slope in zip(found, slopes, strict=True):
        np.testing.assert_allclose(own, 3 * slope, rtol=1e-4, atol=1e-5)
