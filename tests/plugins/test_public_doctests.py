"""The examples of public names are collected once, in the module that defines them."""

import doctest

import unisono
from unisono._src.execution import function_decorator
from unisono._src.strategies import base, function_contexts


def examples_of(module):
    found = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    return {test.name.removeprefix(f"{module.__name__}.") for test in found}


def test_examples_of_public_classes_and_functions_are_found_where_they_are_written():
    assert "ValueContext" in examples_of(function_contexts)
    assert "function" in examples_of(function_decorator)


def test_examples_are_not_found_again_in_a_public_module():
    assert examples_of(unisono.distribute) == set()


def test_examples_are_not_found_in_a_module_that_imports_the_name():
    assert not any(name.startswith("Variable") for name in examples_of(base))
