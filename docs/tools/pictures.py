"""Sphinx extension: drawings and plots as SVG in the page.

They take their colours from the page, so one picture serves light and dark. A plot is
made from a result file in ``docs/performance/results`` that says by which command, with
which versions, on which machine and when it was measured; without one the build fails.
"""

from __future__ import annotations

import html
import json
import pathlib
import tomllib
from collections.abc import Callable, Sequence
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

DOCS = pathlib.Path(__file__).parents[1]
RESULTS = DOCS / "performance" / "results"
NEEDED = ("command", "versions", "machine", "date", "figures")

_LINE = "var(--pst-color-text-muted)"
_FILLS = {
    "calm": "var(--pst-color-primary-bg)",
    "warm": "var(--pst-color-warning-bg)",
    "fresh": "var(--pst-color-success-bg)",
    "plain": "var(--pst-color-surface)",
}


class Drawing:
    """Collects the shapes of a picture.

    Args:
        width: its width in units of the picture.
        height: its height.
        title: what it shows, in words, for those who cannot see it.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = (width, height)
        self._title = title
        self._shapes: list[str] = []

    def box(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        text: str = "",
        fill: str = "plain",
    ) -> None:
        """Draws a box with a text in its middle."""
        self._shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="3" '
            f'style="fill:{_FILLS[fill]};stroke:{_LINE}"/>'
        )
        if text:
            self.text(x + w / 2, y + h / 2 + 4, text, "middle")

    def text(self, x: float, y: float, text: str, anchor: str = "start") -> None:
        """Writes a line of text."""
        self._shapes.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" '
            f'style="fill:currentColor;font-size:12px">{html.escape(text)}</text>'
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, dashed: bool = False
    ) -> None:
        """Draws a line."""
        dash = ";stroke-dasharray:4 3" if dashed else ""
        self._shapes.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" '
            f'style="stroke:{_LINE}{dash}"/>'
        )

    def svg(self) -> str:
        """Returns the picture."""
        width, height = self._size
        title = html.escape(self._title)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="{title}">'
            f"<title>{title}</title>{''.join(self._shapes)}</svg>"
        )


def architecture() -> Drawing:
    """Draws the rooms of the package, from import-linter's list of layers."""
    contracts = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))
    layers = contracts["tool"]["importlinter"]["contracts"][0]["layers"]
    told = _room_words()
    drawing = Drawing(
        680,
        40 * len(layers) + 50,
        "The rooms of the package from top to ground: " + ", ".join(layers),
    )
    drawing.box(
        20, 6, 640, 30, "your program: unisono.distribute, unisono.data, …", "calm"
    )
    for number, layer in enumerate(layers):
        y = 46 + 40 * number
        drawing.box(20, y, 130, 32, layer, "fresh")
        drawing.text(162, y + 20, told.get(layer, ""))
    return drawing


def _room_words() -> dict[str, str]:
    """Returns what is in each room, from the table in CONTRIBUTING.md."""
    found = {}
    for line in (DOCS.parent / "CONTRIBUTING.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 2 and cells[0].startswith("`") and cells[0].endswith("/`"):
            words = cells[1].replace("`", "").partition(":")
            said = words[2].strip() if len(words[0]) < 14 and words[2] else cells[1]
            found[cells[0].strip("`/")] = said.replace("`", "")[:78]
    found.setdefault("input", "datasets, loaders, and who reads what")
    return found


def timeline() -> Drawing:
    """Draws one step on one replica and on eight, over time."""
    drawing = Drawing(
        680,
        330,
        "One step over time. On one replica: forward, backward, update. On eight "
        "replicas: each has an eighth of the batch; the gradients are summed between "
        "backward and update; Python prepares the next step meanwhile.",
    )
    drawing.text(20, 18, "1 replica: the whole batch")
    drawing.box(120, 26, 250, 24, "forward", "calm")
    drawing.box(370, 26, 250, 24, "backward", "calm")
    drawing.box(620, 26, 40, 24, "upd.", "fresh")
    drawing.text(20, 43, "device 0")
    drawing.text(20, 82, "8 replicas: an eighth of the batch each, the same numbers")
    for replica in range(8):
        y = 90 + 22 * replica
        drawing.text(20, y + 15, f"device {replica}")
        drawing.box(120, y, 60, 18, "forward", "calm")
        drawing.box(180, y, 64, 18, "backward", "calm")
        drawing.box(320, y, 40, 18, "upd.", "fresh")
    drawing.box(248, 90, 68, 172, "all-reduce", "warm")
    drawing.text(20, 291, "Python")
    drawing.box(120, 276, 30, 22, "call", "plain")
    drawing.box(150, 276, 110, 22, "next batch", "plain")
    drawing.box(260, 276, 30, 22, "call", "plain")
    drawing.line(360, 84, 360, 304, dashed=True)
    drawing.text(
        20, 322, "time → (not to scale: profile your own program to see yours)"
    )
    return drawing


def _read(name: str) -> dict[str, Any]:
    """Returns a result file.

    Raises:
        ValueError: it does not exist, or lacks where its figures come from.
    """
    path = RESULTS / f"{name}.json"
    if not path.exists():
        raise ValueError(f"There is no result file {path.relative_to(DOCS.parent)}.")
    found = json.loads(path.read_text("utf-8"))
    missing = [key for key in NEEDED if not found.get(key)]
    if missing:
        raise ValueError(f"{path.relative_to(DOCS.parent)} does not say {missing}.")
    return found


def bars(results: dict[str, Any]) -> Drawing:
    """Draws the figures of a result file as horizontal bars.

    With a `reference`, such as 1 for a ratio, there is a line at that value.
    """
    figures: Sequence[dict[str, Any]] = results["figures"]
    unit, reference = results.get("unit", ""), results.get("reference")
    most = max([f["value"] for f in figures] + [reference or 0])
    drawing = Drawing(
        680,
        26 * len(figures) + (34 if reference else 10),
        f"{results['title']}: "
        + "; ".join(f"{f['name']} {f['value']:g} {unit}" for f in figures),
    )
    for number, figure in enumerate(figures):
        y = 8 + 26 * number
        drawing.text(230, y + 14, figure["name"], "end")
        width = 340 * figure["value"] / most
        drawing.box(240, y, max(width, 1), 19, "", figure.get("fill", "calm"))
        drawing.text(246 + width, y + 14, f"{figure['value']:g} {unit}")
    if reference:
        x = 240 + 340 * reference / most
        drawing.line(x, 2, x, 26 * len(figures) + 10, dashed=True)
        told = results.get("reference_name", f"{reference:g}")
        drawing.text(x, 26 * len(figures) + 26, told, "middle")
    return drawing


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "architecture": architecture,
    "timeline": timeline,
}


def _source(results: dict[str, Any]) -> str:
    versions = ", ".join(f"{k} {v}" for k, v in results["versions"].items())
    return (
        f"`{results['command']}`, {results['date']}, on {results['machine']}, with "
        f"{versions}."
    )


class Picture(SphinxDirective):
    """Shows a drawing, or the plot of a result file."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns the picture, and for a plot where its figures come from."""
        name = self.arguments[0]
        if name in DRAWINGS:
            self.env.note_dependency(str(DOCS.parent / "pyproject.toml"))
            return [self._figure(DRAWINGS[name]())]
        try:
            results = _read(name)
        except ValueError as error:
            raise self.error(str(error)) from error
        self.env.note_dependency(str(RESULTS / f"{name}.json"))
        told = self.parse_text_to_nodes(f"*{results['title']}.* {_source(results)}")
        for node in told:
            node["classes"].append("picture-source")
        return [self._figure(bars(results)), *told]

    def _figure(self, drawing: Drawing) -> nodes.Node:
        shown = f'<div class="picture" tabindex="0">{drawing.svg()}</div>'
        return nodes.raw("", shown, format="html")


def setup(app: Any) -> dict[str, bool]:
    """Registers the extension."""
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
