"""Rows of HTML tables, for the descriptions that notebooks show."""

from __future__ import annotations

import html
from collections.abc import Sequence


def row(tag: str, texts: Sequence[str]) -> str:
    """Returns a row of a table as HTML, in which the texts mean nothing but text.

    Args:
        tag: the element of each cell, ``"td"`` or ``"th"``.
        texts: the texts of the cells.

    >>> row("td", ["a < b", "2"])
    '<tr><td>a &lt; b</td><td>2</td></tr>'
    """
    cells = "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)
    return f"<tr>{cells}</tr>"
