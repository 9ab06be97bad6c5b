"""The lines of programs as people write them, and what `unisono check` says of them.

The programs in `corpus` say in a comment what is expected of a line that uses
TensorFlow: ``#: missing learning_rate`` is a status, and words that the check must say.
``#: (missing)`` is a line that only uses what an earlier one lacks: it may be told or
not. A line without a comment runs as it is.
"""

import collections
import pathlib

from unisono._src.cli.check import command, program_text, verdicts

CORPUS = pathlib.Path(__file__).with_name("corpus")


def expectations(path):
    """Returns the marks of a file's lines that have one, by their numbers."""
    marks = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        _, mark, said = line.partition("#: ")
        if mark:
            marks[number] = said.split(maxsplit=1)
    return marks


def judged(checked):
    """Returns the worst status and all sentences of each line with a use."""
    found = collections.defaultdict(lambda: [verdicts.SAME, ""])
    for _, line, verdict in checked.places():
        worst, told = found[line]
        found[line] = [
            max(worst, verdict.status, key=verdicts.ORDER.index),
            f"{told} {verdict.told}",
        ]
    return found


def measure():
    """Returns the number of lines, and the wrong ones with what was expected."""
    checked, bad = command.check_files(list(program_text.find_files([CORPUS])))
    assert not bad
    lines, wrong, alarms = 0, [], []
    for each in checked:
        marks, found = expectations(each.program.path), judged(each)
        for line in sorted({*marks, *found}):
            lines += 1
            wanted, *words = marks.get(line, [verdicts.SAME])
            status, told = found[line]
            place = f"{each.program.path.relative_to(CORPUS)}:{line}"
            row = f"{place}: expected {wanted} {words}, received {status} {told}"
            if wanted.startswith("("):
                wanted = status if status in wanted else verdicts.SAME
            if status != wanted or not all(word in told for word in words):
                wrong.append(row)
            if verdicts.ORDER.index(status) > verdicts.ORDER.index(wanted):
                alarms.append(row)
    return lines, wrong, alarms
