"""Workers compare all that they have done by one mark per step."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests import machine
from unisono._src.machines.topology import Topology
from unisono._src.workers import peers, step_history


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


def make():
    return step_history.StepLedger(Topology.of(machine.names(1)))


def words(count, other_step=0, other_value=0):
    return jnp.asarray([5, 6, count, other_step, other_value], jnp.uint32)


class Unfinished:
    """A ledger of a step that is not done."""

    def is_ready(self):
        return False

    def addressable_data(self, index):
        return self


class Failed(Unfinished):
    def addressable_data(self, index):
        raise RuntimeError("the step has failed")


def test_steps_that_agree_show_no_difference():
    ledger = make()
    assert ledger.find_difference() is None
    ledger.array = words(1)
    assert ledger.find_difference() is None
    assert ledger.count == 1


def test_the_newest_ledger_that_is_there_tells_of_all_steps():
    ledger = make()
    for array in (words(1), words(2, other_step=2), Failed(), Unfinished()):
        ledger.array = array
    assert ledger.find_difference() == (2, False)
    # A later look does not forget it, also if nothing new is there.
    assert ledger.find_difference() == (2, False)
    ledger.array = words(5)
    assert ledger.find_difference() == (2, False)


def test_values_that_differ_are_told_from_steps_that_do():
    ledger = make()
    ledger.array = words(3, other_step=0, other_value=2)
    assert ledger.find_difference() == (2, True)
    later = make()
    later.array = words(3, other_step=2, other_value=2)
    assert later.find_difference() == (2, False)


def test_ledgers_that_nobody_looks_at_do_not_pile_up():
    ledger = make()
    for n in range(1000):
        ledger.array = words(n)
    assert len(ledger._pending) <= 64
    ledger.array = words(1000, other_step=7)
    assert ledger.find_difference() == (7, False)


def test_the_error_names_the_step_that_the_ledger_has_counted():
    compared = peers.StepComparison(None, 0, 0.001)
    ledger = compared.find_ledger(Topology.of(machine.names(1)))
    for label in ("a meeting", "first", "second"):
        counts = None if label == "a meeting" else ledger
        compared.history.add(label, label, counts)
        if counts:
            ledger.array = words(counts.count + 1, other_value=2)
    error = compared.find_difference(lambda: None)
    assert error.step == 3
    assert "'second'" in str(error)


def test_a_step_that_is_taken_back_is_not_counted():
    history, ledger = step_history.StepHistory(), make()
    history.add("a", "a", ledger)
    history.take_back()
    history.add("b", "b", ledger)
    assert history.find_counted(ledger, 1) == 1
    assert [label for _, label in [history.find(1) or (0, "")]] == ["b"]
    assert history.find_counted(ledger, 2) is None
    assert np.asarray(ledger.array).tolist() == [0] * step_history.WORDS
