"""The verdict on a name agrees with what the package does."""

import ast
import functools
import importlib.util

import hypothesis
import hypothesis.strategies as st
import pytest

import unisono
from unisono._src.cli.check import rows, uses, verdicts
from unisono._src.foundation.tensorflow_names import listing

# Loaded now, because loading changes environment variables, which no test may do.
has_keras = importlib.util.find_spec("keras") is not None
keras = importlib.import_module("keras") if has_keras else None
needs_keras = pytest.mark.skipif(not has_keras, reason="Keras is not installed")

PATHS = sorted(
    path
    for path, kind in listing._read()[0].items()
    if kind != "member" and not path.startswith("keras")
)


def judge(program):
    """Returns the statuses and sentences of a program's uses, by what is written."""
    tree = ast.parse("import tensorflow as tf\n" + program)
    (each,) = uses.find_uses([tree], verdicts.result)
    return {v.use.written: (v.status, v.told) for v in verdicts.judge_all(each)}


def exists(path):
    try:
        functools.reduce(getattr, path.split("."), unisono)
    except AttributeError:
        return False
    return True


def test_a_name_runs_exactly_if_the_package_has_it():
    for path in PATHS:
        ((status, told),) = judge(f"tf.{path}").values()
        runs = status in (verdicts.SAME, verdicts.DIFFERS)
        assert runs == exists(path), (path, status)
        assert runs or told.endswith("."), (path, told)


WORDS = st.sampled_from(
    [*sorted({word for path in PATHS for word in path.split(".")}), "nothing", "run"]
)


@hypothesis.given(st.lists(WORDS, min_size=1, max_size=3).map(".".join))
def test_whatever_is_said_to_be_the_same_can_be_evaluated(path):
    hypothesis.assume(not path.startswith("keras"))
    (status, _) = judge(f"tf.{path}")[f"tf.{path}"]
    if status in (verdicts.SAME, verdicts.DIFFERS):
        assert exists(path)


@needs_keras
def test_names_of_keras_that_are_the_same_are_there():
    names = ["Sequential", "Model", "layers.Dense", "losses.MeanSquaredError", "Input"]
    names += [
        "metrics.Mean",
        "optimizers.schedules.CosineDecay",
        "utils.set_random_seed",
    ]
    for name in [*names, "layers.Nothing", "nothing.At.All"]:
        ((status, _),) = judge(f"tf.keras.{name}").values()
        try:
            functools.reduce(getattr, name.split("."), keras)
            there = True
        except AttributeError:
            there = False
        assert (status == verdicts.SAME) == there, name


@pytest.mark.parametrize(
    ("program", "written", "status", "told"),
    [
        ("tf.strings.ngrams(x)", "tf.strings.ngrams", "missing", "Python's strings"),
        ("tf.Session()", "tf.Session", "missing", "Call the function itself"),
        ("tf.compat.v2.nn", "tf.compat.v2.nn", "renamed", "Write tf.nn"),
        ("tf.Variable(1, no=3)", "tf.Variable", "missing", "argument `no`"),
        ("tf.Variable(*x, **y)", "tf.Variable", "same", ""),
        ("tf.saved_model.save(a, b)", "tf.saved_model.save", "differs", "StableHLO"),
        ("v = tf.Variable(1)\nv.to_proto()", "v.to_proto", "missing", "Checkpoint"),
        ("a = tf.TensorArray(x)\na.grad(1)", "a.grad", "missing", "GradientTape"),
        ("a = tf.RaggedTensor(x)\na.shape", "a.shape", "missing", "is not here"),
        ("v = tf.Variable(1)\nv.mine", "v.mine", "unknown", "your own"),
        ("d = tf.data.TFRecordDataset(x)\nd.map(f)", "d.map", "differs", "NumPy"),
        ("import tensorflow_text", "tensorflow_text", "missing", "needs TensorFlow"),
    ],
)
def test_each_verdict_says_what_to_know(program, written, status, told):
    found = judge(program)[written]
    assert found[0] == status
    assert told in found[1]


@needs_keras
@pytest.mark.parametrize(
    ("program", "written", "status", "told"),
    [
        ("m = tf.keras.Sequential()\nm.fit(x)", "m.fit", "same", ""),
        ("m = tf.keras.Sequential()\nm.fit_generator(x)", "m.fit_generator", "missing",
         "model.fit"),
        ("m = tf.keras.Model(a)\nm.fit(x, workers=2)", "m.fit", "missing", "workers"),
        ("m = tf.keras.metrics.Mean()\nm.reset_states()", "m.reset_states", "differs",
         "reset_state"),
        ("tf.keras.optimizers.Adam(lr=1)", "tf.keras.optimizers.Adam", "missing",
         "learning_rate"),
        ("tf.keras.layers.Dense(3, input_shape=(2,))", "tf.keras.layers.Dense", "same",
         ""),
        ("tf.keras.layers.Dense(3, weight=1)", "tf.keras.layers.Dense", "missing",
         "`weight`"),
        ("tf.keras.optimizers.SGD(decay=1)", "tf.keras.optimizers.SGD", "differs",
         "ignored"),
        ("tf.keras.layers.Embedding(9, 3, input_length=4)", "tf.keras.layers.Embedding",
         "same", ""),
        ("tf.keras.layers.Nothing", "tf.keras.layers.Nothing", "missing", "Keras 3"),
    ],
)  # fmt: skip
def test_keras_is_read_from_its_source(program, written, status, told):
    found = judge(program)[written]
    assert found[0] == status
    assert told in found[1]


def test_of_several_meanings_the_worst_counts():
    program = "a = tf.Variable(1)\nif b:\n    a = tf.data.Dataset.range(3)\na.map(f)"
    assert judge(program)["a.map"][0] == "unknown"


def test_a_loop_that_takes_elements_is_not_sent_to_jax_lax():
    loop = "@tf.function\ndef f(it):\n  for _ in tf.range(3): x = {}\n"
    plain = judge(loop.format("1"))["for"]
    for element in ("next(it)", "it.get_next()", "it.get_next_as_optional()"):
        status, told = judge(loop.format(element))["for"]
        assert status == plain[0] == verdicts.DIFFERS
        assert told.endswith("jax.lax cannot take elements.")
        assert told.startswith(plain[1])


def test_rows_are_for_names_of_tensorflow():
    paths = [*rows.DIFFERENCES, *rows.MEMBERS_GONE]
    unknown = [path for path in paths if not listing.kind(path)]
    assert unknown == ["__version__"]
