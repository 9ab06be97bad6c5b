"""What a worker expects to be the next step, by those before."""

import random

import pytest

from unisono._src.workers import step_agreement


def count_surprises(steps):
    """Returns how many of the steps were not to be expected."""
    forecast = step_agreement.StepForecast()
    return sum(not forecast.expects(step) for step in steps)


@pytest.mark.parametrize(
    ("round_", "surprises"),
    [("t", 0), ("dg", 0), ("aaau", 0), ("aaaaaaau", 0), ("t" * 100 + "e" * 10, 4)],
)
def test_a_program_that_repeats_itself_hardly_surprises(round_, surprises):
    # The first rounds are to be learned from.
    learning = count_surprises(round_ * 4)
    assert learning <= 20
    assert count_surprises(round_ * 54) - learning <= 50 * surprises


def test_of_workers_that_differ_at_most_one_does_what_was_to_be_expected():
    for seed in range(200):
        source = random.Random(seed)
        past = source.choices("abc", k=source.randrange(40))
        made = [step_agreement.StepForecast() for _ in range(2)]
        for step in past:
            assert len({forecast.expects(step) for forecast in made}) == 1
        first, second = source.sample("abcd", 2)
        assert not (made[0].expects(first) and made[1].expects(second))


def test_a_step_that_was_taken_back_teaches_nothing():
    first, second = (step_agreement.StepForecast() for _ in range(2))
    for step in "ababab":
        assert not (first.expects("c") or first.take_back())
        assert first.expects(step) == second.expects(step)


def test_ever_new_steps_take_a_bounded_memory(monkeypatch):
    monkeypatch.setattr(step_agreement, "_LARGEST", 10)
    forecast = step_agreement.StepForecast()
    for number in range(100):
        assert not forecast.expects(str(number))
    assert len(forecast._places) <= 12
