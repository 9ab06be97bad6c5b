"""Entering and leaving the scope of a strategy."""

import pytest

import unisono
from tests.parity.programs import mirrored


def keep(next_creator, **options):
    return next_creator(**options)


def test_a_scope_left_inside_a_creator_scope_leaves_nothing_behind():
    scope = mirrored(2).scope()
    scope.__enter__()
    with (
        pytest.raises(RuntimeError, match="Variable creator scope nesting error"),
        unisono.variable_creator_scope(keep),
    ):
        scope.__exit__(None, None, None)
    assert not unisono.distribute.has_strategy()
    assert unisono.Variable(1.0).distribute_strategy is None


def test_a_strategy_is_not_current_after_its_scope_was_left_in_the_wrong_order():
    scope, creators = mirrored(2).scope(), unisono.variable_creator_scope(keep)
    scope.__enter__()
    creators.__enter__()
    with pytest.raises(RuntimeError, match="Leave that one first"):
        scope.__exit__(None, None, None)
    assert not unisono.distribute.has_strategy()
    creators.__exit__(None, None, None)
    assert not unisono.distribute.has_strategy()


def test_an_error_inside_nested_scopes_reaches_the_program_as_it_is():
    strategy = mirrored(2)
    with (
        pytest.raises(KeyError, match="mine"),
        strategy.scope(),
        unisono.variable_creator_scope(keep),
        strategy.scope(),
    ):
        raise KeyError("mine")
    assert not unisono.distribute.has_strategy()


def test_a_scope_that_was_only_entered_nested_may_be_entered_again():
    strategy = mirrored(2)
    inner = strategy.scope()
    with strategy.scope():
        for _ in range(2):
            with inner:
                assert unisono.distribute.get_strategy() is strategy
    with inner:
        assert unisono.distribute.get_strategy() is strategy
    assert not unisono.distribute.has_strategy()
    with pytest.raises(AttributeError, match="cannot be entered again"):
        inner.__enter__()
