"""What the zoo's programs share: data, a model, and the usual training step."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import unisono as uni

ROWS, FEATURES, HIDDEN = 16, 5, 4
AGGREGATION = uni.VariableAggregation


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of the zoo.

    Attributes:
        name: its name.
        build: makes the step in the scope of a strategy.
        cause: the code of the planted bug; None for a right program.
        link: the public report that the bug is taken from, if it is from one.
        options: arguments of `check_parity`.
    """

    name: str
    build: Callable[[Any], Callable[..., Any]]
    cause: str | None = None
    link: str | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


def batches(count=3, rows=ROWS, seed=0):
    """Global batches of numbers and targets."""
    rng = np.random.RandomState(seed)
    made = []
    for _ in range(count):
        x = rng.randn(rows, FEATURES).astype("f")
        y = np.tanh(x @ rng.randn(FEATURES)).astype("f") + 0.1
        made.append((x, y.astype("f")))
    return made


class Model:
    """Two layers; made in the current scope, always with the same numbers."""

    def __init__(self, seed=0, depth=1, activation=jnp.tanh, scale=0.5):
        rng = np.random.RandomState(seed)
        sizes = [FEATURES, *[HIDDEN] * depth, 1]
        self.activation = activation
        self.kernels, self.biases = [], []
        for i, (a, b) in enumerate(itertools.pairwise(sizes)):
            first = (rng.randn(a, b) * scale).astype("f")
            self.kernels.append(uni.Variable(first, name=f"kernel_{i}"))
            self.biases.append(uni.Variable(np.full(b, 0.1, "f"), name=f"bias_{i}"))

    @property
    def variables(self):
        return [*self.kernels, *self.biases]

    def __call__(self, x):
        *hidden, last = zip(self.kernels, self.biases)
        for kernel, bias in hidden:
            x = self.activation(x @ kernel + bias)
        return jnp.reshape(x @ last[0] + last[1], (-1,))


def errors(model, x, y):
    """The squared error of each example."""
    return (model(x) - y) ** 2


def mean_loss(model, x, y):
    """The loss of the whole batch, of which each replica has its share."""
    return jnp.sum(errors(model, x, y)) / ROWS


def context():
    return uni.distribute.get_replica_context()


def train(
    strategy,
    loss,
    *,
    tx=None,
    change=lambda gradients: gradients,
    reduce="SUM",
    also=lambda x, y: None,
    **model_options,
):
    """A custom training loop.

    Args:
        strategy: the strategy.
        loss: the loss of a replica, from model, x and y.
        tx: the Optax transformation; default plain gradient descent.
        change: what is done to the gradients of a replica.
        reduce: how the losses of the replicas become one.
        also: what a replica does besides.
        **model_options: arguments of `Model`.
    """
    with strategy.scope():
        model = Model(**model_options)
        optimizer = uni.optimizers.Optimizer(tx or optax.sgd(0.1), model.variables)

    def replica(x, y):
        value, gradients = uni.value_and_grad(
            lambda: loss(model, x, y), model.variables
        )()
        optimizer.apply_gradients(zip(change(gradients), model.variables))
        also(x, y)
        return value

    @uni.function
    def step(x, y):
        return strategy.reduce(reduce, strategy.run(replica, args=(x, y)), axis=None)

    return step


def squares(model):
    return sum(jnp.sum(k.value() ** 2) for k in model.kernels)


def clip_by_norm(gradients, most):
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in gradients))
    return [g * jnp.minimum(1.0, most / norm) for g in gradients]


def row_keys(x):
    """A random key of each example, whichever replica has it."""
    seeds = jax.lax.bitcast_convert_type(x[:, 0], jnp.uint32)
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(5), seeds)
