"""The hook at the import of Keras: what it finds, and when it acts.

Whole programs, with Keras, are in tests/integration/test_keras_backends.py.
"""

import importlib.util
import os
import sys

import pytest

import unisono  # noqa: F401
from unisono._src.integrations import libraries

pytest.importorskip("keras")


@pytest.fixture
def finder():
    found = [f for f in sys.meta_path if type(f).__module__ == libraries.__name__]
    assert len(found) == 1
    return found[0]


def test_unisono_installs_the_hook_once(finder):
    libraries._watch_keras()
    assert sys.meta_path.count(finder) == 1


def test_other_modules_are_left_to_the_other_finders(finder):
    assert finder.find_spec("json", None) is None
    assert finder.find_spec("keras.layers", sys.modules["keras"].__path__) is None


def test_looking_for_keras_chooses_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, "keras")
    monkeypatch.delenv("KERAS_BACKEND")
    spec = importlib.util.find_spec("keras")
    assert spec is not None and spec.name == "keras"
    assert "keras" not in sys.modules and "KERAS_BACKEND" not in os.environ


def test_a_missing_keras_stays_missing(finder, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [finder])
    assert finder.find_spec("keras", None) is None
