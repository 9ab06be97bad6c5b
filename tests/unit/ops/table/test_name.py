"""The rows of names that are written by hand are true."""

import importlib

import pytest

import unisono

AREAS = ("environment", "random", "debugging", "control")


@pytest.mark.parametrize("area", AREAS)
def test_each_row_is_found_at_its_paths_and_tells_its_docstring(area):
    rows = importlib.import_module(f"unisono._src.ops.table.{area}").ROWS
    for row in rows:
        module, _, name = row.target.partition(":")
        thing = getattr(importlib.import_module(module), name)
        for path in (row.path, *row.also):
            found = unisono
            for part in path.split("."):
                found = getattr(found, part)
            assert found is thing, path
        if (getattr(thing, "__module__", None) or "").startswith("unisono"):
            assert thing.__doc__.splitlines()[0] == row.summary, row.path
