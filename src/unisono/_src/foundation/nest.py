"""Walks over nested structures of lists, tuples, named tuples and mappings.

Everything else is a leaf. These are TensorFlow's containers, not JAX's: for JAX, None
and classes that a program has registered are containers too.
"""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

import jax

from unisono._src.foundation.tensor_shape import TensorShape

_Made = TypeVar("_Made", bound=MutableMapping[Any, Any])


def is_nested(x: object) -> bool:
    """Returns whether `x` is a container, not a leaf.

    >>> is_nested((2, 3)), is_nested(TensorShape((2, 3)))
    (True, False)
    """
    return isinstance(x, (list, tuple, Mapping)) and type(x) is not TensorShape


def keys(x: Mapping[Any, Any]) -> list[Any]:
    """Returns the keys of a mapping in the order in which its children are visited.

    The order does not depend on which key was inserted first.

    >>> keys({"b": 1, "a": 2})
    ['a', 'b']
    """
    try:
        # As TensorFlow does, so that all replicas and workers visit children alike.
        return sorted(x)
    except TypeError:
        # Keys of several types have no order but that of their insertion.
        return list(x)


def rebuild(like: object, children: Sequence[Any]) -> Any:
    """Returns a container of the type and keys of `like` with other children.

    >>> rebuild({"b": 1, "a": 2}, [3, 4])
    {'b': 4, 'a': 3}
    """
    if isinstance(like, Mapping):
        if type(like) is dict:
            return _fill(dict(like), keys(like), children)
        if isinstance(like, dict | collections.UserDict | collections.ChainMap):
            # It also works for those that cannot be made from pairs, such as a
            # `defaultdict`.
            return _fill(copy.copy(like), keys(like), children)
        return _rebuild_own(like, dict(zip(keys(like), children, strict=True)))
    kind: Any = type(like)
    # A named tuple takes its fields one by one.
    return kind(*children) if hasattr(like, "_fields") else kind(children)


def _fill(made: _Made, keys: Sequence[Any], children: Sequence[Any]) -> _Made:
    """Returns a mapping, whose order of keys it keeps, with other children."""
    for key, child in zip(keys, children, strict=True):
        made[key] = child
    return made


def _rebuild_own(
    like: Mapping[Any, Any], children: dict[Any, Any]
) -> Mapping[Any, Any]:
    """Returns a mapping of a class of the program's own with other children.

    It is made anew: a copy of the object may share its contents with it.

    Raises:
        TypeError: the class makes no such mapping from pairs.
    """
    kind: Any = type(like)
    in_order = {key: children[key] for key in like}
    ways: list[Callable[[], Any]] = [
        lambda: kind([*in_order.items()]),
        # Such as `types.MappingProxyType`.
        lambda: kind(in_order),
    ]
    if isinstance(like, MutableMapping):
        ways.insert(0, lambda: _fill(kind(), [*in_order], [*in_order.values()]))
    cause: Any = "the object that it made has other keys"
    for make in ways:
        try:
            made: Mapping[Any, Any] = make()
        except (TypeError, ValueError) as error:
            cause = error
        else:
            if [*made] == [*like]:
                return made
    raise TypeError(
        f"Error creating an object of type {kind} like {like}. Note that it must "
        "accept a single positional argument representing an iterable of key-value "
        f"pairs, in addition to self. Cause: {cause}"
    )


def children(x: Any) -> list[Any]:
    """Returns the direct children of a container, in the order of `keys` for a mapping.

    >>> children({"b": 1, "a": [2, 3]})
    [[2, 3], 1]
    """
    return [x[key] for key in keys(x)] if isinstance(x, Mapping) else list(x)


def map_structure(fn: Callable[[Any], Any], x: object) -> Any:
    """Returns the structure `x` with `fn` applied to every leaf.

    >>> map_structure(lambda v: v + 1, {"a": [1, (2,)]})
    {'a': [2, (3,)]}
    """
    if is_nested(x):
        return rebuild(x, [map_structure(fn, c) for c in children(x)])
    return fn(x)


def is_whole(x: object) -> bool:
    """Returns whether `x` is another library's object with variables of a strategy.

    Such an object must stay whole, although JAX could flatten it: JAX would build
    another object that has arrays in place of the variables.
    """

    def is_variable(y: object) -> bool:
        return hasattr(type(y), "_unisono_variable")

    return any(map(is_variable, jax.tree.leaves(x, is_leaf=is_variable)))


def map_leaves(fn: Callable[[Any], Any], x: object, leaf_type: type) -> Any:
    """Returns `x` with `fn` applied to every leaf, also in structures only JAX knows.

    Args:
        fn: the function.
        x: the structure.
        leaf_type: a type whose objects are leaves, although JAX could flatten them.
    """

    def apply(x: object) -> object:
        if x is None or isinstance(x, leaf_type) or jax.tree_util.all_leaves([x]):
            return fn(x)
        # Only if JAX could take it apart, because to look costs a walk.
        if is_whole(x):
            return fn(x)
        return jax.tree.map(fn, x, is_leaf=lambda y: isinstance(y, leaf_type))

    return map_structure(apply, x)


def leaves(x: object) -> Iterator[Any]:
    """Yields every leaf of `x`, depth first.

    >>> list(leaves([1, {"a": 2}]))
    [1, 2]
    """
    if is_nested(x):
        for child in children(x):
            yield from leaves(child)
    else:
        yield x


def check_same(first: Any, other: Any, replica: int) -> None:
    """Raises `AssertionError` if two results are not containers of one layout.

    The direct children are compared in number and by their keys, not in turn.

    Args:
        first: the result of replica 0, a container.
        other: the result of another replica.
        replica: the index of that replica, for the message.
    """
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
