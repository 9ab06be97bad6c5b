"""Exported models: loaded without code, on one device or in a scope, or refused."""

import json
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni
from tests.parity.programs import (
    copies,
    kind,
    local,
    mirrored,
    on_read,
    plain,
    variable,
)
from unisono._src.saving.export import model_description

SCALAR = [uni.TensorSpec([], "float32")]


class Scale(uni.Module):
    def __init__(self, v):
        super().__init__()
        self.v = v

    @uni.function(input_signature=SCALAR)
    def __call__(self, x):
        return self.v * x

    @uni.function(input_signature=SCALAR)
    def move(self, by):
        self.v.assign_add(by)
        return {"old": self.v - by, "new": self.v}


class Network(uni.Module):
    """Layers in a list, a shape left open, random numbers and a matrix product."""

    def __init__(self):
        super().__init__()
        self.layers = [
            {
                "w": uni.Variable(jnp.full((3, 3), 1.0 + i)),
                "b": uni.Variable(jnp.ones(3)),
            }
            for i in range(2)
        ]
        self.scale = 2.0

    @uni.function(
        input_signature=[
            uni.TensorSpec([None, 3], "float32"),
            {"shift": uni.TensorSpec([], "float32")},
        ]
    )
    def apply(self, x, more):
        for layer in self.layers:
            x = jnp.tanh(x @ layer["w"] + layer["b"])
        noise = jax.random.uniform(jax.random.key(0), (3,))
        return x * self.scale + more["shift"] + 0 * noise


@pytest.mark.feature("S06")
def test_a_model_is_loaded_plain_outside_and_mirrored_inside_a_scope(tmp_path):
    model = Scale(variable(mirrored(2), 3.0))
    uni.saved_model.save(model, tmp_path / "m")
    a = uni.saved_model.load(tmp_path / "m")
    with mirrored(4).scope():
        b = uni.saved_model.load(tmp_path / "m")
    assert (kind(a.v), plain(a(2.0))) == ("ResourceVariable", 6.0)
    assert (kind(b.v), copies(b.v)) == ("MirroredVariable", [3.0] * 4)
    keys = uni.train.list_variables(tmp_path / "m" / "variables" / "variables")
    assert [k for k, _ in keys if "GRAPH" not in k] == ["v/.ATTRIBUTES/VARIABLE_VALUE"]
    for run in (b, uni.function(lambda x: b(x))):
        out = mirrored(4).run(run, args=(jnp.asarray(2.0),))
        assert local(mirrored(4), out) == [6.0] * 4
    assert copies(model.v) == [3.0, 3.0]
    assert kind(model.v) == "MirroredVariable"


@pytest.mark.feature("S06")
@pytest.mark.parametrize("inside", [True, False])
def test_a_model_may_be_saved_inside_or_outside_a_scope(tmp_path, inside):
    model = Scale(variable(mirrored(2), 3.0))
    if inside:
        with mirrored(2).scope():
            uni.saved_model.save(model, tmp_path / "m")
    else:
        uni.saved_model.save(model, tmp_path / "m")
    assert plain(uni.saved_model.load(tmp_path / "m")(2.0)) == 6.0


@pytest.mark.feature("S06")
def test_a_saved_sum_is_the_sum_of_the_copies(tmp_path):
    class Total(uni.Module):
        def __init__(self):
            super().__init__()
            self.v = on_read(mirrored(2), 3.0)

        @uni.function(input_signature=[])
        def __call__(self):
            return self.v.read_value()

    model = Total()
    uni.saved_model.save(model, tmp_path / "m")
    assert plain(model.v) == plain(uni.saved_model.load(tmp_path / "m")()) == 6.0
    with mirrored(4).scope():
        again = uni.saved_model.load(tmp_path / "m")
    assert copies(again.v) == [1.5] * 4
    assert plain(again.v) == 6.0


def test_functions_that_assign_keep_doing_so(tmp_path):
    uni.saved_model.save(Scale(uni.Variable(3.0)), tmp_path / "m")
    loaded = uni.saved_model.load(tmp_path / "m")
    out = loaded.move(2.0)
    assert plain(out) == {"old": 3.0, "new": 5.0}
    assert plain(loaded.v) == 5.0
    assert plain(loaded.move(by=1)["new"]) == 6.0
    step = uni.function(lambda: loaded.move(1.0)["new"])
    assert plain(step()) == 7.0
    assert plain(loaded.v) == 7.0


@pytest.mark.parametrize("batch", [1, 5])
def test_nested_objects_and_open_shapes_come_back(tmp_path, batch):
    model = Network()
    uni.saved_model.save(model, tmp_path / "m", signatures={"serve": model.apply})
    loaded = uni.saved_model.load(tmp_path / "m")
    x = jnp.ones((batch, 3)) * 0.1
    want = model.apply(x, {"shift": 1.0})
    np.testing.assert_allclose(loaded.apply(x, {"shift": 1.0}), want, rtol=1e-6)
    served = loaded.signatures["serve"](x, {"shift": 1.0})
    np.testing.assert_allclose(served["output_0"], want, rtol=1e-6)
    assert plain(loaded.layers[1]["w"]) == plain(model.layers[1]["w"])
    checkpoint = uni.train.Checkpoint(model=loaded)  # A loaded model can be trained.
    path = checkpoint.write(tmp_path / "c")
    loaded.layers[0]["b"].assign(jnp.zeros(3))
    checkpoint.read(path).assert_consumed()
    assert plain(loaded.layers[0]["b"]) == [1.0] * 3


def test_a_model_is_loaded_in_a_process_without_its_code(tmp_path):
    uni.saved_model.save(Scale(variable(mirrored(2), 3.0)), tmp_path / "m")
    code = f"""
import sys, unisono
model = unisono.saved_model.load({str(tmp_path / "m")!r})
assert not any("test" in name for name in sys.modules if name.startswith("tests"))
print(float(model(2.0)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "6.0\n", done.stderr


@pytest.mark.feature("S06")
def test_the_only_function_of_an_object_is_its_default_signature(tmp_path):
    class Outer(uni.Module):
        def __init__(self):
            super().__init__()
            self.network = Network()

    for obj, names in [
        (Network(), ["serving_default"]),
        (Scale(uni.Variable(1.0)), []),
        (Outer(), []),
    ]:
        uni.saved_model.save(obj, tmp_path / "m")
        assert list(uni.saved_model.load(tmp_path / "m").signatures) == names


def test_arguments_that_must_have_one_batch_size_do(tmp_path):
    batch = uni.TensorSpec([None], "float32")

    class Two(uni.Module):
        @uni.function(input_signature=[batch, batch])
        def add(self, x, y):
            return x + y

        @uni.function(input_signature=[batch, batch])
        def sums(self, x, y):
            return x.sum() + y.sum()

    uni.saved_model.save(Two(), tmp_path / "m")
    loaded = uni.saved_model.load(tmp_path / "m")
    assert plain(loaded.add(np.ones(3), np.ones(3))) == [2.0] * 3
    with pytest.raises(ValueError, match="batch"):
        loaded.add(np.ones(3), np.ones(1))
    assert plain(loaded.sums(np.ones(3), np.ones(4))) == 7.0


@pytest.mark.feature("S06")
def test_a_saved_variable_is_loaded_as_a_variable(tmp_path):
    uni.saved_model.save(variable(mirrored(2), [3.0, 4.0], name="w"), tmp_path / "m")
    a = uni.saved_model.load(tmp_path / "m")
    with mirrored(2).scope():
        b = uni.saved_model.load(tmp_path / "m")
    assert (kind(a), plain(a), a.name) == ("ResourceVariable", [3.0, 4.0], "w:0")
    assert (kind(b), copies(b)) == ("MirroredVariable", [[3.0, 4.0]] * 2)


# Refused.


@pytest.mark.parametrize("obj", [[1.0], {"a": 1.0}, (), 3, np.ones(2)])
def test_a_container_or_a_plain_value_is_not_saved_as_a_model(tmp_path, obj):
    with pytest.raises(ValueError, match=r"attribute of a unisono\.Module"):
        uni.saved_model.save(obj, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_a_variable_that_the_object_does_not_have_is_named(tmp_path):
    stranger = uni.Variable(1.0, name="stranger")

    class Odd(uni.Module):
        @uni.function(input_signature=[])
        def __call__(self):
            return stranger * 2.0

    with pytest.raises(ValueError, match=r"'stranger'.*make it an attribute"):
        uni.saved_model.save(Odd(), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_a_concrete_function_can_be_a_signature(tmp_path):
    model = Scale(uni.Variable(2.0))
    fn = uni.function(lambda x, factor: x["a"] * factor + model.v)
    concrete = fn.get_concrete_function({"a": uni.TensorSpec([None])}, factor=3.0)
    uni.saved_model.save(model, tmp_path / "m", signatures=concrete)
    loaded = uni.saved_model.load(tmp_path / "m")
    found = loaded.signatures["serving_default"](x={"a": np.ones(4, np.float32)})
    assert found["output_0"].tolist() == [5.0] * 4
    with pytest.raises(ValueError, match="or what its get_concrete_function returns"):
        uni.saved_model.save(model, tmp_path / "n", signatures=fn)


def test_functions_without_a_signature_are_left_out_with_a_warning(tmp_path):
    class Open(uni.Module):
        @uni.function
        def f(self, x):
            return x

    with pytest.warns(UserWarning, match="'f'.*no input_signature"):
        uni.saved_model.save(Open(), tmp_path / "m")
    loaded = uni.saved_model.load(tmp_path / "m")
    with pytest.raises(TypeError, match="without a __call__"):
        loaded()
    with pytest.raises(ValueError, match=r"expected a unisono\.function"):
        uni.saved_model.save(
            Scale(uni.Variable(1.0)), tmp_path / "m", signatures=lambda x: x
        )


def test_wrong_arguments_are_refused(tmp_path):
    uni.saved_model.save(Scale(uni.Variable(3.0)), tmp_path / "m")
    loaded = uni.saved_model.load(tmp_path / "m")
    with pytest.raises(TypeError, match="takes the arguments x"):
        loaded(1.0, 2.0)
    with pytest.raises(TypeError, match="takes the arguments x"):
        loaded(y=1.0)


def test_another_platform_is_refused_with_the_remedy(tmp_path):
    options = uni.saved_model.SaveOptions(platforms=["tpu"])
    uni.saved_model.save(Scale(uni.Variable(3.0)), tmp_path / "m", options=options)
    with pytest.raises(
        uni.FailedPreconditionError, match=r"exported for tpu.*on [cg]pu"
    ):
        uni.saved_model.load(tmp_path / "m")


def test_what_cannot_be_exported_is_explained(tmp_path):
    class Calls(uni.Module):
        @uni.function(input_signature=SCALAR)
        def __call__(self, x):
            return jax.pure_callback(
                lambda a: a, jax.ShapeDtypeStruct((), "float32"), x
            )

    class Draws(uni.Module):
        @uni.function(input_signature=SCALAR)
        def __call__(self, x):
            return x + uni.random.uniform([], seed=1)

    with pytest.raises(ValueError, match=r"__call__ cannot be exported"):
        uni.saved_model.save(Calls(), tmp_path / "m")
    with pytest.raises(
        ValueError, match=r"__call__ cannot be .* random\.Generator that"
    ):
        uni.saved_model.save(Draws(), tmp_path / "m")


def test_a_bit_flipped_in_any_file_of_a_model_is_noticed(tmp_path):
    path = tmp_path / "m"
    uni.saved_model.save(Scale(uni.Variable(3.0)), path)
    found = sorted(p for p in path.rglob("*") if p.is_file())
    assert {p.name for p in found} >= {
        model_description.NAME,
        "f0",
        "f1",
        "capsule.json",
    }
    for file in found:
        before = file.read_bytes()
        for position in range(0, len(before), max(1, len(before) // 5)):
            data = bytearray(before)
            data[position] ^= 4
            file.write_bytes(data)
            with pytest.raises(uni.errors.DataLossError, match=file.name):
                uni.saved_model.load(path)
        file.write_bytes(before)
    uni.saved_model.load(path)
    with pytest.raises(uni.errors.NotFoundError, match="no saved model"):
        uni.saved_model.load(tmp_path / "none")


HOSTILE = {
    "reserved name": lambda f: f["items"][0]["children"].update(__class__=0),
    "own name": lambda f: f["items"][0]["children"].update(_functions=0),
    "special method": lambda f: f["functions"][0].update(name="__del__"),
    "path": lambda f: f["functions"][0].update(file="../../x"),
    "missing object": lambda f: f["items"][0]["children"].update(v=99),
    "no variable": lambda f: f["functions"][0].update(uses=[0]),
    "odd owner": lambda f: f["functions"][0].update(owner="x"),
    "kind": lambda f: f["items"][0].update(kind="pickle"),
    "no items": lambda f: f.update(items=[]),
    "unknown field": lambda f: f["items"][0].update(code="x"),
    "version": lambda f: f.update(version=2),
    "aggregation": lambda f: f["items"][1]["variable"].update(aggregation="EVAL"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_description_is_refused(tmp_path, what):
    path = tmp_path / "m"
    uni.saved_model.save(Scale(uni.Variable(3.0)), path)
    file = path / model_description.NAME
    fields = json.loads(file.read_bytes().partition(b"\n")[2])
    HOSTILE[what](fields)
    file.unlink()
    from unisono._src.saving.format import signed_text

    signed_text.write(file, json.dumps(fields).encode())
    with pytest.raises(uni.errors.DataLossError, match=model_description.NAME):
        uni.saved_model.load(path)


@pytest.mark.needs_devices(2)  # The program is one for CPUs.
def test_a_program_that_calls_out_of_xla_is_refused(tmp_path, monkeypatch):
    class Solve(uni.Module):
        @uni.function(input_signature=[uni.TensorSpec([2, 2], "float32")])
        def __call__(self, x):
            return jnp.linalg.cholesky(x)

    options = uni.saved_model.SaveOptions(platforms=["cpu"])
    uni.saved_model.save(Solve(), tmp_path / "m", options=options)
    out = uni.saved_model.load(tmp_path / "m")(jnp.eye(2))
    assert plain(out) == [[1.0, 0.0], [0.0, 1.0]]
    # The same program, had Cholesky not been on the list.
    from unisono._src.saving.export import loader

    monkeypatch.setattr(loader, "_SAFE_CALLS", re.compile("nothing"))
    with pytest.raises(uni.errors.DataLossError, match="calls 'lapack_spotrf_ffi'"):
        uni.saved_model.load(tmp_path / "m")


def test_saving_again_replaces_the_model_in_one_step(tmp_path):
    for value in (1.0, 2.0):
        uni.saved_model.save(Scale(uni.Variable(value)), tmp_path / "m")
    assert plain(uni.saved_model.load(tmp_path / "m").v) == 2.0
    assert [p.name for p in pathlib.Path(tmp_path).iterdir()] == ["m"]
