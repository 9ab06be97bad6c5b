"""How many random programs the property tests try.

With the variable ``UNISONO_TEST_RANDOM`` set to 20 they try twenty times as many, and
other ones each time; without it the same few.
"""

import os

import hypothesis

_TIMES = int(os.environ.get("UNISONO_TEST_RANDOM", "1"))


def tries(count):
    """Returns the settings of a test that tries so many programs, or a multiple."""
    return hypothesis.settings(
        max_examples=count * _TIMES,
        deadline=None,
        derandomize=_TIMES == 1,
        database=None,
    )
