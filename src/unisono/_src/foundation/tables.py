"""Tables for people: as text, as HTML for notebooks, and for Rich's consoles."""

from __future__ import annotations

import abc
import dataclasses
import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    import rich.table

# The columns of a printed table, and those of one that is wide.
_WIDTH, _LARGE_WIDTH = 100, 160


@final
@dataclasses.dataclass(frozen=True)
class TextTable:
    """The contents of a table, in which every text means nothing but text.

    Attributes:
        title: the line above it.
        heads: the name of each column.
        rows: the texts of each row.
        totals: the texts of the rows at its end.
        note: the sentences below it.
        numbers: how many of the last columns hold numbers.
        is_wide: whether a row stays on one line.
    """

    title: str
    heads: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    totals: Sequence[Sequence[str]] = ()
    note: str = ""
    numbers: int = 0
    is_wide: bool = False


class ShownAsTable(abc.ABC):
    """Something that prints as a table, and shows as one in a notebook; abstract."""

    @abc.abstractmethod
    def _table(self) -> TextTable:
        """Returns the contents of the table."""

    @property
    def table(self) -> rich.table.Table:
        """The table, as a `rich.table.Table`."""
        import rich.table
        from rich.markup import escape

        given = self._table()
        made = rich.table.Table(
            title=escape(given.title), caption=escape(given.note) or None
        )
        first_number = len(given.heads) - given.numbers
        for index, head in enumerate(given.heads):
            made.add_column(
                escape(head),
                justify="left" if index < first_number else "right",
                no_wrap=given.is_wide,
                overflow="ellipsis" if given.is_wide else "fold",
            )
        for row in given.rows:
            made.add_row(*map(escape, row))
        if given.totals:
            made.add_section()
        for row in given.totals:
            made.add_row(*map(escape, row))
        return made

    def _repr_html_(self) -> str:
        return render_html(self._table())

    def __str__(self) -> str:
        import rich.console

        width = _LARGE_WIDTH if self._table().is_wide else _WIDTH
        console = rich.console.Console(width=width, color_system=None)
        with console.capture() as captured:
            console.print(self.table)
        return captured.get()


def render_html(given: TextTable) -> str:
    """Returns a table as HTML, for notebooks.

    >>> render_html(TextTable("", ("a",), [["1"]]))
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>'
    """
    title = f"<caption>{html.escape(given.title)}</caption>" if given.title else ""
    body = "".join(_html_row("td", row) for row in given.rows)
    foot = "".join(_html_row("th", row) for row in given.totals)
    return (
        f"<table>{title}"
        f"<thead>{_html_row('th', given.heads)}</thead><tbody>{body}</tbody>"
        f"{f'<tfoot>{foot}</tfoot>' if foot else ''}</table>"
        f"{f'<p>{html.escape(given.note)}</p>' if given.note else ''}"
    )


def _html_row(tag: str, texts: Sequence[str]) -> str:
    """Returns a row of a table as HTML.

    >>> _html_row("td", ["a < b", "2"])
    '<tr><td>a &lt; b</td><td>2</td></tr>'
    """
    cells = "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)
    return f"<tr>{cells}</tr>"
