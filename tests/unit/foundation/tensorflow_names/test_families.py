"""Each part of TensorFlow that is not here has a row that says what to use."""

import inspect
import pkgutil
import re

import unisono
from unisono._src.cli.check import package_names
from unisono._src.foundation.tensorflow_names import families, listing


def test_every_row_is_for_a_name_that_tensorflow_has():
    unknown = [r.path for r in families.ROWS if r.path and not listing.kind(r.path)]
    assert not unknown
    assert len({row.path for row in families.ROWS}) == len(families.ROWS)


def test_every_module_of_tensorflow_has_a_row():
    kinds, _ = listing._read()
    modules = [path for path, kind in kinds.items() if kind == "module"]
    assert not [path for path in modules if not families.find(path).path]


def test_what_a_row_says_to_use_exists():
    absent = []
    for row in families.ROWS:
        named = r"\b(?:unisono|jax|optax|numpy|scipy|PIL)(?:\.\w+)+"
        for path in re.findall(named, row.instead):
            try:
                pkgutil.resolve_name(path)
            except (AttributeError, ImportError):
                absent.append((row.path, path))
        methods = re.findall(r"\bDataset\.(\w+)", row.instead)
        absent += [m for m in methods if not hasattr(unisono.data.Dataset, m)]
    assert not absent


def test_rows_say_what_to_do_in_a_sentence():
    for row in families.ROWS:
        assert row.instead.endswith("."), row
        assert not row.purpose.endswith("."), row


def test_no_row_is_for_a_name_that_is_here():
    found = {row.path: package_names.find(row.path) for row in families.ROWS}
    # A module may be here without all that TensorFlow has in it.
    assert not [
        path
        for path, value in found.items()
        if value is not package_names.NOTHING and not inspect.ismodule(value)
    ]
