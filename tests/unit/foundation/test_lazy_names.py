"""A public module says what to write for TensorFlow's names that it does not have."""

import ast
import calendar
import gc
import importlib.util
import inspect
import os
import subprocess
import sys
import weakref

import pytest

import unisono
from tests.architecture import snapshot
from unisono._src.foundation.tensorflow_names import listing


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        ("unisono", "signal", "module for signals, which .* Use jax.numpy.fft"),
        ("unisono", "raw_ops", "single operations"),
        (
            "unisono.nn",
            "ctc_loss",
            "function for neural.* Use optax.ctc_loss",
        ),
        ("unisono.data.experimental", "SqlDataset", "from_generator"),
        ("unisono.compat.v1", "Session", "programs of TensorFlow 1"),
        ("unisono.compat.v2", "signal", "for signals"),
        ("unisono.experimental", "dtensor", "Use jax.sharding"),
    ],
)
def test_a_name_of_tensorflow_answers_with_what_to_write(module, name, said):
    holder = snapshot.public_modules()[module]
    with pytest.raises(AttributeError, match=said) as caught:
        getattr(holder, name)
    assert str(caught.value).startswith(f"module {module!r} has no attribute {name!r}")
    assert str(caught.value).endswith("See docs/from-tensorflow.md.")


def test_importing_a_name_of_tensorflow_says_the_same():
    with pytest.raises(ImportError, match=r"tf.signal is .* for signals.*jax.numpy"):
        exec("from unisono import signal")
    with pytest.raises(ImportError, match=r"Use optax.ctc_loss"):
        exec("from unisono.nn import ctc_loss")


def test_importing_a_module_of_tensorflow_says_the_same():
    with pytest.raises(ModuleNotFoundError, match=r"'unisono.signal': .* for signals"):
        importlib.import_module("unisono.signal")
    with pytest.raises(ModuleNotFoundError, match=r"'unisono.nothing'$"):
        importlib.import_module("unisono.nothing")
    assert importlib.util.find_spec("unisono._src.nothing") is None


def test_a_name_that_tensorflow_lacks_too_gets_the_ordinary_error():
    with pytest.raises(AttributeError) as caught:
        getattr(unisono, "functon")  # noqa: B009
    assert str(caught.value) == "module 'unisono' has no attribute 'functon'"
    # From these Python finds the name to suggest.
    assert (caught.value.name, caught.value.obj) == ("functon", unisono)
    with pytest.raises(ImportError, match="cannot import name 'functon' from 'unis"):
        exec("from unisono import functon")


def test_asking_for_a_missing_name_keeps_nothing_alive():
    class Large:
        pass

    def ask():
        large = Large()
        assert not hasattr(unisono, "SparseTensor")
        assert not hasattr(unisono, "no_such_name")
        return weakref.ref(large)

    gc.disable()
    try:
        assert ask()() is None
    finally:
        gc.enable()


def test_what_python_asks_a_module_for_is_answered_without_the_list():
    read = listing._read.cache_info().misses
    for name in ("__wrapped__", "__test__", "_repr_html_", "__deepcopy__"):
        assert not hasattr(unisono, name)
    assert inspect.unwrap(unisono) is unisono
    assert listing._read.cache_info().misses == read


def test_missing_names_are_not_listed():
    for module in snapshot.public_modules().values():
        unknown = [n for n in dir(module) if not hasattr(module, n)]
        assert not unknown
    assert "raw_ops" not in dir(unisono)
    assert not [n for n in dir(unisono) if n[0] == "_" and n[1] != "_"]


def test_every_public_module_answers_for_tensorflows_names():
    silent = [
        name
        for name, module in snapshot.public_modules().items()
        if not hasattr(module, "__getattr__")
        and name not in ("unisono.keras", "unisono.__main__")
    ]
    assert not silent, f"expected `__getattr__` from lazy_names.serve in {silent}."


def test_the_first_use_of_an_everyday_name_loads_no_more_than_it_must():
    program = (
        "import sys, unisono\n"
        "unisono.constant, unisono.io.decode_csv\n"
        "print([n for n in sys.modules if n.startswith(('unisono', 'google'))])"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = ast.literal_eval(process.stdout)
    assert "unisono._src.ops.making" in loaded
    assert "unisono._src.ops.control_flow" not in loaded
    # Of another module of `unisono.io`, which the search comes to first.
    assert "google.protobuf" not in loaded


def test_everyday_names_can_be_imported_all_at_once():
    space = {}
    exec("from unisono.math import *", space)
    assert space["floormod"] is unisono.math.floormod
    assert space["softmax"] is unisono.nn.softmax


def test_every_name_without_an_underscore_is_listed(tmp_path, monkeypatch):
    package = tmp_path / "examples_of_names"
    package.mkdir()
    (package / "shapes.py").write_text(
        "import typing as _typing\n"
        "from math import pi as pi\n"
        "from unisono._src.foundation import lazy_names as _lazy_names\n"
        "half_turn = pi\n"
        "if _typing.TYPE_CHECKING:\n"
        "    import colorsys as _colorsys\n"
        "    from calendar import isleap as isleap\n"
        "    from os import path as _path\n"
        "    join = _path.join\n"
        "_lazy_names.serve(__name__)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    shapes = importlib.import_module("examples_of_names.shapes")
    assert shapes.__all__ == ["half_turn", "isleap", "join", "pi"]
    assert {*shapes.__all__} < {*dir(shapes)}
    assert (shapes.isleap, shapes.join) == (calendar.isleap, os.path.join)
    assert not hasattr(shapes, "_path")


def test_names_of_keras_are_not_listed():
    pytest.importorskip("keras")
    assert "AUC" in dir(unisono.metrics)
    assert unisono.metrics.AUC.__name__ == "AUC"
    assert "AUC" not in snapshot.public_modules()["unisono.metrics"].__all__
