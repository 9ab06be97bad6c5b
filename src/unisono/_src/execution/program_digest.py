"""Digests of programs, by which workers find out that theirs are not the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

# Long enough that two programs of a job do not share one by chance.
_LENGTH = 12


def digest_lowered(lowered: jax.stages.Lowered) -> str:
    """Returns a digest of a lowered program: its operations, shapes and constants.

    The text has no places in source files, so two copies of one file count as equal.
    """
    return _digest([lowered.as_text()])


def digest_jaxpr(jaxpr: Any) -> str:
    """Returns a digest of a program that calls Python while it runs.

    Its lowered text may hold addresses, which differ between processes. So this one
    covers the operations, their types and the numbers written in the program.
    """
    return _digest(_lines(jaxpr))


def digest_arrays(arrays: Sequence[Any]) -> str:
    """Returns a digest of the elements of arrays."""
    found = hashlib.sha256()
    for x in arrays:
        if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
            x = jax.random.key_data(x)
        plain = np.asarray(x)
        found.update(f"{plain.dtype}{plain.shape}".encode())
        found.update(plain.tobytes())
    return found.hexdigest()[:_LENGTH]


def _lines(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        # A literal has `val`. Names of variables are left out: they differ between
        # traces.
        given = [str(getattr(x, "val", x.aval)) for x in equation.invars]
        made = [str(x.aval) for x in equation.outvars]
        yield f"{equation.primitive.name} {given} {made}"
        for value in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _lines(inner)


def _digest(lines: Any) -> str:
    found = hashlib.sha256()
    for line in lines:
        found.update(line.encode())
    return found.hexdigest()[:_LENGTH]
