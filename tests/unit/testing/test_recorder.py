"""The parts of the recorder that need no TensorFlow; tests/porting has its files."""

import ast
import json
import pathlib
import sys

import numpy as np
import pytest

from unisono._src.testing import recorder


def test_it_imports_the_standard_library_and_numpy_alone():
    tree = ast.parse(pathlib.Path(recorder.__file__).read_text())
    names = {
        (n.module if isinstance(n, ast.ImportFrom) else n.names[0].name).split(".")[0]
        for n in ast.walk(tree)
        if isinstance(n, ast.Import | ast.ImportFrom)
    }
    assert names - set(sys.stdlib_module_names) == {"numpy"}


def test_a_step_is_found_by_its_name_wherever_it_is_defined(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    script = tmp_path / "train.py"
    script.write_text(
        "class A:\n    def step(self, x):\n        return x\nfound = A().step(2)\n"
    )
    seen = []

    def call(function, owner, x):
        seen.append(x)
        return function(owner, x)

    recorder.run_script(str(script), "step", call)
    assert seen == [2]
    with pytest.raises(SystemExit, match="no function 'other'"):
        recorder.run_script(str(script), "other", call)


def test_the_floor_is_the_largest_relative_difference_of_variables(tmp_path):
    for name, value in (("one", 2.0), ("two", 2.5)):
        (tmp_path / name).mkdir()
        told = {"variables": [{"name": "w"}]}
        (tmp_path / name / "recording.json").write_text(json.dumps(told))
        arrays = {"step0/after/0": np.array([value, 0.0])}
        np.savez(tmp_path / name / "recording.npz", **arrays)
    found = recorder.measure_floor(tmp_path / "one", tmp_path / "two", 1)
    assert found == pytest.approx(0.25)
    assert recorder.measure_floor(tmp_path / "one", tmp_path / "two", 0) is None


def test_settings_of_an_optimizer_are_plain_numbers():
    class Adam:
        def get_config(self):
            return {"rate": np.float32(0.5), "schedule": object(), "name": "adam"}

    found = recorder.describe(Adam())
    assert found == {"rate": 0.5, "name": "adam", "class": "Adam"}
