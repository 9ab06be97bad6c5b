"""Reports the failures of a group, with the traceback of the first one first."""

from __future__ import annotations

from collections.abc import Sequence

from unisono._src.cli.launch import group, output
from unisono._src.foundation import options


def tell(outcome: group.GroupOutcome, out: output.WorkerOutput) -> None:
    """Shows the first failure, then the tracebacks of the others."""
    if outcome.signal is not None or not outcome.failures:
        _tell_each(outcome.failures, out)
        return
    first, *others = outcome.failures
    how = group.describe_end(first.worker)
    if first.traceback:
        out.note(f"{first.worker.name} failed first, with {how}:")
        for text in first.traceback:
            out.show(text, "err")
    elif first.worker.code == options.RESTART_CODE:
        out.note(
            f"{first.worker.name} ended with {how}: it has saved its state and asks to "
            "be started again."
        )
    else:
        out.note(f"{first.worker.name} failed first, with {how} and no traceback.")
    _tell_each(others, out)


def _tell_each(
    failures: Sequence[group.WorkerFailure], out: output.WorkerOutput
) -> None:
    for failure in failures:
        after = "was stopped" if failure.worker.was_stopped else "followed"
        how = group.describe_end(failure.worker)
        out.note(f"{failure.worker.name} {after}, with {how}.")
        for line in failure.worker.release():
            out.show_line(line)
