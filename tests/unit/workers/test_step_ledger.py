"""The ledger tells whether a step that is done was the same on all workers."""

import jax.numpy as jnp
import numpy as np

from tests import machine
from unisono._src.machines.topology import Topology
from unisono._src.workers import step_comparison, step_history, step_ledger


def make():
    return step_ledger.StepLedger(Topology.of(machine.names(1)))


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
    compared = step_comparison.StepComparison(None, 0, 0.001)
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
    assert np.asarray(ledger.array).tolist() == [0] * step_ledger.WORDS
