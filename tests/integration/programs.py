"""Small models and their data, the same on every call."""

import contextlib

import jax
import numpy as np

import unisono as uni
from tests import machine


def mirrored(replicas):
    """Returns a strategy over so many devices; None stands for no strategy."""
    if replicas is None:
        return None
    return uni.distribute.MirroredStrategy(machine.names(replicas))


def scope(strategy):
    """Returns the strategy's scope, or a block without effect."""
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def examples(count, features=5, classes=3, seed=0):
    """Returns inputs and integer labels."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, features)).astype("float32")
    return x, rng.integers(0, classes, count).astype("int32")


def difference(a, b):
    """Returns the largest difference between two structures of arrays."""
    left, right = jax.tree.leaves(a), jax.tree.leaves(b)
    assert len(left) == len(right)
    return max(
        float(np.max(np.abs(np.asarray(p, "f8") - np.asarray(q, "f8")), initial=0.0))
        for p, q in zip(left, right)
    )


def names(path):
    """Returns the keys of a checkpoint without what TensorFlow appends to them."""
    return [k.partition("/.ATTR")[0] for k, _ in uni.train.list_variables(path)]
