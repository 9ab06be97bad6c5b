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


def chunks_of_worker(
    batch: int, replicas: int, workers: int, worker: int
) -> list[tuple[int, int]]:
    """The chunks that the replicas of one worker get: they are dealt in turn.

    >>> chunks_of_worker(7, 4, workers=2, worker=1)
    [(2, 4), (6, 7)]
    """
    return chunks(batch, replicas)[worker::workers]


def sizes_of_worker(batch: int, replicas: int, workers: int, worker: int) -> list[int]:
    """How many examples the parts of one worker have, in turn.

    The first replicas get one more where the batch does not divide. Each worker
    begins at another place of the list, so that together they take a whole batch.

    >>> [sizes_of_worker(6, 4, 2, w) for w in range(2)]
    [[2, 2, 1, 1], [1, 1, 2, 2]]
    """
    small, more = divmod(batch, replicas)
    sizes = [small + 1] * more + [small] * (replicas - more)
    first = replicas // workers * worker
    return sizes[first:] + sizes[:first]
