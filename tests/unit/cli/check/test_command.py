"""`unisono check` tells what to change in a program, and changes imports itself."""

import difflib
import json
import os

import hypothesis
import hypothesis.strategies as st
import pytest
import typer.testing

from unisono._src.cli import main
from unisono._src.cli.check import command, fixes, program_text

PROGRAM = """\
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    v = tf.Variable(1.0)
print(tf.__version__)
"""


@pytest.fixture
def invoke():
    def run(*arguments):
        return typer.testing.CliRunner().invoke(
            main.app, ["check", *map(str, arguments)]
        )

    return run


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def notebook(*cells):
    return json.dumps(
        {"cells": [{"cell_type": "code", "source": c} for c in cells], "nbformat": 4},
        indent=1,
    )


def test_a_program_that_runs_exits_with_0(invoke, program):
    result = invoke(program)
    assert result.exit_code == 0
    assert "3  same        tf.distribute.MirroredStrategy" in result.stdout
    assert (
        "6  differs     tf.__version__: It is the version of unisono." in result.stdout
    )
    assert "4 of 4 uses run as they are, 1 of them with a difference." in result.stdout
    assert "same" not in invoke(program, "--brief").stdout


def test_a_missing_name_exits_with_1(invoke, program):
    program.write_text(PROGRAM + "tf.strings.ngrams(x)\n")
    result = invoke(program.parent)
    assert result.exit_code == 1
    assert "7  missing     tf.strings.ngrams: Use the methods of Py" in result.stdout
    assert "4 of 5 uses run as they are, 1 of them" in result.stdout


def test_the_report_can_be_read_by_programs(invoke, program):
    program.write_text(PROGRAM + "tf.strings.ngrams(x)\n")
    report = json.loads(invoke(program, "--json").stdout)
    assert report["summary"] == {
        "same": 3, "differs": 1, "renamed": 0, "unknown": 0, "missing": 1,
        "uses": 5, "unchanged": 4,
    }  # fmt: skip
    last = report["files"][0]["uses"][-1]
    assert (last["line"], last["name"], last["status"]) == (
        7,
        "strings.ngrams",
        "missing",
    )


@pytest.mark.parametrize(
    ("name", "contents", "said"),
    [
        ("a.py", b"def f(:\n", "not Python"),
        ("a.py", b"\xff\xfe\x00", "not "),
        ("a.py", b"# coding: nonsense\n", "not Python"),
        ("a.py", b"x = '\x00'", "not "),
        ("a.py", b"(" * 10000, "not Python"),
        ("a.py", b"-" * 100000 + b"1", "nested too deeply"),
        ("a.ipynb", b"{", "not a Python program"),
        ("a.ipynb", b"[]", "no list of cells"),
        ("a.ipynb", b'{"cells": [3]}', "not a cell"),
        ("a.ipynb", notebook("x = ").encode(), "in cell 1"),
    ],
)
def test_a_file_that_is_not_python_is_an_error_with_its_name(
    invoke, program, tmp_path, name, contents, said
):
    path = tmp_path / name
    path.write_bytes(contents)
    result = invoke(tmp_path, "--json")
    assert result.exit_code == 2
    assert f"{path}: " in result.stderr and said in result.stderr
    assert json.loads(result.stdout)["summary"]["uses"] == 4  # Of the other file.


def test_a_path_of_odd_characters_is_shown(invoke, tmp_path):
    path = tmp_path / "a\x1b\udcff.py"
    path.write_text("import tensorflow as tf\ntf.raw_ops")
    for flags in ([], ["--fix"], ["--json"]):
        result = typer.testing.CliRunner().invoke(
            main.app, ["check", str(tmp_path), *flags]
        )
        assert result.exit_code == 1
        assert "\x1b" not in result.stdout
    assert r"a\x1b\udcff.py" in invoke(tmp_path).stdout


def test_wrong_arguments_are_refused(invoke, program, tmp_path):
    assert "does not exist" in invoke(tmp_path / "no.py").stderr
    (tmp_path / "empty").mkdir()
    assert "no Python files" in invoke(tmp_path / "empty").stderr
    for flags in (["--write"], ["--fix", "--json"]):
        assert invoke(program, *flags).exit_code == 2


def test_fix_shows_a_diff_and_writes_if_asked(invoke, program):
    shown = invoke(program, "--fix")
    assert "-import tensorflow as tf\n+import unisono as tf\n" in shown.stdout
    assert program.read_text() == PROGRAM
    invoke(program, "--fix", "--write")
    assert program.read_text() == PROGRAM.replace("tensorflow", "unisono")
    again = invoke(program, "--fix", "--write")
    assert again.stdout == "0 of 1 files changed.\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import tensorflow\n", "import unisono as tensorflow\n"),
        ("import os, tensorflow as tf\n", "import os, unisono as tf\n"),
        ("import tensorflow.compat.v2 as tf\n", "import unisono as tf\n"),
        ("import tensorflow.compat.v1 as tf\n", "import unisono.compat.v1 as tf\n"),
        ("from tensorflow import nn\n", "from unisono import nn\n"),
        (
            "from   tensorflow.keras.layers import (\n    Dense,\n)\n",
            "from   unisono.keras.layers import (\n    Dense,\n)\n",
        ),
        ("'é'; import tensorflow as tf\r\n", "'é'; import unisono as tf\r\n"),
        (
            "import tensorflow as tf\nx = tf.compat.v2.nn  # é\n",
            "import unisono as tf\nx = tf.nn  # é\n",
        ),
        ("from tensorflow.python import x\n", "from tensorflow.python import x\n"),
        ("import tensorflow_text as t\n", "import tensorflow_text as t\n"),
    ],
)
def test_imports_and_names_are_changed_and_nothing_else(tmp_path, before, after):
    path = tmp_path / "a.py"
    for text in (before, after):
        path.write_bytes(text.encode())
        ((each,), _) = command.check_files([path])
        assert fixes.fix(each.program, each.verdicts) == after


def test_notebooks_are_read_without_their_magic(invoke, tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_text(
        notebook(
            "!pip \\\n  tensorflow\n%matplotlib inline\nimport tensorflow as tf",
            ["files = !ls\n", "if files:\n", "    !ls\n", "tf.Variable(3)"],
            "tf.Variable(\n  3\n  % 2\n)",
            "%%bash\nimport tensorflow as tf",
            "%%writefile worker.py\nimport tensorflow as tf\ntf.function",
        )
    )  # fmt: skip
    report = json.loads(invoke(path, "--json").stdout)
    seen = [(u["cell"], u["line"], u["name"]) for u in report["files"][0]["uses"]]
    assert seen == [(2, 4, "Variable"), (3, 1, "Variable"), (5, 3, "function")]
    invoke(path, "--fix", "--write")
    cells = [cell["source"] for cell in json.loads(path.read_text())["cells"]]
    assert cells[0].endswith("%matplotlib inline\nimport unisono as tf")
    assert cells[1][0] == "files = !ls\n"
    assert cells[3] == "%%bash\nimport tensorflow as tf"
    assert "0 of 1 files" in invoke(path, "--fix", "--write").stdout


ODD = """\
import tensorflow as tf
---
from tensorflow import *
---
tf = tf.nn
---
tf.a.b.c; tf.keras.X(); tf()(); f().x; f(tf)
---
for tf in tf: tf
---
with tf.GradientTape() as tf, tf as (a, *b): tf.x = a
---
del tf, tf.x
---
class tf(tf.Module, x=tf): self.x = tf.Variable(1); self.x.y
---
lambda tf, *a, **k: tf.x
---
def f(self, x: tf.Tensor = tf.x, /, *a: tf.y) -> tf.z: self.x = tf; return self.x.y
---
@tf.function()
def g(x):
    while x: return g(tf.size(x))
---
[tf.x for tf.y in tf if (tf := 1)]
---
match tf:
    case tf.Tensor(x=y): tf
---
try: tf
except* tf.errors.X as tf: tf
---
async def h():
    async with tf as x: await tf.x
---
getattr(tf, tf.x)(getattr(tf, "x").y)
---
global tf
---
x = y = tf.Variable; a, b = tf.x, tf.y; tf.x: tf.y = tf.z; tf.x[tf.y] = tf
---
f"{tf.x!r:{tf.y}}"; print(*tf.x, **tf.y); (tf.x if tf else tf).y
---
import tensorflow.keras.layers, tensorflow_text as tf
---
import unisono; unisono.distribute.MirroredStrategy().run().x
"""
PIECES = ODD.split("---\n")
PROGRAMS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


@hypothesis.settings(max_examples=60)
@hypothesis.given(PROGRAMS | st.text(max_size=60))
def test_no_program_ends_in_a_traceback(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("odd") / "a.py"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    checked, bad = command.check_files([path])
    assert len(checked) + len(bad) == 1
    for each in checked:
        fixes.fix(each.program, each.verdicts)


@pytest.mark.parametrize("name", ["pipe.py", "pipe.ipynb"])
def test_a_pipe_is_refused_without_waiting_for_it(invoke, tmp_path, name):
    os.mkfifo(tmp_path / name)
    result = invoke(tmp_path / name)
    assert result.exit_code == 2
    assert f"{name}: it is no regular file" in result.output
    # In a folder it is no program.
    result = invoke(tmp_path)
    assert "has no Python files or notebooks" in result.output


def test_a_file_that_is_too_long_for_a_program_is_refused(
    invoke, tmp_path, monkeypatch
):
    monkeypatch.setattr(program_text, "_MOST_CODE", 100)
    path, cells = tmp_path / "long.py", tmp_path / "long.ipynb"
    path.write_text("x = 1\n" * 100)
    cells.write_text(notebook("x = 1\n" * 100))
    result = invoke(path, cells)
    assert result.exit_code == 2
    assert "long.py: it has more than 100 bytes" in result.output
    assert "long.ipynb: cell 1 has more than 100 characters" in result.output


LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n"]), max_size=40)


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(LINES, LINES, st.data())
def test_lines_are_compared_one_by_one_and_shown_as_difflib_does(lines, new, data):
    old = [f"{i} {line}" for i, line in enumerate(lines)]
    changed = [f"{i} {line}" for i, line in enumerate(lines)]
    for i, line in enumerate(new[: len(old)]):
        if data.draw(st.booleans()):
            changed[i] = f"new {i} {line}"
    shown = list(fixes._compare_lines(old, changed, "old", "new"))
    assert shown == list(difflib.unified_diff(old, changed, "old", "new"))


def test_a_long_program_of_changes_is_not_searched_for_lines_that_moved(
    tmp_path, monkeypatch
):
    # Its time would grow with the square of the lines, or worse.
    monkeypatch.delattr(difflib, "unified_diff")
    path = tmp_path / "long.py"
    path.write_text("import tensorflow as tf\nx = 1\n" * 2000)
    [checked], _ = command.check_files([path])
    fixed = fixes.fix(checked.program, checked.verdicts)
    assert fixes.show(checked.program, fixed).count("+import unisono as tf\n") == 2000
