"""TensorFlow's everyday names are functions that say their paths themselves."""

import importlib
import sys

import pytest

import unisono
from tests.architecture import everyday_names
from unisono._src.foundation.tensorflow_names import everyday, listing


def test_the_page_of_differences_lists_those_that_functions_say():
    page = everyday_names.PAGE.read_text(encoding="utf-8")
    assert page == everyday_names.with_differences(page), (
        "run `python -m tests.architecture.everyday_names`."
    )


def test_every_path_is_a_public_name_for_its_object():
    for path, entry in everyday_names.load().items():
        module = sys.modules["unisono"]
        for part in path.split("."):
            assert part in dir(module), path
            assert part in module.__all__, path
            module = getattr(module, part)
        # Keras' symbolic tensors may have been let in, by a function around it.
        assert getattr(module, "__wrapped__", module) in (
            entry.value,
            getattr(entry.value, "__wrapped__", entry.value),
        ), path


def test_every_path_is_one_of_tensorflow():
    assert [p for p in everyday_names.load() if listing.kind(p) is None] == []


def test_a_name_of_two_public_modules_is_one_function():
    assert unisono.math.add is unisono.add
    assert unisono.nn.sigmoid is unisono.sigmoid


@pytest.mark.parametrize("module", everyday_names.MODULES)
def test_type_checkers_see_the_names_that_there_are(module):
    everyday_names.load()
    assert everyday_names.seen_by_checkers(module) == {*everyday.names_in(module)}


@pytest.mark.parametrize("module", everyday_names.MODULES)
def test_the_list_of_all_names_is_made_when_it_is_asked_for(module):
    listed = importlib.import_module(module).__all__
    assert {*everyday.names_in(module)} <= {*listed}
    assert len(listed) == len({*listed})
