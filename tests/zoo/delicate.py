"""Programs in which rounding shows: right ones, and the same with a small bug each.

An optimizer divides by gradients that are nearly zero or takes their signs, a unit is
turned on by a last digit, a true gradient is zero, or numbers are large or short.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import unisono as uni
from tests.zoo import builders
from tests.zoo.builders import context


@dataclasses.dataclass(frozen=True)
class Task:
    """What a program trains: first values, data, and the loss of each example."""

    first: dict[str, np.ndarray]
    loss: Callable[..., Any]
    inputs: Callable[..., Any]

    def batches(self, rows, count, seed=1):
        rng = np.random.RandomState(seed)
        return [self.inputs(rng, rows) for _ in range(count)]


def _normal(rng, *shape, scale=None):
    scale = shape[0] ** -0.5 if scale is None else scale
    return (rng.randn(*shape) * scale).astype("f")


def layers(width=64, depth=6, activation=jnp.tanh, scale=None, goal=1.0, bias=0.0):
    """Many layers of one width; the mean squared error over as many numbers."""
    rng = np.random.RandomState(0)
    first = {f"w{i}": _normal(rng, width, width, scale=scale) for i in range(depth)}
    first |= {f"b{i}": np.full(width, bias, "f") for i in range(depth)}

    def loss(v, x, y):
        for i in range(depth - 1):
            x = activation(x @ v[f"w{i}"] + v[f"b{i}"])
        x = x @ v[f"w{depth - 1}"] + v[f"b{depth - 1}"]
        return jnp.mean((x - y) ** 2, -1)

    def inputs(rng, rows):
        return _normal(rng, rows, width, scale=1), _normal(rng, rows, width, scale=goal)

    return Task(first, loss, inputs)


def half(dtype, width=32):
    """Layers that compute in 16 bits, with weights of 32."""
    rng = np.random.RandomState(0)
    first = {f"w{i}": _normal(rng, width, width) for i in range(3)}

    def loss(v, x, y):
        for i in range(3):
            x = jnp.tanh(x.astype(dtype) @ v[f"w{i}"].astype(dtype))
        return jnp.mean((x.astype("float32") - y) ** 2, -1)

    def inputs(rng, rows):
        return _normal(rng, rows, width, scale=1), _normal(rng, rows, width, scale=1)

    return Task(first, loss, inputs)


def attention(width=16, length=8):
    """Attention with layer normalisation; the true gradient of `bk` is zero."""
    rng = np.random.RandomState(0)
    first = {name: _normal(rng, width, width) for name in ("wq", "wk", "wv", "wo")}
    first |= {"bk": np.zeros(width, "f"), "gain": np.ones(width, "f")}

    def loss(v, x, y):
        mean = x.mean(-1, keepdims=True)
        x = (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6) * v["gain"]
        q, k, z = x @ v["wq"], x @ v["wk"] + v["bk"], x @ v["wv"]
        weights = jax.nn.softmax(jnp.einsum("bid,bjd->bij", q, k) / width**0.5)
        found = jnp.einsum("bij,bjd->bid", weights, z) @ v["wo"]
        return jnp.mean((found - y) ** 2, (1, 2))

    def inputs(rng, rows):
        return tuple(rng.randn(rows, length, width).astype("f") for _ in range(2))

    return Task(first, loss, inputs)


def normalised(of_part=False):
    """A convolution, batch statistics and max pooling; the gradient of `b` is zero."""
    rng = np.random.RandomState(0)
    first = {"w": _normal(rng, 3, 3, 2, 6, scale=0.3), "b": np.full(6, 0.1, "f")}
    first |= {"gain": np.ones(6, "f"), "out": _normal(rng, 6 * 16, 3)}

    def loss(v, x, y):
        x = jax.lax.conv_general_dilated(
            x, v["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = x + v["b"]
        sums = jnp.stack([x.sum((0, 1, 2)), jnp.full(6, x[..., 0].size, "f")])
        sums = sums if of_part else context().all_reduce("SUM", sums)
        mean = sums[0] / sums[1]
        square = ((x - mean) ** 2).sum((0, 1, 2))
        square = square if of_part else context().all_reduce("SUM", square)
        x = (x - mean) / jnp.sqrt(square / sums[1] + 1e-5) * v["gain"]
        x = jax.nn.relu(x).reshape(-1, 4, 2, 4, 2, 6).max((2, 4))
        return -jax.nn.log_softmax(x.reshape(-1, 96) @ v["out"])[jnp.arange(len(y)), y]

    def inputs(rng, rows):
        return rng.randn(rows, 8, 8, 2).astype("f"), rng.randint(0, 3, rows)

    return Task(first, loss, inputs)


def embedding(size=500, width=8):
    """Rows of a table, most of which no example has."""
    rng = np.random.RandomState(0)
    first = {"table": _normal(rng, size, width, scale=1), "w": _normal(rng, width, 4)}

    def loss(v, x, y):
        found = v["table"][x].mean(1) @ v["w"]
        return -jax.nn.log_softmax(found)[jnp.arange(len(y)), y]

    return Task(
        first,
        loss,
        lambda rng, rows: (rng.randint(0, size, (rows, 5)), rng.randint(0, 4, rows)),
    )


def recurrent(width=16, length=30):
    """A recurrence that makes rounding grow from step to step."""
    rng = np.random.RandomState(0)
    first = {"u": _normal(rng, width, width) * 2, "w": _normal(rng, 3, width)}

    def loss(v, x, y):
        u, w = v["u"], v["w"]
        start = jnp.zeros((len(x), width))
        last, _ = jax.lax.scan(
            lambda h, z: (jnp.tanh(h @ u + z @ w), None), start, x.swapaxes(0, 1)
        )
        return (last[:, 0] - y) ** 2

    return Task(
        first,
        loss,
        lambda rng, rows: (
            rng.randn(rows, length, 3).astype("f"),
            rng.randn(rows).astype("f"),
        ),
    )


def experts(width=16, count=4):
    """Each example goes to the one expert that suits it best."""
    rng = np.random.RandomState(0)
    first = {"gate": _normal(rng, width, count)}
    first |= {"w": _normal(rng, count, width, width, scale=0.3)}

    def loss(v, x, y):
        chances = jax.nn.softmax(x @ v["gate"])
        best = jnp.argmax(chances, -1)
        found = jnp.einsum("bi,bij->bj", x, v["w"][best])
        return jnp.mean((found * chances.max(-1, keepdims=True) - y) ** 2, -1)

    def inputs(rng, rows):
        return _normal(rng, rows, width, scale=1), _normal(rng, rows, width, scale=1)

    return Task(first, loss, inputs)


# The planted bugs: each gets a replica's gradients, and is there on several only.


def _scaled(gradients, rows):
    middle = sorted(gradients)[len(gradients) // 2]
    return gradients | {middle: gradients[middle] * 1.001}


def _first_only(gradients, rows):
    small = min(gradients, key=lambda name: gradients[name].size)
    is_first = context().replica_id_in_sync_group == 0
    count = context().num_replicas_in_sync
    return gradients | {small: jnp.where(is_first, count * gradients[small], 0.0)}


def _last_left_out(gradients, rows):
    # As if the last replica had counted a hundredth of its rows wrongly.
    is_last = context().replica_id_in_sync_group == context().num_replicas_in_sync - 1
    factor = jnp.where(is_last, 0.99, 1.0)
    return {name: g * factor for name, g in gradients.items()}


def _rows_of_parts(gradients, rows):
    # The size of a batch, made from a size per replica that is rounded up.
    count = context().num_replicas_in_sync
    return {n: g * rows / (-(-rows // count) * count) for n, g in gradients.items()}


def _as_it_is(gradients, rows):
    return gradients


def build(task, tx, rows, change=_as_it_is, rate=None):
    """Returns what makes the step of a task.

    Args:
        task: the task.
        tx: makes the Optax transformation.
        rows: the rows of a batch.
        change: what is done to a replica's gradients on several replicas.
        rate: what updates are multiplied with on several replicas.
    """

    def make(s):
        with s.scope():
            own = {n: uni.Variable(x, name=n) for n, x in task.first.items()}
            optimizer = uni.optimizers.Optimizer(
                optax.chain(tx(), _on_several(s, rate)) if rate else tx(),
                list(own.values()),
            )

        def replica(x, y):
            def loss():
                values = {name: v.value() for name, v in own.items()}
                return jnp.sum(task.loss(values, x, y)) / rows

            value, gradients = uni.value_and_grad(loss, list(own.values()))()
            found = dict(zip(own, gradients))
            if context().num_replicas_in_sync > 1:
                found = change(found, rows)
            optimizer.apply_gradients(zip(found.values(), own.values()))
            return value

        @uni.function
        def step(x, y):
            return s.reduce("SUM", s.run(replica, args=(x, y)), axis=None)

        return step

    return make


def _on_several(s, rate):
    def update(updates, state, params=None):
        factor = rate if s.num_replicas_in_sync > 1 else 1.0
        return jax.tree.map(lambda u: u * factor, updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


TASKS = {
    "layers": (layers, 16),
    "wide_layers": (lambda: layers(256), 64),
    "relu_layers": (lambda: layers(256, activation=jax.nn.relu), 64),
    "layers_with_dead_units": (
        lambda: layers(activation=jax.nn.relu, bias=-0.1),
        16,
    ),
    "large_losses": (lambda: layers(goal=1e3), 16),
    "tiny_losses": (lambda: layers(scale=1e-3, goal=1e-6), 16),
    "short_floats": (lambda: half(jnp.bfloat16), 16),
    "half_floats": (lambda: half(jnp.float16), 16),
    "attention": (attention, 13),
    "normalised_convolution": (normalised, 16),
    "embedding": (embedding, 13),
    "recurrence": (recurrent, 16),
    "experts": (experts, 37),
}
OPTIMIZERS = {
    "adam": lambda: optax.adam(1e-3),
    "adam_tiny_epsilon": lambda: optax.adam(1e-3, eps=1e-15),
    "adamw_clipped": lambda: optax.chain(
        optax.clip_by_global_norm(0.1), optax.adamw(1e-3, weight_decay=0.1)
    ),
    "rmsprop": lambda: optax.rmsprop(1e-3, eps=1e-12),
    "adagrad": lambda: optax.adagrad(1e-2, initial_accumulator_value=0.0),
    "lion": lambda: optax.lion(1e-3),
    "lamb": lambda: optax.lamb(1e-2),
    "momentum": lambda: optax.sgd(0.1, momentum=0.9),
}


def _program(task, tx, count, change=None, rate=None):
    made, rows = TASKS[task][0](), TASKS[task][1]
    bug = change.__name__ if change else "_rate" if rate else ""
    return builders.Program(
        f"{task}_{tx}_{count}{bug}",
        build(made, OPTIMIZERS[tx], rows, change or _as_it_is, rate),
        options={"batches": made.batches(rows, count)},
    )


def _all_right():
    # Gradients near epsilon: rounding of other matrix products is a part of a step.
    yield _program("relu_layers", "adam", 1)
    for i, task in enumerate(TASKS):
        for j, tx in enumerate(OPTIMIZERS):
            if (i + j) % 2 == 0:
                yield _program(task, tx, 20 if (i + j) % 8 == 0 else 5)


def _all_wrong():
    changes = [_scaled, _first_only, _last_left_out, _rows_of_parts]
    for i, task in enumerate(TASKS):
        for j, tx in enumerate(OPTIMIZERS):
            change = changes[(i + j // 2) % 4]
            # Parts of equal size have the right size, rounded up or not.
            if (i + j) % 4 == 0 and (
                change is not _rows_of_parts or TASKS[task][1] % 2
            ):
                yield _program(task, tx, 3, change)
    yield _program("wide_layers", "adam", 3, rate=1.5)
    yield _program("relu_layers", "lamb", 3, rate=1.05)
    yield _program("relu_layers", "adamw_clipped", 3, rate=1.05)
    yield _program("wide_layers", "adam_tiny_epsilon", 3, rate=1.05)


RIGHT = list(_all_right())
WRONG = list(_all_wrong())
