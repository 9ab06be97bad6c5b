"""Defines training steps twice: by hand in JAX, and with unisono.

Each case is a pair of functions without arguments that dispatch one step.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import unisono as uni


@dataclasses.dataclass
class Pair:
    """Holds the two versions of a step.

    Attributes:
        raw: makes a step in JAX.
        ours: makes a step in unisono.
        lowered: returns the two programs for inspection.
    """

    raw: Callable[[], Any]
    ours: Callable[[], Any]
    lowered: Callable[[], tuple[Any, Any]] | None = None


def names(replicas: int, kind: str = "CPU") -> list[str]:
    """Returns the names of the first devices of a kind."""
    return [f"{kind}:{i}" for i in range(replicas)]


class Hand:
    """Makes steps as a JAX user writes them: `jit`, `shard_map` and donated state."""

    def __init__(self, replicas: int, platform: str = "cpu") -> None:
        devices = np.array(jax.devices(platform)[:replicas], dtype=object)
        self.mesh = Mesh(devices, ("batch",))
        self.same = NamedSharding(self.mesh, PartitionSpec())
        self.split = NamedSharding(self.mesh, PartitionSpec("batch"))
        self.replicas = replicas

    def step(self, body: Callable[..., Any]) -> Any:
        """Returns a compiled step.

        Args:
            body: called as ``body(state, batch)``; returns the new state and an output,
                both equal on all devices.
        """
        if self.replicas == 1:
            return jax.jit(body, donate_argnums=0)
        mapped = jax.shard_map(
            body,
            mesh=self.mesh,
            in_specs=(PartitionSpec(), PartitionSpec("batch")),
            out_specs=(PartitionSpec(), PartitionSpec()),
            check_vma=False,
        )
        return jax.jit(mapped, donate_argnums=0)

    def psum(self, x: Any) -> Any:
        """Returns the sum over the devices."""
        return jax.lax.psum(x, "batch") if self.replicas > 1 else x


def variables_step(replicas: int, count: int) -> Pair:
    """Returns a step that adds an all-reduced number to each of `count` variables."""
    hand = Hand(replicas)
    batch = np.arange(replicas, dtype=np.float32)
    raw_batch = jax.device_put(batch, hand.split)

    def body(state: list[Any], x: Any) -> Any:
        delta = hand.psum(jnp.sum(x)) if count == 1 else None
        if delta is None:
            moved = [hand.psum(jnp.sum(x) * (i + 1.0)) for i in range(count)]
        else:
            moved = [delta]
        new = [v + d for v, d in zip(state, moved, strict=True)]
        return new, new[0] * 1.0

    raw_step = hand.step(body)
    held = [jax.device_put(jnp.zeros(()), hand.same) for _ in range(count)]
    # The step donates its state; a copy makes sure that each array owns its buffer.
    held = [jnp.copy(h) for h in held]

    def raw() -> Any:
        nonlocal held
        held, out = raw_step(held, raw_batch)
        return out

    strategy = uni.distribute.MirroredStrategy(names(replicas))
    with strategy.scope():
        made = [
            uni.Variable(0.0, aggregation=uni.VariableAggregation.SUM)
            for _ in range(count)
        ]
    ours_batch = strategy.experimental_distribute_values_from_function(
        lambda c: batch[c.replica_id_in_sync_group :][:1]
    )

    @uni.function
    def step(x: Any) -> Any:
        def replica(x: Any) -> None:
            for i, v in enumerate(made):
                v.assign_add(jnp.sum(x) * (i + 1.0) if count > 1 else jnp.sum(x))

        strategy.run(replica, args=(x,))
        return made[0].value() * 1.0

    def lowered() -> tuple[Any, Any]:
        return raw_step.lower(held, raw_batch), step.lowered(ours_batch)

    return Pair(raw, lambda: step(ours_batch), lowered)


SIZES = (784, 512, 512, 10)
INPUTS = SIZES[0]
PER_REPLICA = 64


def initial(rng: np.random.Generator) -> list[np.ndarray]:
    """Returns the initial weights and biases of the classifier, layer by layer."""
    out = []
    for i, o in itertools.pairwise(SIZES):
        out.append((rng.normal(size=(i, o)) / np.sqrt(i)).astype(np.float32))
        out.append(np.zeros(o, np.float32))
    return out


def loss_of(params: Any, x: Any, y: Any, total: int) -> Any:
    """Returns the cross-entropy of a replica's batch, divided by the global size."""
    for i in range(0, len(params) - 2, 2):
        x = jax.nn.relu(x @ params[i] + params[i + 1])
    logits = x @ params[-2] + params[-1]
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).sum() / total


class HandMLP:
    """Trains a 784-512-512-10 classifier with Adam in JAX; call it with a batch."""

    def __init__(self, hand: Hand, total: int) -> None:
        tx = optax.adam(1e-3)

        def body(state: Any, batch: Any) -> Any:
            params, slots = state
            loss, grads = jax.value_and_grad(loss_of)(params, *batch, total)
            loss, grads = hand.psum((loss, grads))
            changes, slots = tx.update(grads, slots, params)
            return (optax.apply_updates(params, changes), slots), loss

        self._step = hand.step(body)
        params = [jnp.array(p) for p in initial(np.random.default_rng(0))]
        held = jax.device_put((params, tx.init(params)), hand.same)
        self._held = jax.tree.map(jnp.copy, held)

    def __call__(self, batch: Any) -> Any:
        """Makes one step and returns the loss."""
        self._held, loss = self._step(self._held, batch)
        return loss

    def lower(self, batch: Any) -> Any:
        """Returns the lowered program for inspection."""
        return self._step.lower(self._held, batch)


def mlp_step(replicas: int, per_replica: int = PER_REPLICA) -> Pair:
    """Returns a step of the classifier on one batch that stays on the devices."""
    hand = Hand(replicas)
    rng = np.random.default_rng(0)
    total = per_replica * replicas
    x = rng.normal(size=(total, SIZES[0])).astype(np.float32)
    y = rng.integers(0, 10, total).astype(np.int32)
    raw_step = HandMLP(hand, total)
    batch = jax.device_put((x, y), hand.split)

    strategy = uni.distribute.MirroredStrategy(names(replicas))
    step = fed_step(strategy, per_replica)
    parts = strategy.experimental_distribute_values_from_function(
        lambda c: (
            x.reshape(replicas, per_replica, -1)[c.replica_id_in_sync_group],
            y.reshape(replicas, per_replica)[c.replica_id_in_sync_group],
        )
    )

    def lowered() -> tuple[Any, Any]:
        return raw_step.lower(batch), step.lowered(*parts)

    return Pair(lambda: raw_step(batch), lambda: step(*parts), lowered)


def fed_step(strategy: Any, per_replica: int = PER_REPLICA) -> Any:
    """Returns a compiled step of the classifier under a strategy.

    It takes features and labels and returns the loss.
    """
    total = per_replica * strategy.num_replicas_in_sync
    with strategy.scope():
        made = [uni.Variable(p) for p in initial(np.random.default_rng(0))]
        optimizer = uni.optimizers.Optimizer(optax.adam(1e-3), made)

    @uni.function
    def step(x: Any, y: Any) -> Any:
        def replica(x: Any, y: Any) -> Any:
            def loss_fn() -> Any:
                return loss_of([v.value() for v in made], x, y, total)

            loss, grads = uni.value_and_grad(loss_fn, made)()
            optimizer.apply_gradients(zip(grads, made, strict=True))
            return loss

        return strategy.reduce("SUM", strategy.run(replica, args=(x, y)), axis=None)

    return step
