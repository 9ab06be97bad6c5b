"""The page for TensorFlow's users has the tables of the code, and its programs run."""

import importlib.util
import re
import warnings

import pytest

from tests.architecture import from_tensorflow
from unisono import keras

TEXT = from_tensorflow.PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"### ([^\n]*)\n(?:(?!\n#).)*?```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_tables_are_those_of_the_data():
    assert from_tensorflow.render(TEXT) == TEXT, (
        "docs/from-tensorflow.md is stale; write its tables again: "
        "`python -m tests.architecture.from_tensorflow`."
    )


def test_every_recipe_has_a_program():
    assert len(BLOCKS) == len(re.findall(r"^```python$", TEXT, re.MULTILINE)) == 4


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("code", [pytest.param(code, id=id_) for id_, code in BLOCKS])
def test_the_recipes_run(code):
    if "tf.keras" in code and not _is_keras():
        pytest.skip("unisono.keras is not Keras here")
    exec(compile(code, "docs/from-tensorflow.md", "exec"), {"__name__": "recipe"})


def _is_keras():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.util.find_spec("keras") and hasattr(keras, "Sequential")
