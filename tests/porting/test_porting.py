"""Ports beside recordings of TensorFlow; `python -m tests.porting` runs all of them."""

import os

import pytest
import typer.testing

from tests.porting import programs, table
from unisono._src.cli import main

pytest.importorskip("keras")
_ALL = os.environ.get("UNISONO_TEST_ZOO") == "all"
_RIGHT = programs.RIGHT if _ALL else ("fit on two",)
_WRONG = {m.name: m for m in programs.MISTAKES}
_MISTAKES = _WRONG if _ALL else ("mean of the part",)

pytestmark = [pytest.mark.needs_devices(2), pytest.mark.timeout(180)]


def parity(*arguments):
    result = typer.testing.CliRunner().invoke(
        main.app, ["parity", *map(str, arguments)]
    )
    return result.exit_code, result.output


@pytest.mark.parametrize("name", _RIGHT)
def test_a_port_computes_what_tensorflow_did(name, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(programs.PROGRAMS[name].port())
    status, output = parity(script, "--recorded", table.folder_of(name))
    assert status == 0, output
    assert "the same" in output and "step 0" in output


@pytest.mark.parametrize("name", _MISTAKES)
def test_a_mistake_of_a_port_is_found_at_its_place(name):
    mistake = _WRONG[name]
    report = table.compare(mistake.port(), mistake.program)
    assert table.is_found(mistake, report), str(report)
    assert report.cause.code == mistake.cause


def test_a_variable_without_a_partner_is_named_and_can_be_given(tmp_path):
    text = programs.PROGRAMS["no strategy"].port()
    other = text.replace('name="w")', 'name="w")\nother = tf.Variable(np.ones((3, 1)))')
    other = other.replace('name="w"', 'name="weight"').replace(
        "    w.assign", "    other.assign_add(other)\n    w.assign"
    )
    report = table.compare(other, "no strategy")
    assert report.cause.code == "initial-values" and "--map w=..." in str(report)


def test_bad_arguments_have_the_status_2(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("x = 1")
    folder = table.folder_of("no strategy")
    assert parity()[0] == 2
    assert parity(script, "--recorded", tmp_path)[0] == 2
    assert parity(script, "--recorded", folder, "--map", "w")[0] == 2
    status, output = parity(script, "--recorded", folder)
    assert status == 2 and "without a step" in output


def test_the_recorder_is_printed():
    status, output = parity("--record")
    assert status == 0
    compile(output, "record.py", "exec")
