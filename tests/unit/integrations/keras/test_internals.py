"""What the integration uses of Keras' private names and members is there."""

import ast
import inspect

import numpy as np
import pytest

keras = pytest.importorskip("keras")

from tests.architecture import sources  # noqa: E402
from unisono._src.integrations.keras import internals  # noqa: E402


def test_this_keras_has_every_name():
    missing = internals.find_missing()
    assert not missing, f"Keras {keras.__version__} has dropped {missing}"


def test_a_name_that_keras_has_dropped_breaks_nothing_else(monkeypatch):
    gone = {
        "keras.src.gone": ("Gone", "a test"),
        "keras.src.tree": ("absent map_structure", "a test"),
    }
    monkeypatch.setattr(internals, "NAMES", internals.NAMES | gone)
    assert internals.find_missing() == ["keras.src.gone.Gone", "keras.src.tree.absent"]
    with pytest.raises(
        AttributeError, match=r"has no keras\.src\.gone\.Gone, .*a test"
    ):
        _ = internals.Gone
    assert internals.JAXTrainer in keras.Model.__mro__


def test_a_name_that_is_not_in_the_table_is_refused():
    with pytest.raises(AttributeError, match="has no attribute 'Other'"):
        _ = internals.Other


def private_members(protocol):
    """Returns the private members that a protocol declares."""
    found = {}
    for kind in protocol.__mro__:
        if "_is_protocol" in vars(kind):
            found |= vars(kind).get("__annotations__", {})
            found |= {n: f for n, f in vars(kind).items() if inspect.isfunction(f)}
    return {n for n in found if n[0] == "_" and not n.startswith(("__", "_abc", "_no"))}


def objects():
    """Returns objects of Keras with the protocols that say what they have."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    x = np.zeros((2, 2), np.float32)
    seen = {}

    class Look(keras.callbacks.LambdaCallback):
        def set_params(self, params):
            super().set_params(params)
            frame = inspect.currentframe()
            while "epoch_iterator" not in frame.f_locals:
                frame = frame.f_back
            seen["epochs"] = frame.f_locals["epoch_iterator"]

    model.fit(x, x[:, :1], verbose=0, callbacks=[Look()])
    inputs = keras.Input((2,))
    return {
        internals.KerasVariable: model.weights[0],
        internals.KerasMetric: keras.metrics.Mean(),
        internals.KerasOptimizer: model.optimizer,
        internals.KerasLayer: model.layers[0],
        internals.KerasModel: model,
        internals.CompiledMetrics: internals.CompileMetrics(["mae"], []),
        internals.FunctionalModel: keras.Model(inputs, inputs + 1),
        internals.RecurrentLayer: keras.layers.LSTM(2),
        internals.EpochIterator: seen["epochs"],
        internals.CallbackList: keras.callbacks.CallbackList(model=model),
    }


def test_this_keras_has_every_member():
    found = objects()
    missing = [
        f"{protocol.__name__}.{name}"
        for protocol, obj in found.items()
        for name in sorted(private_members(protocol))
        if not hasattr(obj, name)
    ]
    assert not missing, f"Keras {keras.__version__} has dropped {missing}"
    assert "_jax_state" in private_members(internals.KerasModel)
    with_private = {
        kind
        for kind in vars(internals).values()
        if getattr(kind, "_is_protocol", False) and private_members(kind)
    }
    assert with_private == {*found}


def test_no_other_module_names_keras_private_modules():
    package = sources.PACKAGE / "_src"
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            roots = []
            if isinstance(node, ast.Import):
                roots = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                roots = [node.module or ""]
            if any(root.startswith("keras.src") for root in roots):
                found.add(path.relative_to(package).as_posix())
    assert not found, f"import from integrations/keras/internals.py, not in {found}"


def test_layers_are_numbered_from_the_beginning_in_a_block():
    keras.layers.Dense(1)
    before = keras.layers.Dense(1).name
    with internals.restart_numbering():
        assert keras.layers.Dense(1).name == "dense"
    number = int(before.rpartition("_")[2])
    assert keras.layers.Dense(1).name == f"dense_{number + 1}"
