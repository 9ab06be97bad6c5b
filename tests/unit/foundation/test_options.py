"""What may be given where an enum member or option record is expected."""

import dataclasses

import pytest

from unisono._src.foundation import options


@pytest.mark.feature("F09")
@pytest.mark.parametrize(
    ("given", "want"),
    [
        (options.ReduceOp.SUM, "SUM"),
        ("SUM", "SUM"),
        ("sum", "SUM"),
        ("Mean", "MEAN"),
        (options.VariableAggregation.SUM, "SUM"),
        (options.VariableAggregation.MEAN, "MEAN"),
    ],
)
def test_a_reduce_op_is_a_member_a_name_or_an_aggregation(given, want):
    assert options.reduce_op(given).name == want


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("MAX", ValueError),
        (options.VariableAggregation.NONE, ValueError),
        (options.VariableAggregation.ONLY_FIRST_REPLICA, ValueError),
        (None, AssertionError),
        (1, AssertionError),
        (options.VariableSynchronization.ON_READ, AssertionError),
    ],
)
def test_other_reduce_ops_are_refused(given, error):
    with pytest.raises(error):
        options.reduce_op(given)


def test_communication_options_are_frozen_and_compare_by_value():
    made = options.CommunicationOptions(1, 2.0, "ring")
    assert made == options.CommunicationOptions(
        1, 2.0, options.CommunicationImplementation.RING
    )
    assert hash(made) == hash(dataclasses.replace(made))
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.bytes_per_pack = 3  # type: ignore[misc]


def test_wrong_arguments_of_a_variable_are_refused_with_its_name():
    with pytest.raises(ValueError, match="mode: sum for variable: v"):
        options.variable_aggregation("sum", "v")
    with pytest.raises(ValueError, match="mode: on_read for variable: v"):
        options.variable_synchronization("on_read", "v")
