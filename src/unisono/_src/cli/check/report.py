"""The report on checked programs, as text and as JSON."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any, final

from unisono._src.cli.check.program_text import ProgramFile
from unisono._src.cli.check.verdicts import (
    DIFFERS,
    MISSING,
    ORDER,
    RENAMED,
    SAME,
    UNKNOWN,
    Verdict,
)

# How a status is told to people, for one use and for some.
WORDS = {
    SAME: "same",
    DIFFERS: "differs",
    RENAMED: "other name",
    UNKNOWN: "unknown",
    MISSING: "missing",
}


@final
@dataclasses.dataclass(frozen=True)
class Checked:
    """Holds one file with the verdicts on its uses, part by part."""

    program: ProgramFile
    verdicts: Sequence[Sequence[Verdict]]

    def places(self) -> Iterator[tuple[int | None, int, Verdict]]:
        """Yields the cell, the line and the verdict of each use, in order."""
        for part, found in zip(self.program.parts, self.verdicts, strict=True):
            for verdict in found:
                yield part.cell, getattr(verdict.use.node, "lineno", 1), verdict


def count(checked: Sequence[Checked]) -> dict[str, int]:
    """Returns the number of uses of each status, of all, and of those that run."""
    found = collections.Counter(v.status for c in checked for _, _, v in c.places())
    counts = {status: found[status] for status in ORDER}
    counts["uses"] = found.total()
    counts["unchanged"] = found[SAME] + found[DIFFERS]
    return counts


def summarize(counts: dict[str, int]) -> str:
    """Returns the counts as a sentence.

    >>> summarize({"uses": 3, "unchanged": 2, "same": 1, "differs": 1, "missing": 1})
    '2 of 3 uses run as they are, 1 of them with a difference; 1 is missing.'
    """
    said = f"{counts['unchanged']} of {counts['uses']} uses run as they are"
    if counts[DIFFERS]:
        said += f", {counts[DIFFERS]} of them with a difference"
    rest = [
        f"{counts[status]} {one if counts[status] == 1 else many}"
        for status, one, many in [
            (RENAMED, "has another name", "have another name"),
            (MISSING, "is missing", "are missing"),
            (UNKNOWN, "is unknown", "are unknown"),
        ]
        if counts.get(status)
    ]
    return "; ".join([said, ", ".join(rest)] if rest else [said]) + "."


def lines(checked: Checked, brief: bool) -> Iterator[tuple[str, str, str]]:
    """Yields the place, the word of the status and the message of each use."""
    for cell, line, verdict in checked.places():
        place = f"{line}" if cell is None else f"cell {cell}, {line}"
        if verdict.status != SAME:
            told = f"{verdict.use.written}: {verdict.told}"
            yield place, WORDS[verdict.status], told
        elif not brief:
            yield place, WORDS[SAME], verdict.use.written


def to_json(checked: Sequence[Checked], bad: dict[str, str]) -> str:
    """Returns the report as JSON: files, their uses, errors, and the counts."""
    files: list[dict[str, Any]] = [
        {
            "path": str(each.program.path),
            "uses": [_use(*place) for place in each.places()],
        }
        for each in checked
    ]
    files += [{"path": path, "error": error, "uses": []} for path, error in bad.items()]
    return json.dumps({"files": files, "summary": count(checked)}, indent=1)


def _use(cell: int | None, line: int, verdict: Verdict) -> dict[str, Any]:
    use = verdict.use
    found: dict[str, Any] = {} if cell is None else {"cell": cell}
    found |= {
        "line": line,
        "column": getattr(use.node, "col_offset", 0) + 1,
        "written": use.written,
        "name": use.path,
        "status": verdict.status,
    }
    if verdict.told:
        found["told"] = verdict.told
    if verdict.new:
        found["new"] = verdict.new
    return found
