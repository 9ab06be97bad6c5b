"""The pages for TensorFlow's users have the tables of the code; their programs run."""

import importlib.util
import re
import warnings

import pytest

from tests.architecture import from_tensorflow, sources
from unisono import keras

TEXT = (sources.ROOT / "docs" / "from-tensorflow.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"### ([^\n]*)\n(?:(?!\n#).)*?```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_tables_are_those_of_the_data():
    texts = {page: page.read_text(encoding="utf-8") for page in from_tensorflow.PAGES}
    for page, text in texts.items():
        assert from_tensorflow.render(text) == text, (
            f"docs/from-tensorflow/{page.name} is stale; write its tables again: "
            "`python -m tests.architecture.from_tensorflow`."
        )
    shown = [
        name
        for name in from_tensorflow.TABLES
        if any(f": {name} -->" in t for t in texts.values())
    ]
    assert shown == list(from_tensorflow.TABLES)


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
