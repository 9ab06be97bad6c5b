"""Computes which replica gets which rows of a batch; pure arithmetic."""

from __future__ import annotations


def chunks(batch: int, replicas: int) -> list[tuple[int, int]]:
    """Returns consecutive chunks of ``ceil(batch / replicas)`` rows.

    The last ones may be short or empty.

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
    """Returns the chunks of one worker's replicas; the workers take chunks in turn.

    >>> chunks_of_worker(7, 4, workers=2, worker=1)
    [(2, 4), (6, 7)]
    """
    return chunks(batch, replicas)[worker::workers]


def chunks_in_turn(
    batch: int, replicas: int, local: int
) -> list[list[tuple[int, int]]]:
    """Returns the steps in which a worker takes all chunks of a batch of its own.

    >>> chunks_in_turn(7, replicas=4, local=2)
    [[(0, 2), (2, 4)], [(4, 6), (6, 7)]]
    """
    found = chunks(batch, replicas)
    return [found[i : i + local] for i in range(0, replicas, local)]


def sizes_of_worker(batch: int, replicas: int, workers: int, worker: int) -> list[int]:
    """Returns the sizes of the parts that one worker takes, in turn.

    Where the batch does not divide, the first replicas get one example more. Each
    worker begins at another place of the list; together they take a whole batch.

    >>> [sizes_of_worker(6, 4, 2, w) for w in range(2)]
    [[2, 2, 1, 1], [1, 1, 2, 2]]
    """
    small, more = divmod(batch, replicas)
    sizes = [small + 1] * more + [small] * (replicas - more)
    # As TensorFlow's `batch_sizes_for_worker`,
    # which begins at the worker's first replica.
    first = replicas // workers * worker
    return sizes[first:] + sizes[:first]


def fills_of_worker(
    rows: int, batch: int, replicas: int, workers: int = 1, worker: int = 0
) -> list[list[tuple[int, int]]]:
    """Returns the steps in which a worker takes a batch, in parts of fixed sizes.

    A smaller batch leaves the last parts short or empty; it is not filled up from the
    next one. Each step has as many parts as the worker has replicas.

    Args:
        rows: how many examples the batch has.
        batch: its declared size.
        replicas: how many replicas there are on all workers.
        workers: how many workers there are.
        worker: the number of this worker.

    >>> fills_of_worker(6, 8, replicas=2)
    [[(0, 4), (4, 6)]]
    >>> fills_of_worker(3, 3, 2, workers=2, worker=1)
    [[(0, 1)], [(1, 3)]]
    """
    local = replicas // workers
    sizes = sizes_of_worker(batch, replicas, workers, worker)
    steps, start = [], 0
    for turn in range(0, len(sizes), local):
        parts = []
        for size in sizes[turn : turn + local]:
            stop = min(start + size, rows)
            parts.append((start, stop))
            start = stop
        steps.append(parts)
        if start >= rows:
            break
    return steps
