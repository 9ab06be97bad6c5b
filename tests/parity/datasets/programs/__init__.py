"""Small programs over `tf.data`; importing this package registers them all."""

from tests.parity.datasets.programs import (  # noqa: F401
    arguments,
    batching,
    beyond,
    combining,
    composing,
    described,
    distributed,
    files,
    functions,
    iterating,
    ordering,
    refusals,
    sources,
    splitting,
)
