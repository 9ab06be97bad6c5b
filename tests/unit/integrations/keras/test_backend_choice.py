"""Which backend Keras gets, by what the environment and its file say.

Whole programs, with Keras, are in tests/integration/test_keras_backends.py.
"""

import os
import sys

import pytest

from unisono._src.integrations.keras import backend_choice


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Keras' configuration file, in a process that has not loaded Keras."""
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    return tmp_path / "keras.json"


@pytest.mark.parametrize(
    "text",
    ['{"floatx": "float32"}', '{"backend": "tensorflow"}', "[1]", "no JSON"],
)
def test_a_file_without_a_choice_leaves_it_to_jax(settings, text):
    settings.write_text(text)
    backend_choice.choose()
    assert os.environ["KERAS_BACKEND"] == "jax"


def test_a_file_that_names_jax_is_enough(settings):
    settings.write_text('{"backend": "jax"}')
    backend_choice.choose()
    assert "KERAS_BACKEND" not in os.environ


def test_the_environment_prevails_over_the_file(settings, monkeypatch):
    settings.write_text('{"backend": "torch"}')
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    backend_choice.choose()
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    with pytest.raises(RuntimeError, match="KERAS_BACKEND names 'tensorflow'"):
        backend_choice.choose()
    # Keras ignores an empty one.
    monkeypatch.setenv("KERAS_BACKEND", "")
    with pytest.raises(RuntimeError, match=r"keras\.json names 'torch'"):
        backend_choice.choose()


def test_a_keras_that_is_loaded_keeps_its_backend(settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", object())
    settings.write_text('{"backend": "torch"}')
    backend_choice.choose()
    assert "KERAS_BACKEND" not in os.environ
