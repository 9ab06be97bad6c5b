"""Tables for people."""

import dataclasses
from typing import final

import pytest

from unisono._src.foundation import tables


@final
@dataclasses.dataclass(frozen=True)
class Shown(tables.ShownAsTable):
    contents: tables.TextTable

    def _table(self):
        return self.contents


def test_texts_mean_nothing_but_text():
    given = tables.TextTable(
        "[b]T[/b] <i>", ("[i]h",), [("[red]x[/red] <b>",)], note="[b]n <p>"
    )
    text = str(Shown(given))
    for word in ("[b]T[/b] <i>", "[red]x[/red] <b>", "[b]n <p>"):
        assert word in text
    html = Shown(given)._repr_html_()
    assert "<td>[red]x[/red] &lt;b&gt;</td>" in html
    assert "<caption>[b]T[/b] &lt;i&gt;</caption>" in html
    assert html.endswith("<p>[b]n &lt;p&gt;</p>")


def test_columns_of_numbers_are_flush_right_and_totals_come_last():
    given = tables.TextTable(
        "T", ("name", "bytes"), [("weights", "4")], [("total", "4,000")], numbers=1
    )
    lines = str(Shown(given)).splitlines()
    row = next(line for line in lines if "weights" in line)
    total = next(line for line in lines if "total" in line)
    assert row.rstrip("│ ").endswith("    4")
    assert row.index("4") == total.index("4,000") + 4
    assert lines.index(total) > lines.index(row) + 1
    assert "<tfoot><tr><th>total</th>" in Shown(given)._repr_html_()


@pytest.mark.parametrize("is_wide", [False, True])
def test_only_a_wide_table_keeps_a_row_on_one_line(is_wide):
    given = tables.TextTable("T", ("name",), [("x" * 300,)], is_wide=is_wide)
    lines = [line for line in str(Shown(given)).splitlines() if "xx" in line]
    assert len(lines) == (1 if is_wide else 4)
    assert ("…" in lines[0]) == is_wide
    assert len(lines[0]) == (160 if is_wide else 100)


def test_a_table_without_totals_or_note_has_no_place_for_them():
    html = Shown(tables.TextTable("T", ("a",), [("b",)]))._repr_html_()
    assert "tfoot" not in html
    assert "<p>" not in html
