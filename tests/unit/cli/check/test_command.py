"""`unisono check` tells what to change in a program, and changes imports itself."""

import difflib
import importlib.util
import json
import os

import hypothesis
import hypothesis.strategies as st
import pytest
import typer.testing

from tests.unit.cli.check import corpus_lines
from unisono._src.cli import main
from unisono._src.cli.check import command, fixes, program_text, verdicts

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


def check_program(folder, **files):
    """Writes the files of a program, and returns what is said of each, by its name."""
    for name, text in files.items():
        path = folder / f"{name.replace('_', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    checked, bad = command.check_files(list(program_text.find_files([folder])))
    assert not bad
    return {
        each.program.path.stem: [(v.use.written, v.status) for _, _, v in each.places()]
        for each in checked
    }


COMMON = "import tensorflow as tf\nfrom tensorflow import nn\n_hidden = tf\n"


@pytest.mark.parametrize(
    ("imports", "uses"),
    [
        ("from .common import *", "tf.raw_ops.X"),
        ("from pack.common import *", "tf.raw_ops.X"),
        ("from pack.common import tf as t", "t.raw_ops.X"),
        ("from . import common", "common.tf.raw_ops.X"),
        ("import pack.common", "pack.common.tf.raw_ops.X"),
        ("import pack.common as c\ntf = c.tf", "tf.raw_ops.X"),
        (
            "def get():\n  from .common import tf\n  return tf\ntf = get()",
            "tf.raw_ops.X",
        ),
    ],
)
def test_names_are_followed_through_the_files_of_a_program(tmp_path, imports, uses):
    found = check_program(
        tmp_path, pack_common=COMMON, pack_main=f"{imports}\n{uses}\n"
    )
    assert found["main"][-1] == (uses, "missing")


def test_a_star_import_brings_what_its_module_lists(tmp_path):
    common = COMMON + "__all__ = ['nn']\n"
    main = "from common import *\nnn.relu(x)\ntf.raw_ops\n"
    found = check_program(tmp_path, common=common, main=main)
    assert found["main"] == [("nn.relu", "same")]


def test_files_that_import_each_other_are_followed(tmp_path):
    found = check_program(
        tmp_path,
        a="from b import *\nimport tensorflow as tf\nnet.fit_generator(x)\n",
        b="from a import tf\nnet = tf.distribute.get_strategy()\ntf.raw_ops.X\n",
    )
    assert found["b"][-1] == ("tf.raw_ops.X", "missing")
    assert found["a"][-1] == ("net.fit_generator", "unknown")


@pytest.mark.parametrize(
    "program",
    [
        "from elsewhere import *\ntf.zeros([2])\n",
        "from elsewhere import tf\n",
        "from elsewhere import get\ntf, other = get()\n",
    ],
)
def test_what_comes_from_elsewhere_is_unknown_and_never_nothing(
    invoke, tmp_path, program
):
    path = tmp_path / "a.py"
    path.write_text(program + "tf.raw_ops.X\n")
    result = invoke(path)
    assert "unknown" in result.stdout and "Give the path" in result.stdout
    assert "missing     tf.raw_ops.X" in result.stdout


def test_keras_before_tensorflow_is_told_to_change_places(tmp_path):
    first = check_program(tmp_path / "1", a="import keras\nimport tensorflow as tf\n")
    assert first["a"] == [("keras", "missing")]
    second = check_program(tmp_path / "2", a="import tensorflow as tf\nimport keras\n")
    assert second["a"] == []
    alone = check_program(tmp_path / "3", a="import keras  # not tensorflow\n")
    assert alone["a"] == []


def test_a_chain_of_calls_is_told_in_the_lines_of_its_names(invoke, tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        "import tensorflow as tf\nx = (\n    tf.data.Dataset\n    .range(3)\n"
        "    .no()\n    .map(f)\n)\n"
    )
    report = json.loads(invoke(path, "--json").stdout)
    places = [(u["name"], u["line"], u["column"]) for u in report["files"][0]["uses"]]
    assert places == [("data.Dataset.range", 4, 6), ("data.Dataset.no", 5, 6)]


def test_nested_choices_and_chains_of_files_are_read_in_time(tmp_path):
    nested = "x"
    for _ in range(60):
        nested = f"(1 if {nested} else getattr(getattr(y, 'a'), 'b'))"
    files = {f"m{i}": f"from m{i + 1} import *\ntf.zeros(1)\n" for i in range(300)}
    branches = "".join(f"if x: a = tf.nn.r{i}\n" for i in range(1000)) + "a()\n" * 99
    files["m300"] = f"import tensorflow as tf\nx = {nested}\n{branches}"
    found = check_program(tmp_path, **files)
    assert found["m0"] == [("tf.zeros", "same")]


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
---
from a import *; from a import tf as b; import a.b; from .. import c; __all__ = [tf]
---
import keras; from keras import *; tf1, [tf, *x] = f(); __all__ += ["x"]
---
@tf.function
def k(x):
    with tf.GradientTape():
        while tf.abs(x) > [1]: x = tf.abs(x).shape.as_list() + tf.abs(x).dtype.max
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


@pytest.mark.skipif(
    importlib.util.find_spec("keras") is None, reason="Keras is not installed"
)
def test_the_lines_of_a_corpus_are_judged_rightly_without_false_alarms():
    lines, wrong, alarms = corpus_lines.measure()
    assert lines > 800
    assert len(wrong) <= 0.03 * lines, "\n".join(wrong)
    assert len(alarms) <= 0.02 * lines, "\n".join(alarms)


def test_the_corpus_has_forty_programs_of_every_status():
    programs = list(corpus_lines.CORPUS.rglob("*.py"))
    assert len(programs) >= 40
    marks = {
        mark[0]
        for path in programs
        for mark in corpus_lines.expectations(path).values()
    }
    assert marks == {*verdicts.ORDER, "(missing)"} - {verdicts.SAME}
