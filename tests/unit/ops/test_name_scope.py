"""Name scopes prefix names of variables, and names in compiled programs."""

import numpy as np
import pytest

import unisono
from tests.parity.programs import mirrored


def test_names_follow_the_scopes_around_them():
    with unisono.name_scope("a") as outer:
        with unisono.name_scope("b/") as absolute:
            first = unisono.Variable(1.0).name
        with unisono.name_scope("b") as inner:
            second = unisono.Variable(1.0, name="v").name
        with unisono.name_scope("") as root:
            third = unisono.Variable(1.0, name="v").name
    assert (outer, absolute, inner, root) == ("a/", "b/", "a/b/", "")
    assert (first, second, third) == ("b/Variable:0", "a/b/v:0", "v:0")
    assert unisono.Variable(1.0, name="v").name == "v:0"
    assert unisono.name_scope("a").name == "a"
    with pytest.raises(ValueError, match="must be a string"):
        unisono.name_scope(None)


def test_eager_replicas_begin_without_the_scopes_around_them():
    strategy = mirrored(2)

    def make():
        made = [unisono.Variable(1.0, name="w")]
        with unisono.name_scope("bar"):
            made.append(unisono.Variable(1.0, name="w"))
        return made

    with strategy.scope(), unisono.name_scope("foo"):
        made = strategy.run(make)
        assert unisono.Variable(1.0, name="w").name == "foo/w:0"
    assert [v.name for v in made] == ["w:0", "bar/w:0"]


def test_operations_of_a_program_have_the_name():
    @unisono.function
    def double(x):
        with unisono.name_scope("doubling"):
            return 2.0 * x

    text = double.lowered(np.ones(3)).as_text(debug_info=True)
    assert "doubling" in text
