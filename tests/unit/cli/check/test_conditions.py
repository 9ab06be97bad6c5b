"""Conditions of differences are for names of TensorFlow and for their arguments."""

import inspect

from unisono._src.cli.check import conditions, package_names
from unisono._src.foundation.tensorflow_names import listing

# In TensorFlow 2 they are members of other names.
MEMBERS = {"Tensor.dtype", "Tensor.shape"}


def test_conditions_are_for_names_of_tensorflow():
    tables = (conditions._ONLY_WITH, conditions._ONLY_WITHOUT, conditions._TYPES)
    paths = {
        *conditions._NEVER,
        *conditions._POSITIONS,
        *(p for t in tables for p in t),
    }
    assert [path for path in sorted(paths - MEMBERS) if not listing.kind(path)] == []


def test_the_arguments_of_conditions_stand_at_their_places():
    tables = conditions._ONLY_WITH | conditions._ONLY_WITHOUT | conditions._TYPES
    for path, (name, place) in tables.items():
        parameters = list(inspect.signature(package_names.find(path)).parameters)
        if path.startswith("data.Dataset."):
            parameters = parameters[1:]
        found = parameters.index(name)
        assert place in (found, conditions.BY_NAME), (path, name, found)
