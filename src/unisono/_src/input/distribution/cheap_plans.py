"""Which plans are so cheap that a thread that reads them ahead would not pay."""

from __future__ import annotations

import numpy as np

from unisono._src.input.distribution import sharding_rule
from unisono._src.input.plan import elements, nodes
from unisono._src.input.sources import arrays
from unisono._src.input.stages import (
    batching,
    dataset_options,
    mixing,
    prefetch,
    selecting,
    shuffling,
)

# A batch of at most this many bytes that is only a choice of rows is made when it is
# asked for: a thread would cost more than it saves.
_WORTH_A_THREAD = 1 << 20
# The stages that only choose rows.
_CHEAP = (
    arrays.Tensors,
    arrays.Slices,
    arrays.Range,
    selecting.Take,
    selecting.Skip,
    selecting.Shard,
    selecting.Repeat,
    shuffling.Shuffle,
    batching.Batch,
    mixing.Zip,
    mixing.Concatenate,
    prefetch.Prefetch,
    dataset_options.WithOptions,
    batching.HiddenBatchSize,
)


def is_cheap(node: nodes.Node) -> bool:
    """Whether making a batch is only a choice of rows, and the batch is small."""
    if not all(isinstance(n, _CHEAP) for n in nodes.walk(node)):
        return False
    rows = sharding_rule.batch_size(node) or 1
    return rows * _row_bytes(node) <= _WORTH_A_THREAD


def _row_bytes(node: nodes.Node) -> int:
    """Returns how many bytes a row takes, as far as the plan tells its shape."""
    total = 0
    for s in elements.leaves(node.spec):
        known = [n for n in s.shape or () if n is not None]
        total += int(np.prod(known)) * s.dtype.itemsize
    return total
