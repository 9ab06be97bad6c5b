"""The command line itself: its version, and commands that load when they are used."""

import typer.testing

import unisono
from unisono._src.cli import main


def test_version_is_that_of_the_package():
    result = typer.testing.CliRunner().invoke(main.app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"unisono {unisono.__version__}\n")


def test_a_command_that_does_not_exist_is_named():
    result = typer.testing.CliRunner().invoke(main.app, ["lanch"])
    assert result.exit_code == 2
    assert "lanch" in result.output
