"""The verdict on a name agrees with what the package does."""

import ast
import functools
import importlib.util

import hypothesis
import hypothesis.strategies as st
import pytest

import unisono
from unisono._src.cli.check import rows, uses, verdicts
from unisono._src.foundation.tensorflow_names import listing, replacements

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
        ("tf.keras.optimizers.Adam(lr=1)", "tf.keras.optimizers.Adam", "differs",
         "learning_rate"),
        ("o = tf.keras.optimizers.Adam(1)\n"
         "o.apply_gradients(g, experimental_aggregate_gradients=False)",
         "o.apply_gradients", "differs", "every replica"),
        ("tf.keras.layers.Dense(3, input_shape=(2,))", "tf.keras.layers.Dense", "same",
         ""),
        ("tf.keras.layers.Dense(3, weight=1)", "tf.keras.layers.Dense", "missing",
         "`weight`"),
        ("tf.keras.optimizers.SGD(decay=1)", "tf.keras.optimizers.SGD", "differs",
         "ignored"),
        ("tf.keras.layers.Embedding(9, 3, input_length=4)", "tf.keras.layers.Embedding",
         "same", ""),
        ("tf.keras.layers.Nothing", "tf.keras.layers.Nothing", "missing", "Keras 3"),
        ("m = tf.keras.Sequential()\nm.save('a.tf')", "m.save", "differs", "directory"),
        ("m = tf.keras.Sequential()\nm.save('a.pb')", "m.save", "missing", ".keras"),
        ("m = tf.keras.Sequential()\nm.save('a')", "m.save", "differs", "directory"),
        ("m = tf.keras.Sequential()\nm.save(f'{a}/b.keras')", "m.save", "same", ""),
        ("m = tf.keras.Sequential()\nm.save(path)", "m.save", "same", ""),
        ("m = tf.keras.Sequential()\nm.save_weights('a.tf')", "m.save_weights",
         "differs", ".weights.h5"),
        ("tf.keras.callbacks.ModelCheckpoint('a-{epoch}.tf')",
         "tf.keras.callbacks.ModelCheckpoint", "differs", "directory"),
        ("tf.keras.callbacks.ModelCheckpoint('a', save_weights_only=True)",
         "tf.keras.callbacks.ModelCheckpoint", "differs", ".weights.h5"),
        ("class L(tf.keras.layers.Layer):\n  def build(self, s):\n"
         "    self.add_weight('w', shape=s)", "self.add_weight", "differs", "name"),
    ],
)  # fmt: skip
def test_keras_is_read_from_its_source(program, written, status, told):
    found = judge(program)[written]
    assert found[0] == status
    assert told in found[1]


def test_of_several_meanings_the_worst_counts():
    program = "a = tf.Variable(1)\nif b:\n    a = tf.data.Dataset.range(3)\na.map(f)"
    assert judge(program)["a.map"][0] == "unknown"


FUNCTION = "@tf.function\ndef f(x, it):\n  x = tf.square(x)\n"


@pytest.mark.parametrize(
    ("form", "statement"),
    [
        ("if", "if x > 0: x = -x"),
        ("if", "y = x if x > 0 else -x"),
        ("while", "while x > 0: x = x - 1"),
        ("for", "for i in tf.range(x): x = next(it)"),
        ("assert", "assert x > 0"),
    ],
)
def test_statements_on_arrays_in_a_function_run_as_they_are(form, statement):
    assert judge(f"{FUNCTION}  {statement}")[form] == ("same", "")
    assert form not in judge(f"x = tf.square(3)\n{statement}")


def test_a_while_that_a_gradient_goes_through_needs_a_bound():
    loop = "  with tf.GradientTape() as tape:\n    while x > 0: x = x - 1\n"
    status, told = judge(FUNCTION + loop)["while"]
    assert status == "missing" and "maximum_iterations" in told
    limit = "tf.autograph.experimental.set_loop_options(maximum_iterations=3)"
    limited = loop.replace("x = x - 1", f"{limit}; x = x - 1")
    assert judge(FUNCTION + limited)["while"][0] == "same"
    for end, expected in [("3", "same"), ("x", "missing"), ("tf.size(x)", "same")]:
        turns = (
            f"  with tf.GradientTape() as tape:\n    for i in tf.range({end}): x *= x\n"
        )
        assert judge(FUNCTION + turns)["for"][0] == expected


def test_statements_that_autograph_may_not_reach_are_told():
    layer = (
        "class L(tf.keras.layers.Layer):\n  def call(self, x):\n"
        "    if tf.reduce_sum(x) > 0: x = -x\n    return x\n"
    )
    assert not has_keras or judge(layer)["if"][0] == "differs"
    compiled = layer.replace("  def call", "  @tf.function\n  def call")
    assert not has_keras or judge(compiled)["if"][0] == "same"


@pytest.mark.parametrize(
    ("call", "eagerly", "compiled"),
    [
        ("tf.cast(x, tf.float32)", "same", "same"),
        ("tf.cast(x, dtype)", "same", "same"),
        ("tf.cast(x, tf.int32)", "differs", "differs"),
        ("tf.cast(x, 'float64')", "differs", "differs"),
        ("tf.where(x > 0, x, 0)", "same", "same"),
        ("tf.where(x > 0)", "differs", "missing"),
        ("tf.constant([1.0])", "same", "same"),
        ("tf.constant(1, dtype=tf.int64)", "differs", "differs"),
        ("tf.Variable(1, dtype=tf.int64)", "differs", "differs"),
        ("tf.argmax(x, 1)", "differs", "differs"),
        ("tf.argmax(x, output_type=tf.int32)", "same", "same"),
        ("tf.boolean_mask(x, x)", "same", "missing"),
        ("tf.sequence_mask(x)", "same", "missing"),
        ("tf.sequence_mask(x, 3)", "same", "same"),
        ("tf.summary.scalar('x', x)", "same", "differs"),
        ("tf.gather(x, y)", "same", "differs"),
        ("tf.TensorArray(tf.float32, 3)", "same", "same"),
        ("tf.TensorArray(tf.float32, 3, dynamic_size=True)", "same", "differs"),
        ("tf.data.Dataset.range(3).shuffle(3)", "same", "same"),
        ("tf.data.Dataset.range(3).shuffle(3, seed=1)", "differs", "differs"),
        ("tf.data.Dataset.range(3).cache('a')", "differs", "differs"),
    ],
)
def test_a_difference_is_told_only_where_it_counts(call, eagerly, compiled):
    for program, expected in [(call, eagerly), (f"{FUNCTION}  y = {call}", compiled)]:
        found = judge(program)
        written = call.partition("(")[0]
        last = "(...).shuffle" if "shuffle" in call else "(...).cache"
        assert found[last if "Dataset" in call else written][0] == expected


def test_helpers_of_compiled_functions_are_compiled():
    program = """
def mask(x): return tf.boolean_mask(x, x)
def helper(x): return mask(x)
@tf.function
def step(x): return helper(x)
"""
    assert judge(program)["tf.boolean_mask"][0] == "missing"
    on_host = program.replace(
        "return helper(x)", "return tf.py_function(helper, [x], 3)"
    )
    assert judge(on_host)["tf.boolean_mask"][0] == "same"
    in_keras = program.replace(
        "@tf.function", "tf.keras.Model(1).compile(loss=[helper])"
    )
    assert not has_keras or judge(in_keras)["tf.boolean_mask"][0] == "missing"


@pytest.mark.parametrize(
    ("program", "written", "told"),
    [
        ("tf.square(x).shape.as_list()", "(...).shape.as_list", "get_shape"),
        ("tf.square(x).dtype.max", "(...).dtype.max", "finfo"),
        ("tf.float32.max", "tf.float32.max", "finfo"),
        ("tf.square(x).shape[1:] + [3]", "shape and list", "list(x.shape)"),
        ("tf.app.flags", "tf.app.flags", "absl"),
    ],
)
def test_members_of_shapes_and_types_say_what_to_write(program, written, told):
    status, said = judge(program)[written]
    assert status == "missing" and told in said


@pytest.mark.parametrize(
    "program",
    [
        "print(tf.nn.relu.__name__, tf.Variable(1).__class__.__name__)",
        "v = tf.Variable(1)\nv.mine = 3\nprint(v.mine)",
        "class A: x = 1\nclass B(A, tf.Module): pass\nB().x",
        "import other\nclass B(other.A, tf.Module): pass\nB().x",
        "if tf is None or not tf: pass",
        "@tf.function\ndef f(x):\n  with tf.GradientTape():\n"
        "    i = 0\n    while i < tf.shape(x)[0]: i += 1",
        "tf.square(x).shape[0], len(tf.square(x).shape), tf.square(x).dtype.name",
    ],
)
def test_names_of_python_and_of_the_program_are_no_alarm(program):
    assert {status for status, _ in judge(program).values()} <= {"same"}


def test_rows_are_for_names_of_tensorflow():
    paths = [*rows.DIFFERENCES, *replacements.MEMBERS]
    unknown = [path for path in paths if not listing.kind(path)]
    # The global step is TensorFlow 1's.
    assert unknown == [
        "__version__",
        "train.get_global_step",
        "train.get_or_create_global_step",
    ]
