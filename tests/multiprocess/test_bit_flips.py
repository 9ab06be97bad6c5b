"""Workers find a bit that one of them has flipped, and name the worker."""

import pytest

from tests.multiprocess import bit_flips


# A sample; `python -m tests.multiprocess.bit_flips` flips as many as one likes.
@pytest.mark.timeout(200)
def test_a_flipped_bit_is_found_at_the_next_comparison():
    assert bit_flips.run(3, workers=3) == (3, [])
