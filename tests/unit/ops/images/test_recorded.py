"""Every image function gives what TensorFlow gave, on the host and with JAX."""

import base64
import inspect
import json

import jax
import numpy as np
import pytest

import unisono
from tests.unit.ops import test_recorded
from tests.unit.ops.images import cases
from unisono._src.foundation import ambient

RECORDED = json.loads((cases.HERE / "recorded.json").read_text(encoding="utf-8"))
ARRAYS = cases.make_arrays()
SPACE = {"tf": unisono, "np": np, "FILES": cases.read_files(), **ARRAYS}
REFUSALS = (unisono.errors.InvalidArgumentError, ValueError, TypeError)
# Functions of arrays and random numbers, which a program can compute.
COMPILED = [path for path in RECORDED if not path.startswith("io.")]
COMPILED.remove("image.non_max_suppression")

# How far numbers may be from TensorFlow's, relative to the largest one. The sine of a
# kernel, and the order of a sum, are not the same.
ON_HOST = {"image.per_image_standardization": 5e-7, "lanczos": 5e-7}


def compute(path, call):
    """Returns what a call gives; an exception if it is refused."""
    try:
        return eval(call, {**SPACE, "f": test_recorded.find(path)})
    except REFUSALS as error:
        return error


def compute_on_host(path, call):
    before = ambient.enter_dataset(True)
    try:
        return compute(path, call)
    finally:
        ambient.enter_dataset(before)


def mistake(got, recorded, tolerance, narrow):
    """Returns how a result differs from the recorded one; "" if it does not."""
    if "error" in recorded:
        return "" if isinstance(got, Exception) else f"gave {got}"
    if isinstance(got, Exception):
        return f"raised {got!r}"
    dtype = narrow.get(recorded["dtype"], recorded["dtype"])
    if str(got.dtype) != dtype or list(got.shape) != recorded["shape"]:
        return f"gave {got.dtype}{got.shape}, not {dtype}{recorded['shape']}"
    raw = np.frombuffer(base64.b64decode(recorded["bytes"]), recorded["dtype"])
    wanted = raw.reshape(got.shape).astype(np.float64)
    largest = max(1.0, np.abs(wanted).max(initial=0))
    away = np.abs(np.asarray(got).astype(np.float64) - wanted).max(initial=0)
    return f"is {away} away" if away > tolerance * largest else ""


def find_mistakes(calls, tolerances, narrow):
    """Returns what is wrong with the results of (path, call)."""
    mistakes = []
    for (path, call), got in calls.items():
        known = (v for k, v in tolerances.items() if k in f"{path} {call}")
        recorded = RECORDED[path]["calls"][call]
        said = mistake(got, recorded, next(known, 0), narrow)
        mistakes += [f"{path}: {call} {said}"] if said else []
    return mistakes


def test_host_bodies_give_the_numbers_of_tensorflow():
    found = {
        (path, call): compute_on_host(path, call)
        for path, row in RECORDED.items()
        for call in row["calls"]
    }
    assert all(
        type(x).__name__ == "HostArray"
        for (_, call), x in found.items()
        if not isinstance(x, Exception) and "tf.constant" not in call
    )
    mistakes = find_mistakes(found, ON_HOST, {})
    assert not mistakes, "\n".join(mistakes)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
def test_compiled_bodies_give_the_numbers_of_tensorflow():
    # One program takes a fraction of the time of as many programs. Without 64-bit types
    # JAX refuses int64, which a test below looks at.
    errors = {}

    def compute_all():
        found = {}
        for path in COMPILED:
            for call in RECORDED[path]["calls"]:
                if "L" in call or "int64" in call:
                    continue
                result = compute(path, call)
                if isinstance(result, Exception):
                    errors[path, call] = result
                else:
                    found[f"{path} {call}"] = result
        return found

    quick = {
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    }
    compiled = jax.jit(compute_all).lower().compile(compiler_options=quick)
    found = {tuple(k.split(" ", 1)): v for k, v in compiled().items()} | errors
    assert len(found) > 350
    tolerances = {
        "uint8": 1 / 255,
        "(Q": 1 / 255,
        "(U": 1 / 65535,
        "(H": 1e-3,
        "": 1e-6,
    }
    mistakes = find_mistakes(found, tolerances, test_recorded.NARROW)
    assert not mistakes, "\n".join(mistakes)


def test_jax_refuses_images_of_types_that_it_does_not_have():
    with pytest.raises(TypeError, match="another white"):
        unisono.image.convert_image_dtype(ARRAYS["L"], unisono.float32)
    with pytest.raises(TypeError, match="another white"):
        unisono.image.adjust_brightness(ARRAYS["L"], 0.1)
    with pytest.raises(OverflowError, match="does not fit int32"):
        unisono.image.resize(ARRAYS["L"], (2, 2))


def test_the_signatures_are_those_of_tensorflow():
    def names(rows):
        return [(name, kind) for name, kind, _ in rows]

    differing = {
        path: inspect.signature(test_recorded.find(path))
        for path, row in RECORDED.items()
        if names(test_recorded.signature(test_recorded.find(path)))
        != names(row["signature"])
    }
    assert not differing


def test_images_resize_in_functions_of_a_strategy():
    @unisono.function
    def step(images):
        return unisono.image.resize(unisono.image.flip_left_right(images), (3, 2))

    strategy = unisono.distribute.MirroredStrategy()
    with strategy.scope():
        given = strategy.run(step, (unisono.constant(ARRAYS["B"]),))
    first = strategy.experimental_local_results(given)[0]
    eager = unisono.image.resize(ARRAYS["B"][:, :, ::-1], (3, 2))
    np.testing.assert_allclose(first, eager, rtol=1e-6)
