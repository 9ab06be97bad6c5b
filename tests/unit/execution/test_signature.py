"""Which calls of a compiled function are the same, and what they pass on."""

import collections
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from unisono._src.execution import signature

Pair = collections.namedtuple("Pair", "a b")


@jax.tree_util.register_pytree_node_class
class Box:
    """A user's own pytree."""

    def __init__(self, x):
        self.x = x

    def tree_flatten(self):
        return (self.x,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


def traces(calls):
    """How many traces the calls of one compiled function need."""
    traced = unisono.function(lambda *a, **k: 1)
    for args in calls:
        traced(*args)
    return traced.experimental_get_tracing_count()


@pytest.mark.feature("D12")
@pytest.mark.parametrize(
    ("calls", "count"),
    [
        ([(jnp.zeros(2),), (jnp.ones(2),), (np.ones(2, np.float32),)], 1),
        ([(jnp.zeros(2),), (jnp.zeros(3),)], 2),
        ([(jnp.zeros(2),), (jnp.zeros(2, jnp.int32),)], 2),
        ([(1,), (1,), (2,)], 2),
        ([(1,), (1.0,), (True,)], 3),
        ([("a",), ("a",), ("b",)], 2),
        ([(None,), (None,)], 1),
        ([([jnp.zeros(2)],), ((jnp.zeros(2),),)], 2),
        ([({"a": jnp.zeros(2)},), ({"b": jnp.zeros(2)},)], 2),
        ([(Pair(jnp.zeros(2), 1),), (Pair(jnp.ones(2), 1),)], 1),
        ([(Box(jnp.zeros(2)),), (Box(jnp.ones(2)),)], 1),
        ([(0.0,), (-0.0,)], 2),
        ([(float("nan"),), (float("nan"),)], 1),
    ],
    ids=[
        "arrays", "shapes", "types", "numbers", "kinds-of-numbers", "text", "none",
        "containers", "keys", "namedtuple", "pytree", "signed-zero", "nan",
    ],
)  # fmt: skip
def test_a_call_is_traced_once_per_signature(calls, count):
    assert traces(calls) == count


def test_objects_without_value_are_told_apart_by_identity():
    class Thing:
        pass

    thing = Thing()
    assert traces([(thing,), (thing,), (Thing(),)]) == 2


@pytest.mark.parametrize(
    "tree",
    [
        (jnp.zeros(2), [1, "a", None, (np.ones(3),)]),
        {"b": jnp.zeros(2), "a": {"c": 2.5}},
        Pair(jnp.zeros(()), collections.OrderedDict(z=jnp.ones(1), y=1)),
        (unisono.IndexedSlices(jnp.ones([1, 2]), jnp.asarray([0]), (3, 2)),),
        (),
    ],
)
def test_what_is_flattened_is_rebuilt(tree):
    leaves = []
    rest = signature.flatten(tree, leaves, None)
    hash(rest)
    again = signature.rebuild(rest, iter(leaves))
    structures: list[Any] = [jax.tree.structure(again), jax.tree.structure(tree)]
    assert structures[0] == structures[1]
    pairs = zip(jax.tree.leaves(again), jax.tree.leaves(tree))
    assert all(a is b or a == b for a, b in pairs)


@pytest.mark.feature("D12")
def test_per_replica_values_are_arrays_of_the_call():
    s = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def value(*parts):
        return s.experimental_distribute_values_from_function(
            lambda c: jnp.asarray(parts[c.replica_id_in_sync_group])
        )

    step = unisono.function(lambda x: s.reduce("SUM", s.run(jnp.sum, args=(x,)), None))
    for _ in range(2):
        assert float(step(value([1.0, 2.0], [3.0, 4.0]))) == 10.0
        assert float(step(value([1.0, 2.0], [3.0]))) == 6.0
    assert step.experimental_get_tracing_count() == 2


# input_signature.


def test_an_input_signature_checks_and_converts():
    seen = []

    @unisono.function(input_signature=[unisono.TensorSpec((None,), jnp.float32)])
    def total(x):
        seen.append(x.dtype)
        return jnp.sum(x)

    assert float(total(jnp.ones(3))) == 3.0
    assert float(total([1, 2])) == 3.0
    assert float(total(x=jnp.ones(4))) == 4.0
    assert set(seen) == {jnp.dtype("float32")}
    for wrong in (jnp.ones([2, 2]), jnp.ones(3, jnp.int32)):
        with pytest.raises(TypeError, match="input_signature"):
            total(wrong)
    for args in ((), (jnp.ones(1), jnp.ones(1))):
        with pytest.raises(TypeError):
            total(*args)


def test_an_input_signature_may_be_nested():
    spec = unisono.TensorSpec((2,), jnp.float32)

    @unisono.function(input_signature=[{"a": spec, "b": [spec]}])
    def total(x):
        return jnp.sum(x["a"]) + jnp.sum(x["b"][0])

    assert float(total({"a": jnp.ones(2), "b": [[1.0, 2.0]]})) == 5.0
    with pytest.raises(TypeError, match="input_signature"):
        total({"a": jnp.ones(2), "b": [jnp.ones(3)]})


def test_what_is_no_spec_is_refused():
    wrong = unisono.function(lambda x: x, input_signature=["float32"])
    with pytest.raises(TypeError, match="Expected a TensorSpec"):
        wrong(1.0)


def test_calls_that_mean_the_same_run_one_program():
    def scale(x, training=False, *, by=1.0):
        return x * by if training else x

    f, x = unisono.function(scale), unisono.constant(2.0)
    same = [f(x), f(x, False), f(x=x), f(x, training=False), f(by=1.0, x=x)]
    assert [float(y) for y in same] == [2.0] * 5
    assert f.experimental_get_tracing_count() == 1
    assert float(f(x, True)) == float(f(training=True, x=x)) == 2.0
    assert float(f(x, by=3.0, training=True)) == 6.0
    f.get_concrete_function(x)
    assert f.experimental_get_tracing_count() == 3


def test_any_number_of_arguments_and_defaults_with_values_stay_as_they_are():
    state = unisono.Variable(1.0)

    def count(x, *args, **kwargs):
        return x + len(args) + len(kwargs)

    def add(x, v=state):
        return x + v

    f, g = unisono.function(count), unisono.function(add)
    assert [int(f(1)), int(f(1, 2)), int(f(1, a=2))] == [1, 2, 2]
    assert float(g(1.0)) == 2.0
    state.assign(5.0)
    assert float(g(1.0)) == float(g(1.0, state)) == 6.0
    for wrong in ({}, {"x": 1, "y": 2}):
        with pytest.raises(TypeError):
            g(**wrong)
