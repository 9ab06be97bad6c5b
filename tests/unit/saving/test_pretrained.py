"""Tensors of files get into the variables of every strategy, all of them or none."""

import jax
import jax.numpy as jnp
import keras
import ml_dtypes
import numpy as np
import pytest
from flax import nnx

import unisono as tf
from tests import machine
from tests.unit.saving.format.test_safetensors_files import write

X = np.random.default_rng(0).normal(size=(8, 6)).astype("f4")
B = np.arange(6, dtype="f4")


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "model.safetensors", {"w": X, "b": B, "more": np.ones(3)})


def strategies():
    names = machine.names(4)
    return {
        "default": tf.distribute.get_strategy(),
        "one": tf.distribute.OneDeviceStrategy(names[1]),
        "mirrored": tf.distribute.MirroredStrategy(names),
        "sharded": tf.distribute.MirroredStrategy(
            names, state="sharded", shard_above=1
        ),
        "central": tf.distribute.experimental.CentralStorageStrategy(names[:2]),
    }


KINDS = ("default", "one", "mirrored", "sharded", "central")


def make(strategy):
    with strategy.scope():
        w = tf.Variable(jnp.zeros((8, 6)), name="w")
        return [w, tf.Variable(jnp.zeros(6), name="b")]


@pytest.mark.needs_devices(4)
@pytest.mark.parametrize("kind", KINDS)
def test_variables_of_every_strategy_get_the_tensors(path, kind):
    w, b = make(strategies()[kind])
    before = w.state_cell.sharding
    found = tf.train.load_safetensors(path, [w, b])
    np.testing.assert_array_equal(w.numpy(), X)
    np.testing.assert_array_equal(b.numpy(), B)
    assert found.loaded == {"w": "w", "b": "b"}
    assert (found.unread, found.untouched, found.nbytes) == (("more",), (), 216)
    assert w.state_cell.sharding == before


@pytest.mark.needs_devices(4)
def test_each_device_reads_its_part_of_a_variable_that_is_cut(path, monkeypatch):
    w, _ = make(strategies()["sharded"])
    shapes = []
    original = np.array

    def note(x, *args, **kwargs):
        if isinstance(x, np.memmap):
            shapes.append(x.shape)
        return original(x, *args, **kwargs)

    monkeypatch.setattr(np, "array", note)
    tf.train.load_safetensors(path, [w])
    monkeypatch.undo()
    assert shapes == [(2, 6)] * 4
    np.testing.assert_array_equal(w.numpy(), X)


@pytest.mark.needs_devices(4)
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_may_take_the_loaded_arrays_over(path, kind):
    strategy = strategies()[kind]
    w, b = make(strategy)
    tf.train.load_safetensors(path, [w, b])

    @tf.function
    def step():
        w.assign_add(jnp.ones_like(w.read_value()))

    for _ in range(3):
        step()
    np.testing.assert_allclose(w.numpy(), X + 3, rtol=1e-6)
    # The file is as it was, and changes of it reach no variable.
    tf.train.load_safetensors(path, [b])
    path.write_bytes(b"\xff" * path.stat().st_size)
    np.testing.assert_array_equal(b.numpy(), B)


def test_names_may_be_a_dictionary_or_a_function(path):
    w, b = make(tf.distribute.get_strategy())
    by_name = {"kernel": w, "bias": b}
    found = tf.train.load_safetensors(path, by_name, names={"kernel": "w", "bias": "b"})
    assert found.loaded == {"kernel": "w", "bias": "b"}
    found = tf.train.load_safetensors(
        path, by_name, names=lambda n: {"kernel": "w"}.get(n)
    )
    assert (found.loaded, found.untouched) == ({"kernel": "w"}, ("bias",))
    assert found.unread == ("b", "more")


def test_the_report_tells_what_was_left_out(path):
    values = [tf.Variable(jnp.zeros((8, 6))) for _ in "wxy"]
    by_name = dict(zip("wxy", values, strict=True))
    found = tf.train.load_safetensors(path, by_name, {"y": None, "x": "w"})
    assert repr(found) == (
        "LoadedTensors(2 variables loaded, 384 bytes; 2 not read: b, more; 1 left "
        "alone: y)"
    )


def test_all_that_does_not_fit_is_told_at_once_and_nothing_changes(tmp_path):
    arrays = {
        "layer.weight": X, "b": B.astype("f8"), "turned": X.T, "other": np.ones(2),
    }  # fmt: skip
    path = write(tmp_path / "x.safetensors", arrays)
    w, b = make(tf.distribute.get_strategy())
    turned, other = make(tf.distribute.get_strategy())
    by_name = {"layer.wieght": w, "b": b, "turned": turned, "other": other}
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        tf.train.load_safetensors(path, by_name, names={"bb": "b"})
    text = str(error.value)
    assert "nothing has changed" in text
    assert "no tensor 'layer.wieght'. Did you mean 'layer.weight'?" in text
    assert "'b' has the type float64, and the variable float32. Write cast=True" in text
    assert "the shape (6, 8), and the variable (8, 6). It is transposed" in text
    assert "'other' has the shape (2,), and the variable (6,)." in text
    assert "bb: names has it, and there is no such variable. Did you mean 'b'?" in text
    assert not w.numpy().any() and not b.numpy().any()


def test_weights_of_pytorch_are_transposed_by_the_program(tmp_path):
    path = write(tmp_path / "x.safetensors", {"fc.weight": X.T.copy(), "fc.bias": B})
    w, b = make(strategies()["sharded"])
    tf.train.load_safetensors(
        path,
        [w, b],
        names={"w": "fc.weight", "b": "fc.bias"},
        change=lambda name, x: x.T if name == "w" else x,
    )
    np.testing.assert_array_equal(w.numpy(), X)
    np.testing.assert_array_equal(b.numpy(), B)


# Types.


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float8_e4m3fn"])
def test_numbers_of_few_bits_stay_or_are_cast(tmp_path, kind):
    x = B.astype(getattr(ml_dtypes, kind, kind))
    path = write(tmp_path / "x.safetensors", {"v": x})
    same, wide = tf.Variable(jnp.asarray(x) * 0, name="v"), tf.Variable(B * 0, name="v")
    tf.train.load_safetensors(path, [same])
    assert np.asarray(same.read_value()).tobytes() == x.tobytes()
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"type {kind}.*cast=True"):
        tf.train.load_safetensors(path, [wide])
    tf.train.load_safetensors(path, [wide], cast=True)
    np.testing.assert_array_equal(wide.numpy(), x.astype("f4"))


@pytest.mark.parametrize(
    ("given", "wanted", "is_right"),
    [
        (np.int64([1, 2]), "int32", True),
        (np.int64([1, 1 << 40]), "int32", False),
        (np.int32([-1, 2]), "uint8", False),
        (np.int32([1, 2]), "float32", True),
        (np.float32([1, 2]), "int32", False),
        (np.array([True, False]), "int32", True),
        (np.float64([1, 2]), "float16", True),
        (np.ones(2, "complex64"), "float32", False),
    ],
)
def test_a_cast_keeps_numbers_of_a_kind(tmp_path, given, wanted, is_right):
    path = write(tmp_path / "x.safetensors", {"v": given})
    v = tf.Variable(jnp.zeros(2, wanted), name="v")
    if is_right:
        tf.train.load_safetensors(path, [v], cast=True)
        np.testing.assert_array_equal(v.numpy(), given.astype(wanted))
        return
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"lose more|do not fit"):
        tf.train.load_safetensors(path, [v], cast=True)


def test_a_type_without_arrays_is_told_where_it_is_wanted(tmp_path):
    path = tmp_path / "x.safetensors"
    header = b'{"v":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    with pytest.raises(tf.errors.InvalidArgumentError, match="F4, of which NumPy"):
        tf.train.load_safetensors(path, [tf.Variable(jnp.zeros(2), name="v")])


# What variables may be.


@pytest.mark.parametrize("kind", ["default", "mirrored", "sharded"])
def test_a_model_of_keras_is_loaded_by_paths(tmp_path, kind):
    path = write(tmp_path / "x.safetensors", {"dense/kernel": X, "dense/bias": B})
    with strategies()[kind].scope():
        keras.backend.clear_session()
        model = keras.Sequential(
            [keras.Input((8,)), keras.layers.Dense(6, name="dense")]
        )
        model.compile("adam", "mse")
    found = tf.train.load_safetensors(path, model)
    assert {*found.loaded} == {"dense/kernel", "dense/bias"}
    kernel, bias = model.get_weights()
    np.testing.assert_array_equal(kernel, X)
    np.testing.assert_array_equal(bias, B)
    shown = model.predict(np.ones((2, 8), "f4"), verbose=0)
    np.testing.assert_allclose(shown, X.sum(0)[None] + B[None].repeat(2, 0), rtol=1e-5)


@pytest.mark.parametrize("kind", ["default", "mirrored", "sharded"])
def test_a_module_of_flax_is_loaded_by_paths(tmp_path, kind):
    arrays = {"layers.0.kernel": X, "layers.0.bias": B}
    path = write(tmp_path / "x.safetensors", arrays)
    with strategies()[kind].scope():
        rngs = nnx.Rngs(0)
        first = nnx.Linear(8, 6, rngs=rngs)
        model = nnx.Sequential(first, nnx.Dropout(0.5, rngs=rngs))
    found = tf.train.load_safetensors(path, model)
    assert {*found.loaded} == {*arrays}
    np.testing.assert_array_equal(np.asarray(first.kernel[...]), X)


def test_an_object_with_variables_is_loaded_by_paths(path):
    class Pair(tf.Module):
        def __init__(self):
            super().__init__()
            self.w, self.b = make(tf.distribute.get_strategy())

    pair = Pair()
    assert {*tf.train.load_safetensors(path, pair).loaded} == {"w", "b"}
    found = tf.train.load_safetensors(
        path, {"pairs": [pair]}, lambda n: n.rpartition(".")[2]
    )
    assert {*found.loaded} == {"pairs.0.w", "pairs.0.b"}
    assert {*tf.train.load_safetensors(path, pair.w).loaded} == {"w"}
    assert len(tf.train.load_safetensors(path, iter([pair.w])).loaded) == 1


def test_an_aggregated_variable_reads_as_the_tensor(path):
    strategy = strategies()["mirrored"]
    with strategy.scope():
        total = tf.Variable(
            jnp.zeros(6),
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    tf.train.load_safetensors(path, {"b": total})
    np.testing.assert_allclose(total.numpy(), B)


def test_what_is_no_variable_is_told(path):
    w, _ = make(tf.distribute.get_strategy())
    with pytest.raises(TypeError, match="received int in the list"):
        tf.train.load_safetensors(path, [w, 5])
    with pytest.raises(tf.errors.InvalidArgumentError, match="no variables in dict"):
        tf.train.load_safetensors(path, {})
    with pytest.raises(tf.errors.InvalidArgumentError, match="Two variables"):
        tf.train.load_safetensors(path, [w, tf.Variable(1.0, name="w")])
    with pytest.raises(TypeError, match="names gives 5 for 'w'"):
        tf.train.load_safetensors(path, [w], lambda n: 5)


def test_a_function_that_is_being_compiled_loads_nothing(path):
    w, _ = make(tf.distribute.get_strategy())
    load = tf.function(lambda: tf.train.load_safetensors(path, [w]) and None)
    with pytest.raises(RuntimeError, match="outside of functions"):
        load()
    assert jax.device_get(w.read_value()).any() == np.False_


def test_a_damaged_file_changes_nothing(path):
    w, b = make(tf.distribute.get_strategy())
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(tf.errors.DataLossError, match="damaged"):
        tf.train.load_safetensors(path, [w, b])
    assert not w.numpy().any()
