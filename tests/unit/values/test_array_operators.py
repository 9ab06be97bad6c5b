"""Variables and mirrored values as Python's and NumPy's numbers."""

import operator
import re
from typing import Any

import numpy as np
import pytest

import unisono
from tests.parity.programs import central, mirrored, one_device

ON_READ = unisono.VariableSynchronization.ON_READ
AUTO = unisono.VariableSynchronization.AUTO


def make(strategy, value, synchronization=AUTO, aggregation="NONE"):
    with strategy().scope():
        return unisono.Variable(
            value,
            synchronization=synchronization,
            aggregation=unisono.VariableAggregation[aggregation],
        )


def every_kind(value):
    """Returns a variable of each kind, all with one value."""
    kinds = [
        make(strategy, value)
        for strategy in (
            unisono.distribute.get_strategy,
            lambda: mirrored(1),
            lambda: mirrored(2),
            lambda: central(2),
            one_device,
            unisono.distribute.TPUStrategy,
        )
    ]
    first = make(lambda: mirrored(2), value, ON_READ, "ONLY_FIRST_REPLICA")
    return [*kinds, first, *kinds[2].values, kinds[2].assign(value)]


def test_every_kind_of_variable_is_a_number_of_python():
    for v in every_kind(2.5):
        assert (float(v), int(v), bool(v), complex(v)) == (2.5, 2, True, 2.5 + 0j)
        assert (f"{v:.3f}", f"{v:8.2e}") == ("2.500", "2.50e+00")
        assert f"{v}" == str(v)
    assert f"{make(lambda: mirrored(2), 7):04d}" == "0007"
    assert not make(lambda: mirrored(2), 0)


def test_a_sync_on_read_variable_is_the_number_that_it_adds_up_to():
    v = make(lambda: mirrored(2), 1.5, ON_READ, "SUM")
    assert (float(v), int(v), f"{v:.1f}") == (3.0, 3, "3.0")


def test_a_replica_sees_its_own_number():
    strategy = mirrored(2)
    v = make(lambda: strategy, 0.0, ON_READ, "SUM")

    def replica(x):
        v.assign(x)
        return float(v), f"{v:.1f}"

    number, text = strategy.run(replica, (unisono.distribute.PerReplica([1.0, 2.0]),))
    assert (number.values, text.values) == ((1.0, 2.0), ("1.0", "2.0"))


def test_an_array_is_no_number_of_python():
    v = make(lambda: mirrored(2), [1.0, 2.0])
    for convert in (float, int, complex, "{:.2f}".format):
        with pytest.raises(TypeError):
            convert(v)


def test_the_numpy_value_of_a_scalar_is_a_number_that_can_be_a_key():
    for v in [*every_kind(2.5), make(lambda: mirrored(2), 2.5).value()]:
        found = v.numpy()
        assert type(found) is np.float32
        assert 2.5 in {found: "x"}
    assert isinstance(unisono.Variable(1).numpy(), np.int32)
    assert type(unisono.Variable([1]).numpy()) is np.ndarray
    assert np.asarray(unisono.Variable(1)).shape == ()


def test_variables_compute_with_lists():
    v: Any = unisono.Variable([[1.0, 2.0], [3.0, 4.0]])
    pair: Any = [1, 2]
    assert (v * pair).tolist() == (pair * v).tolist() == [[1, 4], [3, 8]]
    assert ([[1.0, 2.0]] @ v).tolist() == [[7, 10]]
    assert (v @ [1, 1]).tolist() == [3, 7]


REFUSED = [
    (operator.iadd, "`variable += value`", "`variable.assign_add(value)`"),
    (operator.isub, "`variable -= value`", "`variable.assign_sub(value)`"),
    (operator.imul, "`var *= value`", "`var.assign(var * value)`"),
    (operator.itruediv, "`var /= value`", "`var.assign(var / value)`"),
    (operator.ipow, "`var **= value`", "`var.assign(var ** value)`"),
]


@pytest.mark.parametrize("change, words, instead", REFUSED)
def test_a_variable_is_not_changed_by_an_operator(change, words, instead):
    v, copies = unisono.Variable([1.0, 2.0]), make(lambda: mirrored(2), 3.0)
    for plain in (v, copies.values[1]):
        expected = f"{words} with `tf.Variable`s is not supported. Use {instead} to"
        with pytest.raises(RuntimeError, match=re.escape(expected)):
            change(plain, 2.0)
    # As in TensorFlow, a mirrored variable gives a new array.
    assert float(change(copies, 2.0)) == float(change(3.0, 2.0))
    assert float(copies) == 3.0


def test_operators_that_tensorflow_does_not_refuse_make_an_array():
    v = unisono.Variable([[7.0]])
    made = [operator.ifloordiv(v, 2.0), operator.imod(v, 2.0), operator.imatmul(v, v)]
    assert [x.tolist() for x in made] == [[[3.0]], [[1.0]], [[49.0]]]
