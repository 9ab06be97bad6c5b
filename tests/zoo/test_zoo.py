"""`check_parity` finds the planted bugs, and lets right programs pass.

A sample by default; all with ``UNISONO_TEST_ZOO=all``.
"""

import os

import pytest

from tests.zoo import bugs, delicate, right, table

_IS_ALL = os.environ.get("UNISONO_TEST_ZOO") == "all"
# One that needs each kind of rule.
_SAMPLE = {
    "mean_of_the_part_under_adam",
    "mean_over_the_tokens_of_the_part",
    "moving_mean_of_the_first_replica",
    "noise_from_one_key",
    "norm_clipped_per_replica",
    "rest_of_the_batch_left_out",
    "weight_decay_on_every_replica",
}
_RIGHT = {"clipped_after_the_sum", "weighted_metric", "accumulated_gradients"}
_DELICATE = {"relu_layers_adam_1", "layers_adam_3_scaled"}
_REPLICAS = (1, 2, 3, 8) if _IS_ALL else (1, 2, 3)


def pick(programs, sample):
    return [pytest.param(p, id=p.name) for p in programs if _IS_ALL or p.name in sample]


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize("program", pick(bugs.BUGS, _SAMPLE))
def test_a_planted_bug_is_found_and_its_cause_named(program):
    report = table.check(program, _REPLICAS)
    assert not report
    assert report.cause.code == program.cause, report


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize("program", pick(delicate.WRONG, _DELICATE))
def test_a_small_bug_is_found_where_rounding_shows(program):
    assert not table.check(program, _REPLICAS)


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize("program", pick(delicate.RIGHT, _DELICATE))
def test_rounding_that_shows_is_no_difference(program):
    report = table.check(program, _REPLICAS)
    assert report, report


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize("program", pick(right.RIGHT, _RIGHT))
def test_a_right_program_passes(program):
    report = table.check(program, _REPLICAS)
    assert report, report


@pytest.mark.needs_devices(8)
def test_an_error_of_a_ten_thousandth_in_one_gradient_is_found():
    program = next(p for p in right.RIGHT if p.name == "average_loss")
    with table.small_error():
        report = table.check(program, (1, 2))
    assert report.differences[0].kind == "gradient", report


def test_the_zoo_is_large_enough():
    links = {p.link for p in bugs.BUGS if p.link}
    assert len(bugs.BUGS) >= 24 and len(links) >= 12 and len(right.RIGHT) >= 60
    assert len(delicate.RIGHT) >= 40 and len(delicate.WRONG) >= 20
