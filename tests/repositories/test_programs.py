"""Programs as repositories write them print TensorFlow's numbers."""

import json

import pytest

from tests.repositories import record, running
from unisono._src.cli.check import command, program_text, verdicts

# What is told of 64 bits and of other libraries is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore")
RECORDED = json.loads(record.PATH.read_text(encoding="utf-8"))["programs"]


def test_the_check_calls_nothing_missing_that_runs():
    checked, _ = command.check_files(list(program_text.find_files([running.FOLDER])))
    missing = {
        (each.program.path.stem, verdict.told.partition(" ")[0])
        for each in checked
        for _, _, verdict in each.places()
        if verdict.status == verdicts.MISSING
    }
    # A dataset calls the function in which it stands, so that it runs on the host.
    assert [name for name, _ in missing] == ["yolo"]


@pytest.mark.parametrize("name", running.PROGRAMS)
def test_a_program_prints_the_numbers_of_tensorflow(name, tmp_path):
    mine = running.run(name, "unisono", tmp_path)
    assert running.difference(mine, RECORDED[name]) is None
