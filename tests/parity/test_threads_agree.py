"""Random programs of several threads change variables as one thread would.

Each thread makes some changes, eagerly, compiled or in a step that calls Python. All of
them add, so that their order is of no matter, and none may be lost.
"""

import functools
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import pytest
from hypothesis import strategies as st

import unisono as tf
from tests import random_programs
from tests.parity.programs import central, copies, mirrored, on_read, plain, variable
from tests.threads import at_once

N = 2


@functools.cache
def made():
    """The variables, and the compiled steps that change them."""
    s = mirrored(N)
    found = {
        "plain": tf.Variable(jnp.zeros(3)),
        "mirrored": variable(s, jnp.zeros(3), "SUM"),
        "on read": on_read(s, jnp.zeros(3)),
        "central": variable(central(N), jnp.zeros(3), "SUM"),
    }
    steps = {
        "step": tf.function(lambda: [found[k].assign_add(jnp.ones(3)) for k in PARTS]),
        "step that prints": tf.function(lambda: tell(found["plain"])),
        "compiled run": tf.function(lambda: s.run(lambda: on_replicas(found))),
    }
    return found, steps


PARTS = ("plain", "mirrored")


def tell(v):
    jax.debug.callback(lambda x: None, v + 0.0)
    v.assign_add(jnp.ones(3))


def on_replicas(found):
    found["mirrored"].assign_add(jnp.full(3, 1.0 / N))
    found["on read"].assign_add(jnp.ones(3))


ROW = tf.IndexedSlices(jnp.ones((1,)), jnp.array([1]))


def update(v):
    mirrored(N).extended.update(v, lambda copy: copy.assign_add(jnp.ones(3)))


def add_to(key):
    return lambda found: found[key].assign_add(jnp.ones(3)), {key: 1}


def add_row_to(key):
    return lambda found: found[key].scatter_add(ROW), {key: 1}


# What each change does, and what it adds to the second element of each variable.
CHANGES: dict[str, Any] = {
    **{f"assign_add {k}": add_to(k) for k in ("plain", "mirrored", "central")},
    **{f"scatter_add {k}": add_row_to(k) for k in ("plain", "mirrored")},
    "assign_sub": (lambda f: f["plain"].assign_sub(jnp.ones(3)), {"plain": -1}),
    "update": (lambda f: update(f["mirrored"]), {"mirrored": 1}),
    "run": (
        lambda f: mirrored(N).run(on_replicas, args=(f,)),
        {"mirrored": 1, "on read": N},
    ),
    "read": (lambda f: [copies(f[k]) for k in ("mirrored", "on read")], {}),
    "step": (lambda f: made()[1]["step"](), dict.fromkeys(PARTS, 1)),
    "step that prints": (lambda f: made()[1]["step that prints"](), {"plain": 1}),
    "compiled run": (
        lambda f: made()[1]["compiled run"](),
        {"mirrored": 1, "on read": N},
    ),
}


def work(found, names):
    return lambda: [CHANGES[name][0](found) for name in names]


PROGRAMS = st.lists(
    st.lists(st.sampled_from(sorted(CHANGES)), min_size=2, max_size=8),
    min_size=2,
    max_size=4,
)


@pytest.mark.needs_devices(N)
@random_programs.tries(8)
@hypothesis.given(PROGRAMS)
def test_threads_lose_no_change(threads):
    found, _ = made()
    for v in found.values():
        v.assign(jnp.zeros(3))
    at_once(*[work(found, names) for names in threads])
    every = [CHANGES[name][1] for names in threads for name in names]
    want = {k: float(sum(added.get(k, 0) for added in every)) for k in found}
    assert {k: plain(v)[1] for k, v in found.items()} == want
