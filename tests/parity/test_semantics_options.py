"""Enums and option records: names, defaults and checks of TensorFlow."""

import pytest

import unisono as tf
from tests.parity.programs import AGGREGATION, MEAN, SUM, SYNCHRONIZATION

experimental = tf.distribute.experimental


@pytest.mark.feature("F08")
def test_reduce_ops_and_what_aggregations_make_of_them():
    assert [(op.name, op.value) for op in tf.distribute.ReduceOp] == [
        ("SUM", "SUM"),
        ("MEAN", "MEAN"),
    ]
    convert = tf.distribute.ReduceOp.from_variable_aggregation
    assert (convert(AGGREGATION.SUM), convert(AGGREGATION.MEAN)) == (SUM, MEAN)
    for aggregation in (AGGREGATION.NONE, AGGREGATION.ONLY_FIRST_REPLICA):
        with pytest.raises(ValueError, match="Could not convert"):
            convert(aggregation)


@pytest.mark.feature("R03")
def test_aggregations_and_synchronizations():
    assert [(a.name, a.value) for a in AGGREGATION] == [
        ("NONE", 0),
        ("SUM", 1),
        ("MEAN", 2),
        ("ONLY_FIRST_REPLICA", 3),
    ]
    assert [(y.name, y.value) for y in SYNCHRONIZATION] == [
        ("AUTO", 0),
        ("NONE", 1),
        ("ON_WRITE", 2),
        ("ON_READ", 3),
    ]


@pytest.mark.feature("O09")
def test_communication_options_have_defaults_and_checks():
    default = experimental.CommunicationOptions()
    assert (default.bytes_per_pack, default.timeout_seconds) == (0, None)
    assert default.implementation.name == "AUTO"
    given = experimental.CommunicationOptions(50, 1.5, "nccl")
    assert (given.bytes_per_pack, given.timeout_seconds) == (50, 1.5)
    assert given.implementation is experimental.CommunicationImplementation.NCCL
    with pytest.raises(ValueError, match="bytes_per_pack"):
        experimental.CommunicationOptions(bytes_per_pack=-1)
    with pytest.raises(ValueError, match="'X' is not a valid"):
        experimental.CommunicationOptions(implementation="x")
    with pytest.raises(ValueError, match="implementation"):
        experimental.CommunicationOptions(implementation=3)
    names = [i.name for i in experimental.CommunicationImplementation]
    assert names == ["AUTO", "RING", "NCCL"]


@pytest.mark.feature("O09")
def test_merged_options_take_what_is_not_a_default():
    make = experimental.CommunicationOptions
    a, b = make(10, 5.0, "RING"), make(timeout_seconds=7.0)
    assert str(a.merge(b)) == (
        "Options(bytes_per_pack=10,timeout_seconds=7.0, "
        "implementation=CommunicationImplementation.RING)"
    )
    assert a.merge(None) == a
    assert b.merge(a) == a


@pytest.mark.feature("O09")
def test_collective_hints_are_communication_options():
    hints = experimental.CollectiveHints(bytes_per_pack=1)
    assert hints == experimental.CommunicationOptions(bytes_per_pack=1)
    assert isinstance(hints, experimental.CommunicationOptions)
    assert isinstance(experimental.CollectiveHints, type)
    assert str(hints) == (
        "Options(bytes_per_pack=1,timeout_seconds=None, "
        "implementation=CommunicationImplementation.AUTO)"
    )
    assert experimental.CollectiveCommunication.RING.name == "RING"


@pytest.mark.feature("D15")
def test_run_options_are_a_tuple_of_three():
    assert repr(tf.distribute.RunOptions()) == (
        "RunOptions(experimental_enable_dynamic_batch_size=True, "
        "experimental_bucketizing_dynamic_shape=False, experimental_xla_options=None)"
    )
