"""Checks of `RunOptions` by a strategy whose programs have fixed shapes."""

from __future__ import annotations

from typing import Any

import jax

from unisono._src.foundation import options
from unisono._src.values import distributed


def check(given: options.RunOptions, arguments: Any) -> None:
    """Raises if a run cannot do what its options ask for.

    Args:
        given: the options.
        arguments: the arguments of the replica function.

    Raises:
        ValueError: the options allow only static shapes, but replicas have values of
            different shapes; or they ask for buckets of inputs; or they ask for another
            way to partition a program.
        TypeError: the XLA options are of another class.
    """
    if given.experimental_bucketizing_dynamic_shape:
        raise ValueError(
            "experimental_bucketizing_dynamic_shape pads inputs to the next of a few "
            "sizes. A JAX program cannot tell padding from data, so means and batch "
            "statistics would change. Leave it False: a new shape is compiled once. "
            "Or pad the dataset yourself, with a mask."
        )
    xla = given.experimental_xla_options
    if xla is None:
        xla = options.XLAOptions()
    elif not isinstance(xla, options.XLAOptions):
        raise TypeError(
            "Expected unisono.tpu.XLAOptions as experimental_xla_options, received "
            f"{xla!r} of type {type(xla).__name__}."
        )
    if not xla.use_spmd_for_xla_partitioning:
        raise ValueError(
            "use_spmd_for_xla_partitioning=False asks for a program for each logical "
            "device; XLA has one for all of them, and splits its arrays. Leave it True."
        )
    is_dynamic = given.experimental_enable_dynamic_batch_size
    if not (is_dynamic and xla.enable_xla_dynamic_padder):
        _check_static(arguments)


def _check_static(arguments: Any) -> None:
    """Raises unless all replicas have values of the same shapes."""
    found = jax.tree.leaves(arguments, is_leaf=_is_per_replica)
    for value in found:
        # A local value is one program's for all replicas: it has one shape.
        if not _is_per_replica(value) or value.local is not None:
            continue
        shapes = [
            [jax.numpy.shape(x) for x in jax.tree.leaves(v)] for v in value.values
        ]
        if any(s != shapes[0] for s in shapes):
            raise ValueError(
                "Only static shapes are allowed by these RunOptions, but the replicas' "
                f"parts of a value have the shapes {shapes}. Batch the dataset with "
                "drop_remainder=True, or leave experimental_enable_dynamic_batch_size "
                "True."
            )


def _is_per_replica(x: Any) -> bool:
    return isinstance(x, distributed.PerReplica)
