"""Two type checkers read programs as users write them, right ones and wrong ones.

What the types are is said by `assert_type`; what must be an error is marked
``# type: ignore[code]``, and a mark without an error is an error too.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

# Some ten seconds each, but a machine may have other things to do.
pytestmark = pytest.mark.timeout(300)

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = HERE / "programs"
COUNT = len(list(PROGRAMS.glob("*.py")))

CONFIG = ("--config-file", str(PROGRAMS.parent / "mypy.ini"))
MYPY = ("mypy", *CONFIG, str(PROGRAMS))
PYRIGHT = ("basedpyright", "--outputjson", "--project", str(HERE), "--pythonpath")


@pytest.fixture(scope="module")
def checkers():
    """Both checkers, started together: each takes some seconds."""
    commands = {"mypy": MYPY, "basedpyright": (*PYRIGHT, sys.executable)}
    started = {
        name: subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env={**os.environ, "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, command in commands.items()
    }
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


def test_mypy_finds_the_types_and_the_mistakes_that_the_programs_state(checkers):
    output, problems = checkers["mypy"].communicate()
    assert checkers["mypy"].returncode == 0, f"mypy says:\n{output}{problems}"
    assert f"no issues found in {COUNT} source files" in output


def test_pyright_finds_the_types_and_the_mistakes_that_the_programs_state(checkers):
    output, problems = checkers["basedpyright"].communicate()
    assert output.lstrip().startswith("{"), f"basedpyright says:\n{output}{problems}"
    report = json.loads(output)
    lines = [
        f"{entry['file']}:{entry['range']['start']['line'] + 1}: {entry['message']}"
        for entry in report["generalDiagnostics"]
    ]
    assert not lines, "basedpyright says:\n" + "\n".join(lines)
    assert report["summary"]["filesAnalyzed"] == COUNT


def test_the_programs_state_many_types_and_many_mistakes():
    text = "".join(path.read_text("utf-8") for path in PROGRAMS.glob("*.py"))
    assert text.count("assert_type(") > 100
    assert text.count("# type: ignore[") > 30
