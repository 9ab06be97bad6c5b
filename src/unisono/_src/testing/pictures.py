"""Pictures of differences over the steps, beside the floor of rounding."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

# For each step, the largest relative difference and its floor.
Course = Sequence[tuple[float, float]]
# The powers of ten that a picture shows, and the characters of a line.
_LOWEST, _HIGHEST, _COLUMNS = -9, 1, 40
_MOST_LINES = 20


def _place(size: float, length: float) -> float:
    """Returns how far a number is along a logarithmic axis."""
    power = math.log10(size) if size > 0 else _LOWEST
    within = min(max(power, _LOWEST), _HIGHEST)
    return (within - _LOWEST) / (_HIGHEST - _LOWEST) * length


def draw_lines(course: Course) -> list[str]:
    r"""Returns a picture for a terminal: a bar for each step, ``|`` at the floor.

    >>> print(*draw_lines([(1e-7, 1e-7), (1e-2, 1e-7)]), sep="\n")
      step 0   ========|                                1.0e-07
      step 1   ========|===================             1.0e-02
    """
    width = len(str(len(course) - 1))
    lines = []
    for step, (size, floor) in enumerate(course[:_MOST_LINES]):
        bar = ["="] * round(_place(size, _COLUMNS))
        bar += [" "] * (_COLUMNS - len(bar))
        bar[min(round(_place(floor, _COLUMNS)), _COLUMNS - 1)] = "|"
        lines.append(f"  step {step:<{width}}   {''.join(bar)} {size:.1e}")
    if len(course) > _MOST_LINES:
        lines.append(f"  … and {len(course) - _MOST_LINES} more steps")
    return lines


def draw_svg(course: Course, title: str) -> str:
    """Returns a picture as HTML: the differences as a line, the floor as another."""
    wide, high, left, low = 560, 220, 60, 30
    span = max(len(course) - 1, 1)

    def path(which: int) -> str:
        points = [
            (
                left + i / span * (wide - left - 20),
                high - low - _place(x[which], high - 60),
            )
            for i, x in enumerate(course)
        ]
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)

    labels = "".join(
        f'<text x="{left - 8}" y="{high - low - _place(10.0**p, high - 60) + 4:.1f}" '
        f'text-anchor="end">1e{p}</text>'
        for p in range(_LOWEST, _HIGHEST + 1, 2)
    )
    line = '<polyline fill="none" stroke-width="2" points="{}" stroke="{}" {}/>'
    return (
        f'<svg viewBox="0 0 {wide} {high}" role="img" font-size="11" '
        f'fill="currentColor" style="max-width: {wide}px">'
        f"<title>{html.escape(title)}</title>{labels}"
        + line.format(path(0), "#c0392b", "")
        + line.format(path(1), "currentColor", 'stroke-dasharray="4"')
        + f'<text x="{left}" y="{high - 6}">steps 0 to {len(course) - 1}: largest '
        "difference (line), floor of rounding (dashed)</text></svg>"
    )


def as_html(told: str, course: Course) -> str:
    """Returns a report for a notebook: its text, and the picture."""
    title = told.splitlines()[0]
    return f"<pre>{html.escape(told)}</pre>{draw_svg(course, title)}"
