"""Modules have TensorFlow's names, and list what is in them in its order."""

from typing import Any

import pytest

import unisono as uni


class Leaf(uni.Module):
    def __init__(self, name):
        super().__init__()
        self.w = uni.Variable(1.0, name=name)


class Pair(uni.Module):
    def __init__(self):
        super().__init__()
        self.second, self.first = Leaf("b"), Leaf("a")


class Net(uni.Module):
    def __init__(self):
        super().__init__()
        self.parts = {10: Leaf("d10"), 2: [Leaf("d2"), uni.Variable(1.0, name="inner")]}
        self.own = uni.Variable(1.0, name="own")
        self.pair = Pair()
        self.again = self.pair.first
        self.itself = self


def test_the_variables_of_a_module_come_before_those_of_its_submodules():
    # As TensorFlow 2.21 lists them.
    names = ["own:0", "inner:0", "a:0", "b:0", "d2:0", "d10:0"]
    assert [v.name for v in Net().variables] == names
    below = [module.variables[0].name for module in Net().submodules]
    assert below == ["a:0", "a:0", "d2:0", "d10:0", "b:0"]


@pytest.mark.parametrize("name", ["", "1 bad", "a/b", "é"])
def test_a_name_that_no_variable_can_begin_with_is_refused(name):
    with pytest.raises(ValueError, match="not a valid module name"):
        uni.Module(name=name)


def test_a_list_may_hold_itself():
    module: Any = Leaf("w")
    module.parts = [module.w, Leaf("inner")]
    module.parts.append(module.parts)
    assert [v.name for v in module.variables] == ["w:0", "inner:0"]
