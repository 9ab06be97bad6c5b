"""Nested structures keep their types; everything else is a leaf."""

import collections
import types
from collections.abc import Mapping, MutableMapping

import pytest

from tests.mappings import Fixed
from unisono._src.foundation import nest

Pair = collections.namedtuple("Pair", "a b")


class Config(dict):
    """A user's own kind of dictionary."""


class Open(MutableMapping, Fixed):
    """A user's own mapping, which begins empty."""

    def __init__(self):
        self.inner = {}

    def __setitem__(self, key, value):
        self.inner[key] = value

    def __delitem__(self, key):
        del self.inner[key]


class Sized(Open):
    """A user's own mapping, which cannot be made from pairs."""

    def __init__(self, size):
        super().__init__()
        self.size = size


def fill(made, **kwargs):
    """Returns a mapping with other items in addition."""
    made.update(**kwargs)
    return made


def test_containers_are_lists_tuples_and_mappings():
    for x in ([], (), {}, Pair(1, 2), collections.OrderedDict(), Config()):
        assert nest.is_nested(x)
    for leaf in (1, "ab", None, {1}, b"ab", range(2), iter([])):
        assert not nest.is_nested(leaf)


@pytest.mark.parametrize(
    "tree",
    [
        [1, [2, (3,)]],
        {"b": 1, "a": {"c": 2}},
        Pair(1, [2]),
        collections.OrderedDict(b=1, a=2),
        Config(x=1),
        (),
        Fixed(b=1, a=[Fixed(c=2)]),
        types.MappingProxyType({"b": 1, "a": 2}),
        fill(Open(), b=1, a=2),
        collections.ChainMap({"b": 1}, {"a": 2}),
        collections.UserDict(b=1, a=2),
    ],
)
def test_mapping_keeps_types_keys_and_order(tree):
    before = list(nest.leaves(tree))
    doubled = nest.map_structure(lambda x: 2 * x, tree)
    assert type(doubled) is type(tree) and list(nest.leaves(tree)) == before
    assert list(nest.leaves(doubled)) == [2 * x for x in before]
    if isinstance(tree, Mapping):
        assert list(doubled) == list(tree)


def test_a_defaultdict_stays_one_and_the_original_is_not_touched():
    tree = collections.defaultdict(list, a=1)
    doubled = nest.map_structure(lambda x: 2 * x, tree)
    assert (type(doubled), doubled["a"], doubled["new"]) == (type(tree), 2, [])
    assert tree == {"a": 1}


def test_a_mapping_that_cannot_be_made_from_pairs_is_refused():
    with pytest.raises(TypeError, match="iterable of key-value pairs"):
        nest.map_structure(lambda x: 2 * x, fill(Sized(3), a=1))


def test_leaves_come_depth_first_and_by_key():
    tree = {"b": [1, (2, 3)], "a": Pair(4, {"z": 5, "y": 6})}
    assert list(nest.leaves(tree)) == [4, 6, 5, 1, 2, 3]
    assert list(nest.leaves(7)) == [7]
    assert nest.children(tree["a"]) == [4, {"z": 5, "y": 6}]


def test_the_same_layout_passes_and_another_is_described():
    nest.check_same([1, 2], [3, 4], 1)
    nest.check_same({"a": 1, "b": 2}, {"b": 1, "a": 2}, 1)
    for first, other, told in (
        ([1], [1, 2], r"len\(v\) == 2, len\(v0\) == 1"),
        ([1], (1,), "list and tuple"),
        ({"a": 1}, {"b": 1}, r"\['a'\].*\['b'\]"),
        ({"a": 1}, [1], "'a'"),
    ):
        with pytest.raises(AssertionError, match=told) as error:
            nest.check_same(first, other, 3)
        assert "replica 3" in str(error.value)
