"""The type of one row in the table of TensorFlow's everyday names."""

from __future__ import annotations

import dataclasses
from typing import final


@final
@dataclasses.dataclass(frozen=True)
# A row is text, from which `tests.architecture.everyday_names` writes a function into
# `ops/names`. So the functions have TensorFlow's signatures, which checkers and `help`
# see, and nothing is made when the package is imported.
class Name:
    """One of TensorFlow's names, and how it is computed here.

    Attributes:
        path: TensorFlow's dotted path without ``tf.``, such as ``"reduce_sum"``.
        summary: the first line of its docstring.
        signature: TensorFlow's arguments with types, as in a ``def`` statement.
        call: the expression that computes it from these arguments. Empty if the name is
            written by hand, in the module `target`.
        target: for a name written by hand, ``"module:name"`` of the function.
        also: further paths of TensorFlow for the same function.
        example: the lines of a doctest.
        difference: how it differs from TensorFlow, a sentence; empty if it does not.
    """

    path: str
    summary: str
    signature: str = ""
    call: str = ""
    target: str = ""
    also: tuple[str, ...] = ()
    example: str = ""
    difference: str = ""
