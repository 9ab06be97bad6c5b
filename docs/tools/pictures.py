"""Sphinx extension: drawings and plots as SVG in the page.

They take their colours from the page, so one picture serves light and dark. A plot is
made from a result file in ``docs/performance/results`` that says by which command, with
which versions, on which machine and when it was measured; without one the build fails.
So does a measured number in the text of the page about performance.
"""

from __future__ import annotations

import html
import json
import pathlib
import re
import textwrap
import tomllib
from collections.abc import Callable, Sequence
from typing import Any

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

_LOG = logging.getLogger(__name__)
DOCS = pathlib.Path(__file__).parents[1]
RESULTS = DOCS / "performance" / "results"
NEEDED = ("command", "versions", "machine", "date", "figures")

# A number with a unit of what is measured.
_MEASURED = re.compile(r"\d\s?(?:µs|ms|×|%|/s|times\b|seconds\b)")

_LINE = "var(--pst-color-text-muted)"
_CURVE = "var(--pst-color-primary)"
# How the lines of a picture differ.
_STROKES = (
    "stroke-width:2",
    "stroke-width:2;stroke-dasharray:7 4",
    "stroke-width:2;stroke-dasharray:1 3",
)
# Wide and pale, for a line upon which another lies.
_WIDE = "stroke-width:7;stroke-opacity:.35"
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

    def path(self, points: Sequence[tuple[float, float]], stroke: str) -> None:
        """Draws a line through points."""
        shown = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        style = f"fill:none;stroke:{_CURVE};{stroke}"
        self._shapes.append(f'<polyline points="{shown}" style="{style}"/>')

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
            told = textwrap.shorten(said.replace("`", ""), 78, placeholder=" …")
            found[cells[0].strip("`/")] = told
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


def contexts() -> Drawing:
    """Draws how a program goes from one context to the other and back."""
    drawing = Drawing(
        680,
        190,
        "Cross-replica context above: strategy.run hands each replica its part, and "
        "strategy.reduce takes one value from all. Replica context below: the function "
        "runs once per replica, and all_reduce combines values of the replicas.",
    )
    drawing.text(20, 18, "cross-replica context: you see all replicas")
    drawing.box(20, 28, 180, 30, "strategy.run(fn, (batch,))", "calm")
    drawing.box(240, 28, 160, 30, "a value per replica", "plain")
    drawing.box(440, 28, 220, 30, 'strategy.reduce("SUM", values)', "calm")
    drawing.line(400, 43, 440, 43)
    drawing.line(10, 78, 670, 78, dashed=True)
    drawing.text(20, 98, "replica context: you are one of them")
    for replica in range(3):
        y = 108 + 26 * replica
        drawing.box(60, y, 170, 20, f"fn in replica {replica}", "fresh")
        drawing.box(330, y, 170, 20, f"goes on in replica {replica}", "fresh")
    drawing.box(240, 108, 80, 72, "all_reduce", "warm")
    drawing.line(40, 58, 40, 144)
    drawing.line(40, 144, 60, 144)
    drawing.line(500, 144, 520, 144)
    drawing.line(520, 144, 520, 68)
    drawing.line(320, 68, 520, 68)
    drawing.line(320, 68, 320, 58)
    return drawing


def batches() -> Drawing:
    """Draws how a global batch is dealt to workers and to their replicas."""
    drawing = Drawing(
        680,
        176,
        "A global batch of eight examples on two workers with two replicas each: a "
        "worker keeps four examples, and each of its replicas gets two.",
    )
    drawing.text(20, 30, "global batch")
    for number in range(8):
        drawing.box(140 + 60 * number, 14, 56, 24, str(number), "calm")
    for worker in range(2):
        x = 140 + 240 * worker
        drawing.text(20, 92, "workers")
        drawing.box(x, 76, 236, 24, f"worker {worker}", "warm")
        drawing.line(x + 118, 38, x + 118, 76)
        for replica in range(2):
            left = x + 120 * replica
            name = f"replica {2 * worker + replica}"
            drawing.box(left, 136, 116, 24, name, "fresh")
            drawing.line(left + 58, 100, left + 58, 136)
    drawing.text(20, 152, "replicas")
    return drawing


def _read(name: str) -> dict[str, Any]:
    """Returns a result file.

    Raises:
        ValueError: it does not exist, or lacks where its figures come from.
    """
    path = RESULTS / f"{name}.json"
    if not path.exists():
        raise ValueError(f"There is no result file {path.relative_to(DOCS.parent)}.")
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
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
    line = 340 * (reference or 0) / most
    for number, figure in enumerate(figures):
        y = 8 + 26 * number
        drawing.text(230, y + 14, figure["name"], "end")
        width = 340 * figure["value"] / most
        drawing.box(240, y, max(width, 1), 19, "", figure.get("fill", "calm"))
        # A value stands behind its bar, and behind a line that would cross it.
        behind = max(width, line) if line - width < 60 else width
        drawing.text(246 + behind, y + 14, f"{figure['value']:g} {unit}")
    if reference:
        x = 240 + line
        drawing.line(x, 2, x, 26 * len(figures) + 10, dashed=True)
        told = results.get("reference_name", f"{reference:g}")
        drawing.text(x, 26 * len(figures) + 26, told, "middle")
    return drawing


def curves(results: dict[str, Any]) -> Drawing:
    """Draws the figures of a result file as lines over the numbers `at`."""
    figures: Sequence[dict[str, Any]] = results["figures"]
    at, unit = results["at"], results["unit"]
    most = max(value for figure in figures for value in figure["values"])
    told = (f"{f['name']}: {', '.join(map(str, f['values']))}" for f in figures)
    drawing = Drawing(
        680, 300, f"{results['title']}, at {', '.join(map(str, at))}: {'; '.join(told)}"
    )
    left, right, top, ground = 60, 520, 20, 250
    xs = [left + 30 + (right - left - 60) * i / (len(at) - 1) for i in range(len(at))]

    def height(value: float) -> float:
        return float(ground - (ground - top) * value / most)

    drawing.line(left, ground, right, ground)
    drawing.line(left, top, left, ground)
    for part in (0, 0.5, 1):
        value = most * part
        drawing.line(left - 4, height(value), left, height(value))
        drawing.text(left - 8, height(value) + 4, f"{value:.3g}", "end")
    drawing.text(left + 6, top + 2, unit)
    for x, label in zip(xs, at, strict=True):
        drawing.text(x, ground + 18, f"{label:g}", "middle")
    drawing.text((left + right) / 2, ground + 38, results["axis"], "middle")
    ends = sorted((height(f["values"][-1]), n) for n, f in enumerate(figures))
    for place, (_, number) in enumerate(ends):
        figure, dashed = figures[number], number > 0
        ys = [height(value) for value in figure["values"]]
        for i in range(len(xs) - 1):
            drawing.line(xs[i], ys[i], xs[i + 1], ys[i + 1], dashed)
        for x, y in zip(xs, ys, strict=True):
            drawing.box(x - 3, y - 3, 6, 6, fill="warm" if dashed else "calm")
        # Names stand at the ends of their lines, one below the other.
        shown = max(ys[-1], ends[0][0] + 16 * place) + 4
        drawing.text(xs[-1] + 12, shown, f"{figure['name']}{' (dashed)' * dashed}")
    return drawing


def losses(figures: dict[str, list[float]], axis: str = "step") -> Drawing:
    """Draws what fell during training: a line for each name, over the steps."""
    told = (f"{name}: from {v[0]:.3g} to {v[-1]:.3g}" for name, v in figures.items())
    drawing = Drawing(680, 270, f"The course of training. {'; '.join(told)}")
    left, right, top, ground = 60, 480, 16, 220
    most = max(max(values) for values in figures.values())
    least = min(0.0, *(min(values) for values in figures.values()))

    def height(value: float) -> float:
        return ground - (ground - top) * (value - least) / (most - least)

    drawing.line(left, ground, right, ground)
    drawing.line(left, top, left, ground)
    for part in (0, 0.5, 1):
        value = least + (most - least) * part
        drawing.line(left - 4, height(value), left, height(value))
        drawing.text(left - 8, height(value) + 4, f"{value:.3g}", "end")
    count = max(len(values) for values in figures.values())
    drawing.text(left, ground + 18, "1", "middle")
    drawing.text(right, ground + 18, f"{count}", "middle")
    drawing.text((left + right) / 2, ground + 34, axis, "middle")
    places: list[float] = []
    strokes = zip(figures.items(), _STROKES, strict=False)
    for (name, values), (stroke) in strokes:
        step = (right - left) / max(len(values) - 1, 1)
        points = [(left + i * step, height(v)) for i, v in enumerate(values)]
        drawing.path(points, stroke)
        # A name stands at the end of its line, below those that are there already.
        place = points[-1][1] + 4
        while any(abs(place - other) < 15 for other in places):
            place += 15 if place < ground - 20 else -15
        places.append(place)
        drawing.path([(right + 8, place - 4), (right + 34, place - 4)], stroke)
        drawing.text(right + 40, place, name)
    return drawing


def first() -> Drawing:
    """Draws the first picture: equal losses, and what a step becomes on each device."""
    found = _read("losses")
    figures = {f["name"]: f["values"] for f in found["figures"]}
    apart = max(abs(a - b) for a, b in zip(*figures.values(), strict=True))
    drawing = Drawing(
        760,
        250,
        "Left: the losses of one replica and of eight lie on top of each other; they "
        f"differ by at most {apart:.0e}. Right: a step on eight devices is a program, "
        "in which each device computes forward and backward on an eighth of the batch, "
        "gradients are summed, and each updates its copy.",
    )
    left, right, top, ground = 46, 330, 34, 204
    most = max(max(values) for values in figures.values())
    drawing.text(left, 16, "The same numbers")
    drawing.line(left, ground, right, ground)
    drawing.line(left, top, left, ground)
    for value in (0.0, most):
        y = ground - (ground - top) * value / most
        drawing.text(left - 6, y + 4, f"{value:.2g}", "end")
    drawing.text(left + 6, top + 6, "loss")
    drawing.text(
        (left + right) / 2, ground + 18, f"{len(found['at'])} epochs", "middle"
    )
    for (name, values), (stroke) in zip(
        figures.items(), (_WIDE, _STROKES[1]), strict=True
    ):
        step = (right - left) / (len(values) - 1)
        points = [
            (left + i * step, ground - (ground - top) * value / most)
            for i, value in enumerate(values)
        ]
        drawing.path(points, stroke)
        y = 60 + 18 * list(figures).index(name)
        drawing.path([(210, y), (240, y)], stroke)
        drawing.text(248, y + 4, name)
    drawing.text(left, 240, f"The two lines differ by at most {apart:.0e}.")
    drawing.text(400, 16, "from one step for one replica")
    for replica in range(8):
        y = 34 + 21 * replica
        drawing.text(400, y + 13, f"device {replica}")
        drawing.box(460, y, 64, 17, "forward", "calm")
        drawing.box(528, y, 70, 17, "backward", "calm")
        drawing.box(690, y, 56, 17, "update", "fresh")
    drawing.box(604, 34, 80, 164, "sum", "warm")
    drawing.text(400, 222, "One XLA program. Each device has an eighth of the")
    drawing.text(400, 240, "batch, and a copy of the weights.")
    return drawing


# The colours of the site, for a picture that stands alone.
_ALONE = """<style>
svg{color:#24292f;font-family:sans-serif;--pst-color-text-muted:#6a737d;
--pst-color-primary:#0b7285;--pst-color-primary-bg:#d5eef2;
--pst-color-warning-bg:#ffe8cc;--pst-color-success-bg:#d3f9d8;--pst-color-surface:#fff}
@media (prefers-color-scheme:dark){svg{color:#e6edf3;--pst-color-text-muted:#8b949e;
--pst-color-primary:#66d9e8;--pst-color-primary-bg:#0b3c49;
--pst-color-warning-bg:#5f3b12;--pst-color-success-bg:#1d4d2b;
--pst-color-surface:#161b22}}
</style>"""
FIRST = DOCS / "_static" / "one-and-eight.svg"


def alone(drawing: Drawing) -> str:
    """Returns a picture that has its own colours, for README.md."""
    return drawing.svg().replace("</title>", f"</title>{_ALONE}", 1) + "\n"


def check_first(app: Any) -> None:
    """Warns if the picture of README.md is not the one that is drawn here."""
    if not FIRST.exists() or FIRST.read_text("utf-8") != alone(first()):
        _LOG.warning("%s is old: run python docs/tools/pictures.py", FIRST.name)


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "architecture": architecture,
    "timeline": timeline,
    "contexts": contexts,
    "batches": batches,
    "first": first,
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
        draw = curves if "at" in results else bars
        return [self._figure(draw(results)), *told]

    def _figure(self, drawing: Drawing) -> nodes.Node:
        shown = f'<div class="picture" tabindex="0">{drawing.svg()}</div>'
        return nodes.raw("", shown, format="html")


def check_text(app: Any, name: str, content: list[str]) -> None:
    """Warns of figures in the text of the page about performance.

    They would come from no result file, and nobody would know how they were measured.
    """
    if not name.startswith("performance/"):
        return
    for number, line in enumerate(content[0].splitlines(), 1):
        if _MEASURED.search(line):
            told = "a figure in the text, from no result file: %s"
            _LOG.warning(told, line.strip(), location=(name, number))


def setup(app: Any) -> dict[str, bool]:
    """Registers the extension."""
    app.add_directive("picture", Picture)
    app.connect("source-read", check_text)
    app.connect("builder-inited", check_first)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    FIRST.write_text(alone(first()), encoding="utf-8")
