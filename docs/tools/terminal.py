"""Draws what a command printed, as SVG with the colours of the page."""

from __future__ import annotations

import html
from collections.abc import Iterator

import rich.console
import rich.segment
import rich.style
import rich.text

COLUMNS = 88  # As `page_program` tells the command.
_CELL, _LINE, _MARGIN = 7.3, 17, 12
# The colours of a terminal by their numbers.
_NAMES = ("", "red", "green", "yellow", "blue", "magenta", "cyan", "")


def draw(command: str, printed: str) -> str:
    """Returns a picture of a terminal, with a command and what it printed.

    Args:
        command: the command.
        printed: its output, with the colours of a terminal.
    """
    console = rich.console.Console(width=COLUMNS, force_terminal=True)
    output = rich.text.Text.from_ansi(printed.rstrip())
    told = rich.text.Text.assemble(("$ ", "dim"), (command, "bold"), "\n", output)
    lines = console.render_lines(told, pad=False)
    while lines and not "".join(piece.text for piece in lines[-1]).strip():
        lines.pop()
    height = _LINE * len(lines) + 2 * _MARGIN
    width = round(_CELL * COLUMNS + 2 * _MARGIN)
    shapes = "".join(
        shape for row, line in enumerate(lines) for shape in _line(row, line)
    )
    label = html.escape(f"What the command {command} prints: {told.plain}", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="terminal" role="img" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'aria-label="{label}"><rect class="terminal-back" x="0.5" y="0.5" '
        f'width="{width - 1}" height="{height - 1}" rx="6"/>{shapes}</svg>'
    )


def _line(row: int, line: list[rich.segment.Segment]) -> Iterator[str]:
    """Yields the texts of one line, each at its column."""
    column = 0
    for piece in line:
        cells, text = piece.cell_length, piece.text.rstrip()
        if text:
            x, y = _MARGIN + _CELL * column, _MARGIN + _LINE * row + 12
            wide = _CELL * (cells - (len(piece.text) - len(text)))
            shown = html.escape(text).replace(" ", "\N{NO-BREAK SPACE}")
            yield (
                f'<text x="{x:.1f}" y="{y}" textLength="{wide:.1f}" '
                f'class="{_classes(piece.style)}">{shown}</text>'
            )
        column += cells


def _classes(style: rich.style.Style | None) -> str:
    """Returns the classes of a text, which `site.css` gives colours."""
    found = ["terminal-text"]
    if style is not None:
        number = style.color.number if style.color else None
        name = _NAMES[number % 8] if number is not None and number < 16 else ""
        found += [f"terminal-{name}"] if name else []
        found += ["terminal-bold"] if style.bold else []
        found += ["terminal-dim"] if style.dim else []
    return " ".join(found)
