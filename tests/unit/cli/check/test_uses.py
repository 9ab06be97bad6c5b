"""A syntax tree tells which of TensorFlow's names a program uses."""

import ast
import importlib.util
import textwrap

import pytest

from unisono._src.cli.check import uses, verdicts


def found(program):
    """Returns what is used in a program, with a sign for what is not a path."""
    tree = ast.parse(textwrap.dedent(program))
    signs = {"path": "", "import": "", "object": ".", "unknown": "?", "form": "!"}
    (each,) = uses.find_uses([tree], verdicts.result)
    return [signs.get(use.kind, use.kind) + use.path for use in each]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import tensorflow as tf\ntf.nn.relu(x)", ["nn.relu"]),
        ("import tensorflow\ntensorflow.nn.relu", ["nn.relu"]),
        ("import unisono as uni\nuni.function", ["function"]),
        ("from tensorflow import keras as k\nk.Model", ["keras", "keras.Model"]),
        (
            "from tensorflow.keras.layers import Dense as D\nD(3)",
            ["keras.layers.Dense", "keras.layers.Dense"],
        ),
        (
            "import tensorflow.keras.layers as L\nL.Dense",
            ["keras.layers", "keras.layers.Dense"],
        ),
        (
            "import tensorflow.compat.v1 as tf\ntf.Session()",
            ["compat.v1", "compat.v1.Session"],
        ),
        ("import tensorflow.compat.v2 as tf\ntf.function", ["function"]),
        ("from tensorflow.python.ops import x\nx.y", ["python.ops.x"]),
        (
            "import tensorflow as tf\nlayers = tf.keras.layers\nlayers.Dense",
            ["keras.layers", "keras.layers.Dense"],
        ),
        ("import tensorflow as tf\ndef f(tf): return tf.nn", []),
        ("import tensorflow as tf\n[tf.nn for tf in x]", []),
        ("import numpy as tf\ntf.nn", []),
        ("import tensorflow as tf\nimport numpy as tf\ntf.nn", []),
        ("from .tensorflow import nn\nnn.relu", []),
        ("import tensorflow as tf\ngetattr(tf.nn, 'relu')", ["nn.relu"]),
        ("import tensorflow as tf\ngetattr(tf.nn, name)", ["?nn"]),
        ("import tensorflow as tf\nf(tf)", ["?"]),
        ("from tensorflow import *\nconstant(3)\nlen(x)", ["?", "?constant"]),
        ("import tensorflow as tf\ndef f(x: tf.Tensor): x.numpy()",
         ["Tensor", ".Tensor.numpy"]),
    ],
)  # fmt: skip
def test_names_are_followed_through_imports_and_aliases(program, expected):
    assert found(program) == expected


def test_objects_are_followed_through_simple_assignments():
    assert found(
        """
        import tensorflow as tf
        strategy = tf.distribute.MirroredStrategy()
        strategy.run(step)
        with tf.GradientTape() as tape:
            pass
        tape.gradient(a, b)
        checkpoint = tf.train.Checkpoint(epoch=tf.Variable(0))
        checkpoint.epoch
        checkpoint.save(path)
        tf.data.Dataset.range(3).map(f).batch(2)
        strategy.extended.worker_devices
        """
    ) == [
        "distribute.MirroredStrategy",
        ".distribute.MirroredStrategy.run",
        "GradientTape",
        ".GradientTape.gradient",
        "train.Checkpoint",
        "Variable",
        ".train.Checkpoint.save",
        "data.Dataset.range",
        ".data.Dataset.map",
        ".data.Dataset.batch",
        ".distribute.MirroredStrategy.extended",
        ".distribute.StrategyExtended.worker_devices",
    ]


@pytest.mark.skipif(
    importlib.util.find_spec("keras") is None, reason="Keras is not installed"
)
def test_objects_are_followed_through_functions_and_classes_of_the_program():
    assert found(
        """
        import tensorflow as tf
        class Mine(tf.keras.Model):
            kind = "mine"
            def __init__(self):
                self.count = tf.Variable(0)
            def call(self, x):
                self.count.assign_add(1)
                return self.losses
            def own(self): pass
        def make():
            return Mine()
        model = make()
        model.fit(x)
        model.own()
        model.kind
        """
    ) == [
        "keras.Model",
        "Variable",
        ".Variable.assign_add",
        ".keras.Model.losses",
        ".keras.Model.fit",
    ]


def test_a_name_with_two_meanings_has_both():
    seen = found(
        """
        import tensorflow as tf
        if tpu:
            strategy = tf.distribute.TPUStrategy(r)
        else:
            strategy = tf.distribute.MirroredStrategy()
        strategy.scope()
        """
    )
    assert set(seen[2:]) == {
        ".distribute.MirroredStrategy.scope",
        ".distribute.TPUStrategy.scope",
    }


def test_control_on_arrays_is_seen_in_compiled_functions_only():
    program = """
        import tensorflow as tf
        v = tf.Variable(0)
        {decorator}
        def step(x, training):
            loss = tf.nn.compute_average_loss(x)
            if training: pass
            if loss is None: pass
            if loss > 3: pass
            x = 1 if loss else 2
            while v < 3: pass
            assert not loss
        """
    seen = found(program.format(decorator="@tf.function(jit_compile=True)"))
    assert [name for name in seen if name[0] == "!"] == [
        "!if",
        "!if",
        "!while",
        "!assert",
    ]
    assert "!if" not in found(program.format(decorator="@other"))
