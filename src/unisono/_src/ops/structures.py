"""TensorFlow's ``tf.nest``: functions over nested lists, tuples and mappings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast, overload

from unisono._src.foundation import nest
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.state.sharded_variable import ShardedVariable
from unisono._src.values import distributed

_T = TypeVar("_T")
_K = TypeVar("_K")


@everyday_name("nest.is_nested")
def is_nested(seq: object) -> bool:
    """Returns whether a value is a list, a tuple or a mapping.

    >>> is_nested({"a": 1}), is_nested("text")
    (True, False)
    """
    return nest.is_nested(seq)


@everyday_name("nest.flatten")
def flatten(structure: object, expand_composites: bool = False) -> list[Any]:
    """Returns the leaves of a structure as a list; keys of mappings are sorted.

    Args:
        structure: nested lists, tuples and mappings; anything else is a leaf.
        expand_composites: whether to split a `PerReplica` into its values, and a
            `ShardedVariable` into its parts.

    >>> flatten({"b": 1, "a": [2, (3,)]})
    [2, 3, 1]
    """
    return list(_leaves(structure, expand_composites))


def _leaves(x: Any, expands: bool) -> Iterator[Any]:
    inner = _children(x, expands)
    if inner is None:
        yield x
    else:
        for child in inner:
            yield from _leaves(child, expands)


def _children(x: Any, expands: bool) -> list[Any] | None:
    """Returns the direct children of a container; None for a leaf."""
    if nest.is_nested(x):
        return nest.children(x)
    if expands and isinstance(x, distributed.PerReplica):
        return list(x.values)
    if expands and isinstance(x, ShardedVariable):
        return list(x.variables)
    return None


@everyday_name("nest.pack_sequence_as")
def pack_sequence_as(
    structure: _T, flat_sequence: Sequence[object], expand_composites: bool = False
) -> _T:
    """Returns a structure with the layout of another one and new leaves.

    Args:
        structure: the structure to follow.
        flat_sequence: the leaves, in the order of `flatten`.
        expand_composites: whether to split a `PerReplica` into its values, and a
            `ShardedVariable` into its parts.

    Raises:
        TypeError: `flat_sequence` is not a list.
        ValueError: the number of leaves does not fit the structure.

    >>> pack_sequence_as({"b": 1, "a": (2, 3)}, [4, 5, 6])
    {'b': 6, 'a': (4, 5)}
    """
    if not nest.is_nested(flat_sequence):
        raise TypeError(
            f"Attempted to pack value:\n  {flat_sequence}\ninto a structure, but found "
            f"incompatible type `{type(flat_sequence)}` instead."
        )
    wanted = len(flatten(structure, expand_composites))
    if wanted != len(flat_sequence):
        raise ValueError(
            f"Could not pack sequence. Structure had {wanted} atoms, but flat_sequence "
            f"had {len(flat_sequence)} items.  Structure: {structure}, flat_sequence: "
            f"{flat_sequence}."
        )
    given = iter(flat_sequence)
    return cast(_T, _rebuild(structure, given, expand_composites))


def _rebuild(like: Any, given: Iterator[Any], expands: bool) -> Any:
    inner = _children(like, expands)
    if inner is None:
        return next(given)
    parts = [_rebuild(child, given, expands) for child in inner]
    if isinstance(like, distributed.PerReplica):
        return distributed.PerReplica(tuple(parts))
    if isinstance(like, ShardedVariable):
        return ShardedVariable(parts, like.name)
    return nest.rebuild(like, parts)


@overload
def map_structure(
    func: Callable[..., Any],
    first: list[Any],
    /,
    *structure: Any,
    check_types: bool = True,
    expand_composites: bool = False,
    **kwargs: Any,
) -> list[Any]: ...


@overload
def map_structure(
    func: Callable[..., Any],
    first: tuple[Any, ...],
    /,
    *structure: Any,
    check_types: bool = True,
    expand_composites: bool = False,
    **kwargs: Any,
) -> tuple[Any, ...]: ...


@overload
def map_structure(
    func: Callable[..., Any],
    first: dict[_K, Any],
    /,
    *structure: Any,
    check_types: bool = True,
    expand_composites: bool = False,
    **kwargs: Any,
) -> dict[_K, Any]: ...


@overload
def map_structure(
    func: Callable[..., Any],
    /,
    *structure: object,
    check_types: bool = True,
    expand_composites: bool = False,
    **kwargs: object,
) -> Any: ...


@everyday_name("nest.map_structure")
def map_structure(
    func: Callable[..., Any],
    /,
    *structure: Any,
    check_types: bool = True,
    expand_composites: bool = False,
    **kwargs: Any,
) -> Any:
    """Returns the results of a function on the leaves of structures, in their layout.

    Args:
        func: a function with one parameter for each structure.
        *structure: structures with the same layout.
        check_types: whether containers must have the same types, too.
        expand_composites: whether to split a `PerReplica` into its values, and a
            `ShardedVariable` into its parts.
        **kwargs: raise a `ValueError`, as in TensorFlow.

    Raises:
        TypeError: `func` is not a function, or the types of containers differ.
        ValueError: there is no structure, or the layouts differ.

    >>> map_structure(lambda x, y: x + y, [1, (2,)], [3, (4,)])
    [4, (6,)]
    """
    if not callable(func):
        raise TypeError(f"func must be callable, got: {func}")
    if not structure:
        raise ValueError("Must provide at least one structure")
    if kwargs:
        raise ValueError(
            "Only valid keyword arguments are `check_types` and `expand_composites`, "
            f"not: `{'`, `'.join(kwargs)}`"
        )
    first, *others = structure
    for other in others:
        assert_same_structure(first, other, check_types, expand_composites)
    columns = [flatten(s, expand_composites) for s in structure]
    results = [func(*row) for row in zip(*columns, strict=True)]
    return pack_sequence_as(first, results, expand_composites)


@everyday_name("nest.assert_same_structure")
def assert_same_structure(
    nest1: object,
    nest2: object,
    check_types: bool = True,
    expand_composites: bool = False,
) -> None:
    """Raises an error unless two structures have the same layout.

    Args:
        nest1: a structure.
        nest2: another structure.
        check_types: whether containers must have the same types, too. All kinds of
            mappings count as the same, and so do named tuples with the same name and
            fields.
        expand_composites: whether to split a `PerReplica` into its values, and a
            `ShardedVariable` into its parts.

    Raises:
        TypeError: the types of containers differ.
        ValueError: the layouts differ.

    >>> assert_same_structure([1, {"a": 2}], [3, {"a": 4}])
    """
    try:
        _compare(nest1, nest2, check_types, expand_composites)
    except (TypeError, ValueError) as error:
        raise type(error)(
            "The two structures don't have the same nested structure.\n\nFirst "
            f"structure: {_tell(nest1)}\n\nSecond structure: {_tell(nest2)}\n\nMore "
            f"specifically: {error}"
        ) from None


def _tell(x: object) -> str:
    return f"type={type(x).__name__} str={x}"


def _compare(a: Any, b: Any, checks_types: bool, expands: bool) -> None:
    first, second = _children(a, expands), _children(b, expands)
    if first is None and second is None:
        return
    if first is None or second is None:
        whole, leaf = (b, a) if first is None else (a, b)
        raise ValueError(
            f'Substructure "{_tell(whole)}" is a sequence, while substructure '
            f'"{_tell(leaf)}" is not'
        )
    if checks_types and not _has_same_type(a, b):
        raise TypeError(
            f"The two containers don't have the same type. First structure {_tell(a)}, "
            f"while second structure {_tell(b)}"
        )
    if isinstance(a, Mapping) and isinstance(b, Mapping) and a.keys() != b.keys():
        raise ValueError(
            "The two dictionaries don't have the same set of keys. First structure has "
            f"keys {_tell(list(a))}, while second structure has keys {_tell(list(b))}"
        )
    if len(first) != len(second):
        raise ValueError(
            "The two structures don't have the same number of elements. First "
            f"structure: {_tell(a)}. Second structure: {_tell(b)}"
        )
    for x, y in zip(first, second, strict=True):
        _compare(x, y, checks_types, expands)


def _has_same_type(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return True
    if hasattr(a, "_fields") and hasattr(b, "_fields"):
        # By name, as in TensorFlow: a function may make its
        # named tuple anew at each call.
        told = [(type(x).__name__, x._fields) for x in (a, b)]
        return told[0] == told[1]
    return type(a) is type(b)
