"""Workers compare all that they have done by one mark per step."""

import pytest

from unisono._src.workers import step_history


def made_of(*labels):
    history = step_history.StepHistory()
    for label in labels:
        history.add(label, label)
    return history


def test_equal_steps_have_equal_marks_and_others_do_not():
    one = made_of("a", "b", "c")
    assert one.mark == made_of("a", "b", "c").mark
    assert one.mark != made_of("b", "a", "c").mark
    assert one.mark != made_of("a", "c").mark


def test_a_step_that_is_taken_back_never_was():
    history = made_of("a", "b")
    history.take_back()
    assert (history.step, history.mark) == (1, made_of("a").mark)
    history.take_back()
    assert (history.step, history.mark) == (0, 0)


def test_only_the_last_steps_are_remembered():
    history = made_of(*(str(k) for k in range(5000)))
    assert history.find(5000) == (history.mark, "4999")
    assert history.find(5000 - 4095)[1] == "904"
    assert [history.find(k) for k in (0, -1, 904, 5001)] == [None] * 4


def test_the_first_difference_is_found_with_both_labels():
    one, two = made_of("a", "b", "c", "d"), made_of("a", "c", "b", "d")
    assert step_history.find_difference(one, two.write()) == (2, "b", "'c'")
    assert step_history.find_difference(one, made_of("a", "b").write()) is None


def test_a_difference_before_all_that_is_remembered_has_no_number():
    same = [str(k) for k in range(5000)]
    one, two = made_of("a", *same), made_of("b", *same)
    assert step_history.find_difference(one, two.write()) is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"labels": [], "steps": [[1, 2, 3]]}', "[1, 2]"],
)
def test_a_malformed_history_is_ignored(text):
    assert step_history.find_difference(made_of("a"), text) is None
