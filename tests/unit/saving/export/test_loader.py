"""Loading takes TensorFlow's options, and gives its kind of signatures."""

import pytest

import unisono as tf


def test_models_are_saved_and_loaded_with_the_options_of_tensorflow(tmp_path):
    local = "/job:localhost"
    saving = tf.saved_model.SaveOptions(experimental_io_device=local)
    loading = tf.saved_model.LoadOptions(experimental_io_device=local)
    module = tf.Module()
    module.v = tf.Variable(3.0)
    tf.saved_model.save(module, tmp_path / "m", options=saving)
    assert tf.saved_model.load(tmp_path / "m", options=loading).v.numpy() == 3


def test_values_cannot_be_left_out():
    with pytest.raises(ValueError, match="without values"):
        tf.saved_model.LoadOptions(experimental_skip_checkpoint=True)


def test_signatures_give_dicts_and_functions_what_they_gave(tmp_path):
    scalar = tf.TensorSpec([], "float32")
    model = tf.Module()
    v = model.v = tf.Variable(3.0)
    rows = [tf.TensorSpec([None, 2], "float32"), tf.TensorSpec([], "float32", "why")]
    model.one = tf.function(lambda x: v * x, input_signature=[scalar])
    model.two = tf.function(lambda x, y: (v * x, y), input_signature=rows)
    model.named = tf.function(lambda x: {"b": x, "a": 2 * x}, input_signature=[scalar])
    model.none = tf.function(
        lambda x: v.assign(x, read_value=False), input_signature=[scalar]
    )
    names = ["one", "two", "named", "none"]
    given = {name: getattr(model, name) for name in names}
    tf.saved_model.save(model, tmp_path / "m", signatures=given)
    loaded = tf.saved_model.load(tmp_path / "m")
    one, two, named, none = (loaded.signatures[name] for name in names)

    assert float(one(x=2.0)["output_0"]) == float(one(2.0)["output_0"]) == 6.0
    assert float(loaded.one(2.0)) == 6.0
    row = tf.constant([[1.0, 2.0]])
    found = two(x=row, why=5.0)
    assert list(found) == ["output_0", "output_1"]
    assert (found["output_0"].tolist(), float(found["output_1"])) == ([[3.0, 6.0]], 5)
    assert [type(loaded.two(row, y=5.0)), type(loaded.named(1.0))] == [
        tuple,
        dict,
    ]
    assert {k: float(v) for k, v in named(x=1.0).items()} == {"b": 1.0, "a": 2.0}
    assert (none(x=7.0), float(loaded.v.numpy())) == ({}, 7.0)
    with pytest.raises(TypeError, match="takes the arguments x, why"):
        two(x=row, y=5.0)

    assert two.structured_input_signature == (
        (),
        {"x": tf.TensorSpec([None, 2], "float32", "x"), "why": rows[1]},
    )
    assert two.structured_outputs == {
        "output_0": tf.TensorSpec([None, 2], "float32", "output_0"),
        "output_1": tf.TensorSpec([], "float32", "output_1"),
    }
    assert repr(two) == "<loaded signature two(x, why)>"


def test_a_loaded_model_can_be_trained(tmp_path):
    row = tf.TensorSpec([None, 2], "float32")
    model = tf.Module()
    w = model.w = tf.Variable([1.0, 2.0])
    model.apply = tf.function(lambda x: {"y": x * w * w}, input_signature=[row])
    model.count = tf.function(
        lambda x: tf.while_loop(lambda y: y < 9.0, lambda y: (y * x,), (x,))[0],
        input_signature=[tf.TensorSpec([], "float32")],
    )
    tf.saved_model.save(model, tmp_path / "m")
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        loaded = tf.saved_model.load(tmp_path / "m")

    def gradient():
        with tf.GradientTape() as tape:
            y = loaded.apply(tf.constant([[1.0, 1.0], [3.0, 1.0]]))["y"]
        return tape.gradient(y, tape.watched_variables())[0]

    for run in (strategy.run, tf.function(strategy.run)):
        for found in strategy.experimental_local_results(run(gradient)):
            assert found.tolist() == [8.0, 8.0]
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = loaded.count(x)
    assert float(y) == 16.0
    with pytest.raises(NotImplementedError, match="count has no gradient"):
        tape.gradient(y, x)
