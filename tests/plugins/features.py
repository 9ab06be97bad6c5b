"""Adds the `feature` marker and the `--features` report of which tests prove which row.

`tests/features.json` lists what the library promises. A test claims rows with
`@pytest.mark.feature("A01", "B03")`; `pytest --features` prints every row with the
tests that claim it and says how many rows are proven.
"""

import collections
import dataclasses
import json
import pathlib

import pytest

TABLE = pathlib.Path(__file__).parent.parent / "features.json"

PROVEN, FAILED, UNPROVEN, UNCLAIMED = "proven", "FAILED", "not run", "no test"


@dataclasses.dataclass(frozen=True)
class Row:
    """Holds one row of the feature table, and how unisono differs from it."""

    id: str
    area: str
    capability: str
    expected: str
    check: str
    difference: str = ""


def read_table(path=TABLE):
    """Returns the rows of the feature table by id, in the table's order."""
    rows = [Row(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    by_id = {row.id: row for row in rows}
    if len(by_id) != len(rows):
        counts = collections.Counter(row.id for row in rows)
        repeated = [id_ for id_, count in counts.items() if count > 1]
        raise ValueError(f"{path.name} has more than one row with id {repeated}.")
    return by_id


def claimed_ids(item):
    """Returns the row ids that a test's `feature` markers name."""
    return [id_ for mark in item.iter_markers("feature") for id_ in mark.args]


def verdict_of(outcomes):
    """Returns the verdict of a row from the outcomes of the tests that claim it."""
    if not outcomes:
        return UNCLAIMED
    if "failed" in outcomes:
        return FAILED
    return PROVEN if "passed" in outcomes else UNPROVEN


class FeatureReport:
    """Collects claims and outcomes during a run, and prints the table at its end."""

    def __init__(self, rows):
        self.rows = rows
        # Row id -> test (without parameters) -> outcomes of its cases.
        self.claims = {id_: collections.defaultdict(list) for id_ in rows}
        self._claims_of = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        """Records which test claims which rows, and refuses unknown ids."""
        wrong = []
        for item in items:
            ids = claimed_ids(item)
            wrong += [f"  {item.nodeid}: {i!r}" for i in ids if i not in self.rows]
            self._claims_of[item.nodeid] = [i for i in ids if i in self.rows]
        if wrong:
            raise pytest.UsageError(
                f"`feature` markers name rows that {TABLE.name} does not have; "
                "correct the id or add the row:\n" + "\n".join(wrong)
            )

    def pytest_runtest_logreport(self, report):
        """Records the outcome of a test, or of a set-up or tear-down that failed."""
        if report.when != "call" and report.outcome == "passed":
            return
        test = report.nodeid.partition("[")[0]
        for id_ in self._claims_of.get(report.nodeid, ()):
            self.claims[id_][test].append(report.outcome)

    def pytest_terminal_summary(self, terminalreporter, config):
        """Prints every row with its tests, and the count of proven rows."""
        if not config.getoption("--features"):
            return
        terminalreporter.section("features")
        area = None
        for row in self.rows.values():
            if row.area != area:
                area = row.area
                terminalreporter.write_line(f"\n{area}", bold=True)
            for line, markup in self._lines(row):
                terminalreporter.write_line(line, **markup)
        verdicts = collections.Counter(map(self.verdict, self.rows))
        terminalreporter.write_line("")
        terminalreporter.write_line(
            f"{verdicts[PROVEN]} of {len(self.rows)} rows proven"
            f" ({verdicts[FAILED]} failed, {verdicts[UNPROVEN]} not run,"
            f" {verdicts[UNCLAIMED]} without a test)",
            bold=True,
        )

    def verdict(self, id_):
        """Returns the verdict of one row over all tests that claim it."""
        return verdict_of([o for cases in self.claims[id_].values() for o in cases])

    def _lines(self, row):
        colours = {PROVEN: "green", FAILED: "red"}
        verdict = self.verdict(row.id)
        colour = colours.get(verdict, "yellow")
        yield f"{row.id}  {verdict:<8} {row.capability}", {colour: True}
        for test, outcomes in self.claims[row.id].items():
            counts = collections.Counter(outcomes)
            told = ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items()))
            yield f"       {test} ({told})", {}


def pytest_addoption(parser):
    """Adds `--features`."""
    parser.addoption(
        "--features",
        action="store_true",
        help="print each row of the feature table with the tests that prove it",
    )


def pytest_configure(config):
    """Registers the marker and the report of this run."""
    config.addinivalue_line(
        "markers",
        f"feature(id, ...): the rows of {TABLE.name} that this test proves",
    )
    config.pluginmanager.register(FeatureReport(read_table()), "unisono-features")
