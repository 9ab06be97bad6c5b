"""Workers that differ read no value after their difference."""

import pytest

from tests.multiprocess import worker_differences


# A sample; `python -m tests.multiprocess.worker_differences` runs as many as one likes.
@pytest.mark.timeout(200)
@pytest.mark.parametrize("kind", ["draw", "order", "argument", "own result"])
def test_no_value_is_read_after_workers_have_differed(kind):
    plans = ((s, worker_differences.plan(s)) for s in range(1000))
    # The first with few functions to compile.
    seed = next(
        s
        for s, found in plans
        if found["kind"] == kind and len(found["functions"]) == 2
    )
    assert worker_differences.run(seed) == ""
