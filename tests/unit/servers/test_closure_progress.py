"""What is shown of functions that workers run."""

import io
import re

import pytest
import rich.console

import unisono
from tests.unit.servers import clusters

pytestmark = pytest.mark.feature("T06")


def test_closures_are_counted_for_each_worker_in_lines_and_on_a_terminal():
    step = unisono.function(lambda: 1)
    with clusters.cluster() as (_, coordinator):
        coordinator.schedule(step).fetch()
        for is_terminal in (False, True):
            out = io.StringIO()
            console = rich.console.Console(
                file=out, force_terminal=is_terminal, width=120
            )
            with unisono.train.ClosureProgress(
                coordinator, 40, "training", console=console
            ) as progress:
                for _ in range(40):
                    coordinator.schedule(step)
                coordinator.join()
            # What ends later does not count.
            coordinator.schedule(step).fetch()
            coordinator.join()
            assert len(progress.counts) == 2 and sum(progress.counts) == 40
            text = out.getvalue()
            rate = r"[\d.,]+"
            first, second = progress.counts
            wanted = (
                rf"{rate} closures/s; worker 0 {rate}/s \({first}\), "
                rf"worker 1 {rate}/s \({second}\)"
            )
            if is_terminal:
                assert re.search(wanted, text) and "40/40" in text
            else:
                assert re.fullmatch(f"training: 40/40 closures; {wanted}\n", text)


def test_what_is_no_coordinator_is_refused():
    with pytest.raises(TypeError, match=r"range\(0, 3\).*train\.Progress"):
        unisono.train.ClosureProgress(range(3))
    wrong = pytest.raises(ValueError, match="line_seconds")
    with clusters.cluster() as (_, coordinator), wrong:
        unisono.train.ClosureProgress(coordinator, line_seconds=0)
