"""TensorSpec and PerReplicaSpec: descriptions of arguments."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests import machine
from unisono._src.execution.specs import PerReplicaSpec


@pytest.mark.parametrize(
    ("shape", "dtype", "value", "fits"),
    [
        ((2,), "float32", jnp.zeros(2), True),
        ((None,), "float32", jnp.zeros(5), True),
        (None, "float32", jnp.zeros([1, 2, 3]), True),
        ((), jnp.int32, jnp.asarray(1), True),
        ((None, 2), "float32", jnp.zeros([3, 2]), True),
        ((2,), "float32", jnp.zeros(3), False),
        ((2,), "float32", jnp.zeros([2, 1]), False),
        ((2,), "int32", jnp.zeros(2), False),
    ],
)
def test_a_spec_fits_arrays_of_its_shape_and_type(shape, dtype, value, fits):
    assert unisono.TensorSpec(shape, dtype).is_compatible_with(value) is fits


def test_specs_compare_by_shape_and_type_but_not_by_name():
    spec = unisono.TensorSpec([None, 2], jnp.float32, name="x")
    assert spec == unisono.TensorSpec((None, 2), "float32")
    assert hash(spec) == hash(unisono.TensorSpec((None, 2), np.float32))
    assert spec != unisono.TensorSpec((None, 2), jnp.int32)
    assert spec != unisono.TensorSpec((3, 2), jnp.float32)
    assert spec != "x"
    assert repr(spec) == "TensorSpec(shape=(None, 2), dtype=float32, name='x')"
    assert isinstance(spec, unisono.TypeSpec)


def test_the_shape_of_a_spec_has_the_methods_of_tensorflow():
    rows = unisono.data.Dataset.from_tensor_slices(np.zeros((8, 3)))
    strategy = unisono.distribute.MirroredStrategy(machine.names(2))
    batches = strategy.experimental_distribute_dataset(rows.batch(4))
    assert rows.batch(4).element_spec.shape.as_list() == [None, 3]
    assert batches.element_spec.specs[0].shape.as_list() == [None, 3]
    assert unisono.TensorSpec(unisono.TensorShape([2, 3])).shape[1:].rank == 1
    unknown = unisono.TensorSpec(None)
    assert unknown.shape.rank is None
    assert repr(unknown) == "TensorSpec(shape=<unknown>, dtype=float32, name=None)"


def test_a_per_replica_spec_has_one_spec_per_replica():
    spec = unisono.TensorSpec((2,))
    both = PerReplicaSpec(spec, spec)
    assert both == PerReplicaSpec(spec, unisono.TensorSpec((2,)))
    assert hash(both) == hash(PerReplicaSpec(spec, spec))
    assert both != PerReplicaSpec(spec)
    assert repr(both).startswith("PerReplicaSpec(TensorSpec(shape=(2,)")


def test_parts_that_a_signature_does_not_describe_are_refused():
    strategy = unisono.distribute.MirroredStrategy(machine.names(2))
    numbers = strategy.experimental_distribute_dataset(
        unisono.data.Dataset.range(21).batch(8)
    )

    @unisono.function(input_signature=[numbers.element_spec])
    def step(x):
        return strategy.reduce("SUM", strategy.run(jnp.sum, args=(x,)), axis=None)

    assert sum(int(step(x)) for x in numbers) == 210
    matrices = unisono.data.Dataset.from_tensors(np.ones((2, 2))).repeat()
    matrix = next(iter(strategy.distribute_datasets_from_function(lambda c: matrices)))
    with pytest.raises(TypeError, match="do not match PerReplicaSpec"):
        step(matrix)


S = unisono.TensorSpec


def test_a_spec_is_made_of_an_array_or_of_another_spec():
    assert S.from_tensor(jnp.zeros([2, 3])) == S((2, 3), "float32")
    assert S.from_tensor(np.array([b"text"], object), "x").name == "x"
    assert S.from_tensor(np.array(["text"])) == S((1,), "string")
    with pytest.raises(ValueError, match="list"):
        S.from_tensor([1, 2])
    named = S((1,), "int32", "a")
    assert S.from_spec(named) == named and S.from_spec(named).name == "a"
    assert S.from_spec(named, "b").name == "b"
    with pytest.raises(TypeError, match="int"):
        S.from_spec(3)


@pytest.mark.parametrize(
    ("one", "other", "want"),
    [
        (S([1]), S([None]), True),
        (S([None]), S([1]), False),
        (S([1]), S(None), True),
        (S(None), S([1]), False),
        (S(None), S(None), True),
        (S([1]), S([1], "int32"), False),
        (S([1], name="a"), S([1]), False),
        (S([1]), S([1], name="a"), True),
        (S([1], name="a"), S([1], name="b"), False),
        (S([1, 2]), S([1]), False),
        (S([1]), unisono.data.DatasetSpec(S([1])), False),
    ],
)
def test_a_spec_may_be_a_special_case_of_another(one, other, want):
    assert one.is_subtype_of(other) is want


def test_a_spec_is_compatible_with_specs_that_may_mean_the_same():
    assert S([None, 2]).is_compatible_with(S([3, None]))
    assert S(None).is_compatible_with(S([3]))
    assert not S([2]).is_compatible_with(S([3]))
    assert not S([2]).is_compatible_with(S([2], "int32"))
    assert not S([2]).is_compatible_with(unisono.data.DatasetSpec(S([2])))
