"""`unisono checkpoint`: what a person sees, without a backend being started."""

import json
import pathlib
import subprocess
import sys

import jax.numpy as jnp
import pytest
import typer.testing

import unisono as uni
from unisono._src.cli import main


@pytest.fixture
def invoke(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        return typer.testing.CliRunner().invoke(main.app, list(map(str, arguments)))

    return run


class Position:
    at = 3

    def get_state(self):
        return {"at": self.at}

    def set_state(self, state):
        self.at = state["at"]


@pytest.fixture
def saved(tmp_path):
    """A directory with two checkpoints that differ in the weights and the epoch."""
    w = uni.Variable(jnp.ones((3, 4)), name="w")
    checkpoint = uni.train.Checkpoint(
        w=w, b=uni.Variable([1, 2]), data=Position(), epoch=1, gone=2
    )
    checkpoint.save(tmp_path / "ckpt")
    w.assign(w.value().at[0, 0].set(5.0))
    checkpoint.epoch = 2
    checkpoint.data.at = 9
    checkpoint.gone = None
    checkpoint.new = "x"
    checkpoint.save(tmp_path / "ckpt")
    return tmp_path


def lines_with(text, *words):
    return [x for x in text.splitlines() if all(w in x for w in words)]


def test_show_prints_name_shape_type_bytes_step_and_data_position(saved, invoke):
    result = invoke("checkpoint", "show", saved / "ckpt-1")
    assert result.exit_code == 0
    assert lines_with(result.output, "ckpt-1, number 1, saved 20")
    assert lines_with(result.output, "w ", "variable", "3×4", "float32", "48")
    assert lines_with(result.output, "data", "state", "{'at': 3}")
    assert lines_with(result.output, "epoch", "plain", "1")
    assert lines_with(result.output, "save_counter", "scalar", "int32")


def test_show_of_a_directory_shows_the_newest(saved, invoke):
    assert "ckpt-2" in invoke("checkpoint", "show", saved).output


def test_verify_tells_whole_from_damaged(saved, invoke):
    result = invoke("checkpoint", "verify", saved)
    assert result.exit_code == 0
    assert len(lines_with(result.output, "whole", "files")) == 2
    bad = max(
        (p for p in (saved / "ckpt-2").rglob("*") if p.is_file()),
        key=lambda p: p.stat().st_size,
    )
    bad.write_bytes(b"\0" * bad.stat().st_size)
    result = invoke("checkpoint", "verify", saved)
    assert result.exit_code == 1
    assert lines_with(result.output, "damaged", "ckpt-2", bad.name)
    assert lines_with(result.output, "whole", "ckpt-1")
    assert invoke("checkpoint", "verify", saved / "ckpt-2").exit_code == 1


def test_diff_shows_what_was_added_removed_and_changed(saved, invoke):
    result = invoke("checkpoint", "diff", saved / "ckpt-1", saved / "ckpt-2")
    assert result.exit_code == 1
    assert lines_with(result.output, "~", "w ", "1 of 12 elements differ")
    assert lines_with(result.output, "~", "epoch", "1", "2")
    assert lines_with(result.output, "~", "data", "{'at': 3}", "{'at': 9}")
    assert lines_with(result.output, "+", "new", "'x'")
    assert lines_with(result.output, "-", "gone", "2")
    assert not lines_with(result.output, "│ b ")
    same = invoke("checkpoint", "diff", saved / "ckpt-1", saved / "ckpt-1")
    assert (same.exit_code, same.output) == (0, "no difference\n")


@pytest.mark.parametrize("command", ["show", "verify", "diff"])
def test_what_is_not_there_is_said_without_a_traceback(saved, invoke, command):
    more = [saved / "ckpt-1"] if command == "diff" else []
    result = invoke("checkpoint", command, saved / "none", *more)
    assert result.exit_code != 0
    assert "There is no checkpoint" in result.output
    assert "Traceback" not in result.output


def test_names_and_strings_cannot_steer_the_terminal(tmp_path, invoke):
    path = uni.train.Checkpoint(
        d={"\x1b[2J[bold]": uni.Variable(1.0)}, text="\x1b]0;title\x07"
    ).write(tmp_path / "c")
    result = invoke("checkpoint", "show", path)
    assert "\x1b" not in result.output
    assert "[bold]" in result.output


def test_the_command_starts_no_backend(saved):
    code = f"""
import json, sys
from unisono._src.cli import main
for arguments in (["show"], ["verify"], ["diff", {str(saved / "ckpt-1")!r}]):
    try:
        main.app(["checkpoint", *arguments, {str(saved / "ckpt-2")!r}])
    except SystemExit:
        pass
from jax._src import xla_bridge
print(json.dumps(list(xla_bridge._backends)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert "elements differ" in done.stdout
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_the_console_script_is_declared():
    text = (pathlib.Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8")
    assert 'unisono = "unisono._src.cli.main:main"' in text
