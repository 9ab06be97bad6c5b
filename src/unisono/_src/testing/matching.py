"""Which variable of a ported program is which of the original."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, final

# Optax' names of slots, and those that Keras has for the same.
_SLOTS = {"mu": "momentum", "nu": "velocity", "trace": "momentum", "count": "iteration"}
# Keras 2 has them behind the optimizer's name, as in Adam/m/dense/kernel.
_OLD_SLOTS = {"m": "momentum", "v": "velocity"}


@final
class Named(NamedTuple):
    """A variable of a program: its name, kind and shape."""

    name: str
    kind: str
    shape: tuple[int, ...]


@final
@dataclasses.dataclass
class Matching:
    """Pairs of variables.

    Attributes:
        pairs: for numbers of the original's variables, the names of the ported ones.
        by_order: those of them that only order and shape have paired.
    """

    pairs: dict[int, str] = dataclasses.field(default_factory=dict)
    by_order: set[int] = dataclasses.field(default_factory=set)


def match(
    old: Sequence[Named], new: Sequence[Named], given: Mapping[str, str]
) -> Matching:
    """Pairs variables: as given, by path, then by order and shape.

    Slots are never paired by order alone, which optimizers do not agree on.

    >>> old = [Named("dense/kernel", "variable", (2,)), Named("b", "variable", (2,))]
    >>> new = [Named("dense/kernel", "variable", (2,)), Named("c", "variable", (2,))]
    >>> match(old, new, {}).pairs
    {0: 'dense/kernel', 1: 'c'}
    """
    made = Matching()
    names = {v.name: v for v in new}
    for number, variable in enumerate(old):
        if variable.name in given:
            made.pairs[number] = given[variable.name]
        elif _is_same(variable, names.get(variable.name)):
            made.pairs[number] = variable.name
    ways: tuple[Callable[[Named], Hashable], ...] = (
        lambda v: (v.kind, v.shape, _last_word(v)),
        lambda v: (v.kind, v.shape) if v.kind != "slot" else None,
    )
    for way in ways:
        _match_groups(old, new, way, made)
    return made


def _is_same(old: Named, new: Named | None) -> bool:
    return new is not None and old.shape == new.shape


def _last_word(variable: Named) -> str:
    """Returns what a variable is to its layer, or a slot to its variable."""
    last = variable.name.split(" ")[0].rpartition("/")[2]
    if variable.kind != "slot":
        return last.rstrip("0123456789_")
    _, _, behind = variable.name.partition("/")
    if (old := behind.partition("/")[0]) in _OLD_SLOTS:
        return _OLD_SLOTS[old]
    words = [_SLOTS.get(w, w) for w in variable.name.replace("/", "_").split("_")]
    known = [w for w in words if w in _SLOTS.values()]
    return known[-1] if known else last


def _match_groups(
    old: Sequence[Named],
    new: Sequence[Named],
    key: Callable[[Named], Hashable],
    made: Matching,
) -> None:
    """Pairs what is alike, in order, where both programs have as many of it."""
    taken = set(made.pairs.values())
    theirs: dict[Hashable, list[str]] = {}
    for variable in new:
        if variable.name not in taken:
            theirs.setdefault(key(variable), []).append(variable.name)
    ours: dict[Hashable, list[int]] = {}
    for number, variable in enumerate(old):
        if number not in made.pairs:
            ours.setdefault(key(variable), []).append(number)
    for group, numbers in ours.items():
        names = theirs.get(group, [])
        if group is not None and len(names) == len(numbers):
            made.pairs.update(zip(numbers, names, strict=True))
            made.by_order |= set(numbers)
