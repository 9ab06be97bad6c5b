"""How often the copies of mirrored state are compared, if at all.

The launcher sets it for its workers; without a launcher the environment does.
"""

from __future__ import annotations

import os

from unisono._src.cluster import untrusted

VARIABLE = "UNISONO_CHECK_REPLICAS"
_MOST = 1_000_000_000


def check_interval(given: int | None = None) -> int:
    """Returns after how many steps copies are compared again; 0 for never.

    Args:
        given: the number that the program gives. By default the environment variable
            ``UNISONO_CHECK_REPLICAS``, or 0.

    Raises:
        ValueError: it is not a number of steps.

    >>> check_interval(), check_interval(100)
    (0, 100)
    """
    text = os.environ.get(VARIABLE, "").strip() if given is None else str(given)
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()) or int(text) > _MOST:
        raise ValueError(
            "The number of steps after which the copies of mirrored variables are "
            f"compared again (--check-replicas, {VARIABLE}) is a whole number up to "
            f"{_MOST}, or 0 for never; received {untrusted.excerpt(text)}."
        )
    return int(text)
