"""Which replica gets which examples: pure arithmetic."""

from __future__ import annotations


def chunks(batch: int, replicas: int) -> list[tuple[int, int]]:
    """Consecutive chunks of ``ceil(batch / replicas)``; the last may be short or empty.

    >>> chunks(7, 4)
    [(0, 2), (2, 4), (4, 6), (6, 7)]
    >>> chunks(2, 4)
    [(0, 1), (1, 2), (2, 2), (2, 2)]
    """
    size = -(-batch // replicas)
    return [(min(i * size, batch), min((i + 1) * size, batch)) for i in range(replicas)]
