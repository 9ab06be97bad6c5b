"""Calls of a `function` that a dataset's function makes: they run on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unisono._src.foundation import ambient, nest
from unisono._src.foundation.tensorflow_names import host_bodies
from unisono._src.values import jax_traces


def may_run_on_host(args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Return whether a dataset's function makes a call, with numbers of the host.

    >>> may_run_on_host([1], {})
    False
    """
    is_told = ambient.is_in_dataset() and jax_traces.is_clean()
    return is_told and is_of_host(args, kwargs)


def is_of_host(*values: object) -> bool:
    """Return whether no array of JAX and no variable is in structures.

    >>> is_of_host({"x": 1.5}, [b"text"])
    True
    """
    return host_bodies.are_of_host(nest.leaves(values))
