"""Sphinx extension: the command line, as its own definition describes it."""

from __future__ import annotations

import enum
from typing import Any

import typer.main
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from unisono._src.cli import main as command_line


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _parameter_row(parameter: Any) -> str:
    names = ", ".join(f"`{n}`" for n in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name != "option":
        names = f"`{parameter.name.upper()}`"
    default, said = parameter.default, getattr(parameter, "help", None) or ""
    if isinstance(default, enum.Enum):
        listed = ", ".join(f"`{choice.value}`" for choice in type(default))
        said, default = f"{said} One of {listed}.", default.value
    if isinstance(parameter.envvar, str):
        said += f" Also `{parameter.envvar}`."
    is_shown = isinstance(default, int | float | str) and not isinstance(default, bool)
    value = f"`{default}`" if is_shown else ""
    return f"| {names} | {value} | {_cell(said)} |"


def _describe(command: Any, path: str) -> list[str]:
    """Returns a command and its sub-commands, in Markdown."""
    context = command.make_context(path, [], resilient_parsing=True)
    said = [f"## {path}", "", (command.help or "").strip(), ""]
    children = getattr(command, "list_commands", None)
    if children is None:
        said += [
            "| argument or option | default | what it does |",
            "| --- | --- | --- |",
        ]
        said += [
            _parameter_row(parameter)
            for parameter in command.params
            if not getattr(parameter, "hidden", False)
        ]
        said.append("")
        return said
    for name in children(context):
        said += _describe(command.get_command(context, name), f"{path} {name}")
    return said


class CommandLine(SphinxDirective):
    """Describes every command of the command line."""

    def run(self) -> list[nodes.Node]:
        """Returns the sections of all commands."""
        root: Any = typer.main.get_command(command_line.app)
        context = root.make_context("unisono", [], resilient_parsing=True)
        said = []
        for name in root.list_commands(context):
            said += _describe(root.get_command(context, name), f"unisono {name}")
        found: list[nodes.Node] = self.parse_text_to_nodes(
            "\n".join(said), allow_section_headings=True
        )
        return found


def setup(app: Any) -> dict[str, bool]:
    """Registers the extension."""
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
