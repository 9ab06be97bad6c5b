"""Exported models of Keras and Flax, loaded by a process that has neither."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import unisono as uni
from tests.integration.programs import difference, examples, mirrored, scope

keras = pytest.importorskip("keras")
nnx = pytest.importorskip("flax.nnx")

# The model is loaded in this process too, which may run on a GPU.
HERE = ["cuda"] if jax.default_backend() == "gpu" else []
OPTIONS = uni.saved_model.SaveOptions(platforms=["cpu", *HERE])
CLOSE = 1e-5
# Prints nothing; stores what the loaded model computes from the inputs in a file.
LOADER = """
import sys
import numpy as np
import unisono
path, function = sys.argv[1:]
loaded = unisono.saved_model.load(path)
serve = loaded if function == "__call__" else loaded.signatures[function]
given = np.load(path + ".npz")
made = serve(*(given[k] for k in sorted(given)))
made = made if function == "__call__" else made["output_0"]
np.save(path + ".npy", np.asarray(made))
assert not {"keras", "flax"} & set(sys.modules), "a library was imported"
"""


def save(model, path, **more):
    uni.saved_model.save(model, path, options=OPTIONS, **more)
    return path


def serve_elsewhere(path, *inputs, function="serving_default"):
    """Returns what the function of an exported model computes in another process."""
    np.savez(f"{path}.npz", *inputs)
    done = subprocess.run(
        [sys.executable, "-c", LOADER, str(path), function],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return np.load(f"{path}.npy")


def sequential():
    model = keras.Sequential(
        [
            keras.Input((5,)),
            keras.layers.Dense(4, activation="relu"),
            keras.layers.Dropout(0.5),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    return model


# Keras.


@pytest.mark.feature("S06")
@pytest.mark.parametrize("replicas", [2, None])
def test_a_keras_model_is_served_without_keras(tmp_path, replicas):
    x, y = examples(12)
    with scope(mirrored(replicas)):
        model = sequential()
    model.fit(x, y, batch_size=4, verbose=0)
    wanted = model.predict(x, verbose=0)
    kinds = {type(v) for v in model.variables}
    path = save(model, tmp_path / "m")
    assert {type(v) for v in model.variables} == kinds
    # Any size of a batch.
    for count in (12, 5):
        found = serve_elsewhere(path, x[:count])
        assert difference(found, wanted[:count]) < CLOSE
    loaded = uni.saved_model.load(path)
    assert sorted(loaded.signatures) == ["serving_default"]
    assert difference(loaded(x), wanted) < CLOSE
    assert difference(loaded.layers.dense.kernel, model.layers[0].kernel) == 0
    model.fit(x, y, batch_size=4, verbose=0)  # The model is as usable as before.
    assert difference(loaded(x), model.predict(x, verbose=0)) > CLOSE


def two_inputs():
    a, b = keras.Input((5,)), keras.Input((2,))
    out = keras.layers.Dense(3)(keras.layers.Concatenate()([a, b]))
    return keras.Model([a, b], out)


def test_a_keras_model_of_two_inputs_is_exported_for_batches_of_one_size(tmp_path):
    with mirrored(2).scope():
        model = two_inputs()
    loaded = uni.saved_model.load(save(model, tmp_path / "m"))
    for count in (3, 4):
        given = [np.ones((count, 5), "f4"), np.full((count, 2), 2, "f4")]
        assert difference(loaded(given), model.predict(given, verbose=0)) < CLOSE
    with pytest.raises(ValueError, match="batch"):
        loaded([np.ones((3, 5), "f4"), np.ones((4, 2), "f4")])


def test_a_keras_model_of_a_class_is_exported_once_it_was_called(tmp_path):
    class Head(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = keras.layers.Dense(3)

        def call(self, x, scale=2.0):
            return scale * self.inner(x)

    with mirrored(2).scope():
        model = Head()
        with pytest.raises(ValueError, match=r"inputs of the Keras model.*not built"):
            save(model, tmp_path / "m")
        assert list(tmp_path.iterdir()) == []
        model(np.ones((2, 5), "f4"))
    x, _ = examples(7)
    found = uni.saved_model.load(save(model, tmp_path / "m")).signatures
    out = found["serving_default"](inputs=x)
    assert difference(out, model.predict(x, verbose=0)) < CLOSE


def test_a_keras_model_of_several_arguments_is_exported_with_signatures(tmp_path):
    class Sum(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = keras.layers.Dense(3)

        def call(self, a, b):
            return self.inner(a) + b

    a, b = np.ones((2, 5), "f4"), np.full((2, 3), 2, "f4")
    with mirrored(2).scope():
        model = Sum()
        model(a, b)
    with pytest.raises(ValueError, match=r"missing a required argument: 'b'.*signat"):
        save(model, tmp_path / "m")
    serve = uni.function(
        lambda a, b: model(a, b),
        input_signature=[
            uni.TensorSpec([None, 5], "float32"),
            uni.TensorSpec([None, 3], "float32"),
        ],
    )
    loaded = uni.saved_model.load(save(model, tmp_path / "m", signatures=serve))
    found = loaded.signatures["serving_default"](a=a, b=b)["output_0"]
    assert difference(found, model(a, b)) == 0


def test_a_declared_batch_size_is_that_of_the_exported_function(tmp_path):
    with mirrored(1).scope():
        given = keras.Input((5,), batch_size=4)
        model = keras.Model(given, keras.layers.Dense(3)(given))
    loaded = uni.saved_model.load(save(model, tmp_path / "m"))
    x, _ = examples(4)
    assert difference(loaded(x), model(x)) < CLOSE
    with pytest.raises(ValueError, match="shape"):
        loaded(x[:3])


class Holder(uni.Module):
    """A module of a program, with a model of a library and a function of its own."""

    def __init__(self, net):
        super().__init__()
        self.net = net
        self.scale = uni.Variable(3.0)

    @uni.function(input_signature=[uni.TensorSpec([None, 5], "float32")])
    def serve(self, x):
        return self.scale * self.net(x)


def test_a_module_that_holds_a_keras_model_is_served_without_keras(tmp_path):
    x, _ = examples(6)
    with mirrored(2).scope():
        module = Holder(sequential())
    path = save(module, tmp_path / "m")
    wanted = module.net.predict(x, verbose=0)
    assert difference(serve_elsewhere(path, x), 3 * wanted) < CLOSE
    loaded = uni.saved_model.load(path)
    assert difference(loaded.net(x), wanted) < CLOSE
    with mirrored(2).scope():
        again = uni.saved_model.load(path)
    assert type(again.net.layers.dense.kernel).__name__ == "MirroredVariable"


def test_a_model_that_cannot_be_exported_by_itself_is_left_out_with_a_warning(tmp_path):
    class Odd(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = keras.layers.Dense(3)

        def call(self, x):
            return self.inner(x) if x.shape[0] > 1 else self.inner(-x)

    with mirrored(2).scope():
        model = Odd()
        model(np.ones((2, 5), "f4"))
        module = uni.Module()
        module.net = model
        module.serve = uni.function(
            lambda x: model(x), input_signature=[uni.TensorSpec([2, 5], "float32")]
        )
    with pytest.raises(ValueError, match="__call__ cannot be exported"):
        save(model, tmp_path / "m")
    with pytest.warns(UserWarning, match=r"net is exported without its own function"):
        save(module, tmp_path / "m")
    x, _ = examples(2)
    loaded = uni.saved_model.load(tmp_path / "m")
    assert difference(loaded.serve(x), model(x)) < CLOSE


def test_a_keras_variable_is_loaded_as_a_variable(tmp_path):
    with mirrored(2).scope():
        made = keras.Variable([1.0, 2.0])
    loaded = uni.saved_model.load(save(made, tmp_path / "m"))
    assert isinstance(loaded, uni.Variable)
    assert loaded.numpy().tolist() == [1.0, 2.0]


# Flax.


class Net(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(5, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.more = nnx.List([nnx.Linear(4, 3, rngs=rngs)])

    def __call__(self, x):
        return self.more[0](self.drop(self.norm(self.inner(x))))


BATCH = [uni.TensorSpec([None, 5], "float32")]


@pytest.mark.feature("S06")
@pytest.mark.parametrize("replicas", [2, None])
def test_a_flax_model_is_served_without_flax(tmp_path, replicas):
    x, _ = examples(6)
    with scope(mirrored(replicas)):
        model = Net(nnx.Rngs(0))
    model.eval()
    kinds = {type(v) for _, v in nnx.iter_graph(model)}
    serve = uni.function(lambda x: model(x), input_signature=BATCH)
    path = save(model, tmp_path / "m", signatures=serve)
    assert {type(v) for _, v in nnx.iter_graph(model)} == kinds
    assert difference(serve_elsewhere(path, x), model(x)) < CLOSE
    loaded = uni.saved_model.load(path)
    assert difference(loaded.inner.kernel, model.inner.kernel[...]) == 0
    loaded.more.__dict__["0"].bias.assign([1.0, 1.0, 1.0])
    found = loaded.signatures["serving_default"](x)["output_0"]
    assert difference(found, model(x) + 1) < CLOSE


def test_a_flax_model_with_a_function_scans_over_layers(tmp_path):
    class Stack(nnx.Module):
        def __init__(self, rngs):
            @nnx.split_rngs(splits=3)
            @nnx.vmap(in_axes=0, out_axes=0)
            def make(rngs):
                return nnx.Linear(5, 5, rngs=rngs)

            self.blocks = make(rngs)

        @uni.function(input_signature=BATCH)
        def __call__(self, x):
            @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
            def forward(x, block):
                return nnx.relu(block(x))

            return forward(x, self.blocks)

    x, _ = examples(6)
    with mirrored(2).scope():
        model = Stack(nnx.Rngs(0))
    found = serve_elsewhere(save(model, tmp_path / "m"), x, function="__call__")
    assert difference(found, model(x)) < CLOSE


def test_a_flax_model_in_training_keeps_its_statistics_and_streams(tmp_path):
    x, _ = examples(6)
    with mirrored(2).scope():
        model = Net(nnx.Rngs(0))
    step = uni.function(lambda x: model(x), input_signature=BATCH)
    loaded = uni.saved_model.load(save(model, tmp_path / "m", signatures=step))
    for _ in range(2):
        out = loaded.signatures["serving_default"](x)["output_0"]
        assert difference(out, model(x)) < CLOSE
    assert difference(loaded.norm.mean, model.norm.mean[...]) < CLOSE
    assert difference(loaded.drop.rngs.count, model.drop.rngs.count[...]) == 0


def test_a_module_that_holds_a_flax_model_is_served_without_flax(tmp_path):
    x, _ = examples(6)
    with mirrored(2).scope():
        module = Holder(Net(nnx.Rngs(0)))
    module.net.eval()
    found = serve_elsewhere(save(module, tmp_path / "m"), x)
    assert difference(found, 3 * module.net(x)) < CLOSE


def test_a_flax_model_without_a_signature_is_refused_or_left_out(tmp_path):
    with mirrored(2).scope():
        model = Net(nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"inputs of a Net are.*signatures="):
        save(model, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
    module = uni.Module()
    module.net = model
    with pytest.warns(UserWarning, match=r"net is exported without a function"):
        save(module, tmp_path / "m")
