"""Replicas that take turns: where they meet, and what each leaves to the others."""

import logging
import operator

import jax
import jax.numpy as jnp
import pytest

from tests.parity.programs import (
    context,
    copies,
    device_index,
    index,
    local,
    mirrored,
    number,
    variable,
)

precision = operator.attrgetter("jax_default_matmul_precision")


def run(fn, replicas=2):
    """Runs `fn` eagerly on each replica, and returns the local results."""
    strategy = mirrored(replicas)
    return local(strategy, strategy.run(fn))


def meet(x):
    """Waits for all replicas, and returns the sum of what they give."""
    return context().all_reduce("SUM", x)


def test_replicas_go_on_together_after_each_meeting():
    seen = []

    def replica():
        for turn in range(2):
            seen.append((turn, index()))
            meet(number())

    run(replica)
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_each_replica_computes_on_its_own_device():
    seen = []
    run(lambda: seen.append(device_index(jnp.zeros(2) + 1)))
    assert seen == [0, 1]


def test_replicas_that_meet_differently_often_are_an_error():
    with pytest.raises(RuntimeError, match="merge_call"):
        run(lambda: meet(number()) if index() == 0 else number())


def test_replicas_that_wait_end_when_another_fails():
    ended = []

    def replica():
        if index() == 1:
            raise KeyError("failed")
        try:
            meet(number())
        finally:
            ended.append(index())

    with pytest.raises(KeyError, match="failed"):
        run(replica)
    assert ended == [0]
    # The next run finds everything as it was.
    assert run(lambda: meet(number())) == [3.0, 3.0]


def test_an_error_while_a_replica_is_ended_is_logged(caplog):
    def replica():
        if index() == 1:
            raise KeyError("failed")
        try:
            meet(number())
        finally:
            raise OSError("while ending")

    with caplog.at_level(logging.WARNING, "unisono"), pytest.raises(KeyError):
        run(replica)
    assert "Replica 0 raised an error while it was ended" in caplog.text


def test_a_setting_of_jax_that_one_replica_makes_is_its_own():
    seen = []

    def replica():
        if index() == 0:
            with jax.default_matmul_precision("highest"):
                meet(number())
                seen.append(precision(jax.config))
        else:
            seen.append(precision(jax.config))
            meet(number())

    run(replica)
    assert seen == [None, "highest"]
    assert precision(jax.config) is None


def test_an_invalid_number_names_the_replica_that_computed_it():
    def replica():
        return jnp.log(jnp.float32(-1.0)) if index() == 1 else number()

    with jax.debug_nans(True), pytest.raises(FloatingPointError) as error:
        run(replica)
    assert "It was computed on replica 1." in error.value.__notes__


def test_assignments_are_seen_after_the_replicas_have_met():
    strategy = mirrored(2)
    v = variable(strategy, 1.0, aggregation="SUM")

    def replica():
        v.assign_add(number())
        return v.read_value()

    assert local(strategy, strategy.run(replica)) == [4.0, 4.0]
    assert copies(v) == [4.0, 4.0]
