"""Nested structures: list, tuple, namedtuple and mappings; all else is a leaf."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax


def is_nested(x: object) -> bool:
    """Whether `x` is a container that is walked into."""
    return isinstance(x, (list, tuple, Mapping))


def keys(x: Mapping[Any, Any]) -> list[Any]:
    """The keys of a mapping in the order in which its children are visited.

    Two mappings with the same keys are visited alike, whatever came into them first.

    >>> keys({"b": 1, "a": 2})
    ['a', 'b']
    """
    try:
        return sorted(x)
    except TypeError:
        # Keys of several types.
        return list(x)


def rebuild(like: Any, children: Sequence[Any]) -> Any:
    """A container of the type and keys of `like` with other children.

    >>> rebuild({"b": 1, "a": 2}, [3, 4])
    {'b': 4, 'a': 3}
    """
    if isinstance(like, Mapping):
        # In the place that each key has already; and not every mapping can be made
        # from pairs: a `defaultdict` cannot.
        made = dict(like) if type(like) is dict else copy.copy(like)
        for key, child in zip(keys(like), children, strict=True):
            made[key] = child  # type: ignore[index]
        return made
    if hasattr(like, "_fields"):
        return type(like)(*children)
    return type(like)(children)


def children(x: Any) -> list[Any]:
    """The direct children of a container; those of a mapping in the order of `keys`."""
    return [x[key] for key in keys(x)] if isinstance(x, Mapping) else list(x)


def map_structure(fn: Callable[[Any], Any], x: Any) -> Any:
    """Apply `fn` to every leaf, keeping the structure.

    >>> map_structure(lambda v: v + 1, {"a": [1, (2,)]})
    {'a': [2, (3,)]}
    """
    if is_nested(x):
        return rebuild(x, [map_structure(fn, c) for c in children(x)])
    return fn(x)


def is_whole(x: Any) -> bool:
    """Whether `x` is an object of another library that has variables of a strategy.

    JAX would take it apart and put another one together, with arrays for variables.
    """

    def is_variable(y: Any) -> bool:
        return hasattr(type(y), "_unisono_variable")

    return any(map(is_variable, jax.tree.leaves(x, is_leaf=is_variable)))


def map_leaves(fn: Callable[[Any], Any], x: Any, leaf_type: type) -> Any:
    """Like `map_structure`, also inside structures that only JAX knows.

    Args:
        fn: applied to every leaf.
        x: a structure.
        leaf_type: JAX knows how to take objects of this type apart; it shall not.
    """

    def apply(x: Any) -> Any:
        if x is None or isinstance(x, leaf_type) or jax.tree_util.all_leaves([x]):
            return fn(x)
        if is_whole(x):
            return fn(x)
        return jax.tree.map(fn, x, is_leaf=lambda y: isinstance(y, leaf_type))

    return map_structure(apply, x)


def leaves(x: Any) -> Iterator[Any]:
    """Every leaf, depth first.

    >>> list(leaves([1, {"a": 2}]))
    [1, 2]
    """
    if is_nested(x):
        for child in children(x):
            yield from leaves(child)
    else:
        yield x


def check_same(first: Any, other: Any, replica: int) -> None:
    """Raise `AssertionError` unless `other` has the container layout of `first`."""
    where = f"replica 0 and replica {replica} returned different structures: "
    if isinstance(first, Mapping):
        if not isinstance(other, Mapping) or first.keys() != other.keys():
            keys = sorted(map(str, other)) if isinstance(other, Mapping) else other
            raise AssertionError(
                f"{where}v[0].keys: {sorted(map(str, first))} v[i].keys: {keys}"
            )
    elif type(first) is not type(other):
        raise AssertionError(
            f"{where}{type(first).__name__} and {type(other).__name__}"
        )
    elif len(first) != len(other):
        raise AssertionError(
            f"{where}len(v) == {len(other)}, len(v0) == {len(first)}, v: {other}, "
            f"v0: {first}"
        )
