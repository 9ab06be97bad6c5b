"""A fault in any phase is the same error on every other worker, in time.

`UNISONO_TEST_FAULTS=all` tries the whole table, which takes about half an hour;
otherwise eight rows are tried.
"""

import os
import signal

import pytest

import unisono
from tests.multiprocess import fault_table

# A machine that others use, too, takes longer; what is said must be right in any case.
PATIENCE = 4.0
CHOSEN = [
    row
    for row in fault_table.ROWS
    if row.is_quick or os.environ.get("UNISONO_TEST_FAULTS") == "all"
]

pytestmark = pytest.mark.timeout(240)


def test_the_table_has_each_fault_once():
    names = [row.name for row in fault_table.ROWS]
    assert len(set(names)) == len(names) >= 40


@pytest.mark.parametrize("row", CHOSEN, ids=[row.name for row in CHOSEN])
def test_all_survivors_get_the_same_error_in_time(row, tmp_path):
    report = fault_table.run(row, tmp_path)
    for worker, told in report.told.items():
        assert told is not None, f"worker {worker} got no error:\n{report.output}"
        named = told["kind"], told["worker"]
        assert named == (row.error, row.blamed_by(worker)), told["message"]
        assert told["seconds"] < row.seconds * PATIENCE
    assert report.left == []
    saved = tmp_path / "scratch" / "saved"
    if saved.exists():
        # The checkpoint from before the fault is whole, and there is no other.
        unisono.train.load_variable(saved, "v/.ATTRIBUTES/VARIABLE_VALUE")


def test_without_a_coordinator_every_worker_says_why_it_is_aborted(tmp_path):
    row = fault_table.Row("step", "service", 0)
    report = fault_table.run(row, tmp_path)
    assert report.codes == [128 + signal.SIGABRT]
    for worker in range(2):
        said = f"[worker {worker}/2] unisono: XLA or Gloo aborts worker {worker}"
        assert said in report.output
    assert report.output.count("the coordination service cannot be reached") == 2
    assert report.left == []
