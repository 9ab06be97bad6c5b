"""Blocks in which a variable on a parameter server is read once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from unisono._src.foundation import ambient
from unisono._src.foundation.public_names import publish


@contextlib.contextmanager
def cache_variable_reads() -> Iterator[None]:
    """Lets each variable on a parameter server be read once in a block.

    The first value that is read is kept until the block ends, whatever is assigned in
    between. It holds for functions that are traced in the block, too: put it inside a
    scheduled function, or around the call of `schedule`.

    Raises:
        ValueError: one such block is inside another.

    >>> import unisono
    >>> cluster = unisono.train.ClusterSpec({"worker": ["a:1"], "ps": ["b:1"]})
    >>> strategy = unisono.distribute.ParameterServerStrategy(
    ...     unisono.distribute.cluster_resolver.SimpleClusterResolver(cluster),
    ...     carrier="threads",
    ... )
    >>> with strategy.scope():
    ...     v = unisono.Variable(1.0)
    >>> with cache_variable_reads():
    ...     first = float(v.value())
    ...     v.assign(5.0, read_value=False)
    ...     first, float(v.value())
    (1.0, 1.0)
    >>> float(v.value())
    5.0
    >>> strategy.shutdown()
    """
    if ambient.current().servers.reads is not None:
        raise ValueError("cache_variable_reads scope cannot be nested")
    with ambient.push_servers(reads={}):
        yield


publish("unisono.distribute.coordinator", cache_variable_reads)
