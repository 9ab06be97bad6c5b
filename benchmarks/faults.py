"""Measures how soon workers learn of a fault, how soon all has ended, and what is left.

usage: python benchmarks/faults.py [TEXT]

Tries the rows of the fault table of the tests, or those whose name contains TEXT. For
each it shows the seconds from the fault to the exception of the slowest survivor and to
the end of the last process, and the processes, temporary files, ports and semaphores
that were left ten seconds later. (Semaphores may be those of other programs.)
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
from typing import Any

import rich.console
import rich.table

ROOT = pathlib.Path(__file__).resolve().parents[1]


def _describe(told: dict[int, Any]) -> tuple[str, str]:
    """Returns the errors of the survivors, and the seconds of the slowest one."""
    found = [t for t in told.values() if t is not None]
    names = {f"{t['kind']}({t['worker']})" for t in found}
    if len(found) < len(told):
        names.add("none")
    slowest = max((t["seconds"] for t in found), default=float("nan"))
    return ", ".join(sorted(names)), f"{slowest:.1f}"


def main() -> None:
    """Tries the rows one after another, and shows a table of all."""
    sys.path.insert(0, str(ROOT))
    from tests.multiprocess import fault_table

    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    table = rich.table.Table("fault", "error", "raised, s", "ended, s", "left")
    console = rich.console.Console(width=120)
    for row in fault_table.ROWS:
        if wanted not in row.name:
            continue
        with tempfile.TemporaryDirectory() as directory:
            report = fault_table.run(row, directory)
        error, raised = _describe(report.told)
        left = ", ".join([*report.left, *report.shared]) or "nothing"
        console.print(f"{row.name}: {error}, {raised} s, {report.ended:.1f} s, {left}")
        table.add_row(row.name, error, raised, f"{report.ended:.1f}", left)
    console.print(table)


if __name__ == "__main__":
    main()
