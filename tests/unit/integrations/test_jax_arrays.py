"""Arrays have the methods of TensorFlow's tensors that programs call most."""

import json
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests import machine
from tests.unit.integrations import list_operands


def test_every_array_tells_its_shape_as_tensorflow_does():
    seen = []

    def note(x):
        shape = x.get_shape()
        assert isinstance(shape, unisono.TensorShape)
        if not isinstance(x, unisono.Variable):
            x.set_shape([None, 3])
            with pytest.raises(ValueError, match="are incompatible"):
                x.set_shape([2])
        seen.append((shape.as_list(), shape.ndims, shape[-1]))
        return x

    note(jnp.zeros((2, 3)))
    note(unisono.Variable(jnp.zeros((2, 3))))
    unisono.function(note)(jnp.zeros((2, 3)))
    jax.vmap(note)(jnp.zeros((4, 2, 3)))
    note(next(iter(unisono.data.Dataset.from_tensors(jnp.zeros((2, 3))))))
    with unisono.GradientTape() as tape:
        x = unisono.Variable(jnp.zeros((2, 3)))
        tape.watch(x)
        note(x * 2.0)
    assert seen == [([2, 3], 2, 3)] * 6


RECORDED = json.loads(list_operands.FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", RECORDED)
def test_operators_take_lists_as_in_tensorflow(case):
    wanted = RECORDED[case]
    found = list_operands.compute(unisono, case)
    if wanted == "error":
        assert found == "error"
    else:
        assert found[0] == wanted[0]
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-6)


def test_lists_are_operands_in_programs_replicas_and_gradients():
    x = jnp.array([1.0, 2.0])

    def compute(x):
        return x * [2, 3] + (x[1], 1.0) - [0.5, 0.5]

    wanted = [3.5, 6.5]
    assert compute(x).tolist() == unisono.function(compute)(x).tolist() == wanted
    assert jax.jit(compute)(x).tolist() == wanted
    assert jax.vmap(compute)(x[None]).tolist() == [wanted]
    with unisono.GradientTape() as tape:
        tape.watch(x)
        y = compute(x)
    assert tape.gradient(y, x).tolist() == [2.0, 4.0]
    strategy = unisono.distribute.MirroredStrategy(machine.names(2))
    with strategy.scope():
        v = unisono.Variable(x)

    def step():
        rank = unisono.distribute.get_replica_context().replica_id_in_sync_group
        return compute(v * 1.0) * [rank, 1]

    for run in (strategy.run, unisono.function(lambda f: strategy.run(f))):
        found = strategy.experimental_local_results(run(step))
        assert [part.tolist() for part in found] == [[0.0, 6.5], wanted]


def test_a_number_of_a_list_that_does_not_fit_is_refused():
    with pytest.raises(OverflowError, match="300 at \\[1\\] of a list"):
        jnp.array([1, 2], jnp.uint8) * [1, 300]
    with pytest.raises(OverflowError, match="1099511627776"):
        jnp.array([1, 2]) * [1, 2**40]


def test_what_is_no_plain_list_is_left_to_jax_and_to_its_own_class():
    class Pair(list):
        def __radd__(self, other):
            return "mine"

    assert jnp.array([1, 2]) + Pair([1, 2]) == "mine"
    with pytest.raises(TypeError, match="unsupported operand"):
        jnp.array([1, 2]) == {}  # noqa: B015
    with pytest.raises(TypeError, match="PRNGKeyArray"):
        jax.random.key(0) == [1]  # noqa: B015


def test_an_element_of_a_dataset_that_does_not_fit_is_refused_on_either_side():
    (element,) = unisono.data.Dataset.from_tensors(np.array([2**40]))
    array = jnp.asarray([5])
    for compute in (operator.add, operator.mul, operator.sub, operator.lt):
        with pytest.raises(OverflowError, match="1099511627776"):
            compute(array, element)
        with pytest.raises(OverflowError, match="1099511627776"):
            compute(element, array)
