"""Every function of arrays gives what TensorFlow gave, for recorded calls."""

import inspect
import json
import pathlib

import jax
import numpy as np
import pytest

import unisono
from tests.architecture import everyday_names
from tests.unit.ops import cases
from unisono._src.foundation import ambient

RECORDED = json.loads(
    pathlib.Path(__file__).with_name("recorded.json").read_text(encoding="utf-8")
)
ROWS = {
    entry.path: entry for entry in everyday_names.load().values() if entry.is_of_arrays
}

# JAX has no 64-bit types unless it is told so.
NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32"}
NARROW["complex128"] = "complex64"
REFUSALS = (unisono.errors.InvalidArgumentError, ValueError, TypeError)


def find(path):
    found = unisono
    for part in path.split("."):
        found = getattr(found, part)
    return found


def compute(paths):
    """Returns what each recorded call gives, (path, call): arrays, or an exception.

    All calls are one program: it takes a fraction of the time of as many programs.
    Their arguments are constants of the program, so that all checks are made.
    """
    arrays = cases.make_arrays(unisono)
    errors = {}

    def compute_all():
        found = {}
        for path in paths:
            space = {"f": find(path), "tf": unisono, **arrays}
            for call in RECORDED[path]["calls"]:
                try:
                    result = eval(cases.compile_call(call), space)
                    found[f"{path} {call}"] = jax.tree.leaves(result)
                except REFUSALS as error:
                    errors[path, call] = error
        return found

    quick = {
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    }
    compiled = jax.jit(compute_all).lower().compile(compiler_options=quick)
    return {tuple(k.split(" ", 1)): v for k, v in compiled().items()} | errors


def compute_on_host(paths):
    """Returns the same as `compute`, as if in a function of a dataset."""
    found: dict = {}
    before = ambient.enter_dataset(True)
    try:
        arrays = cases.make_arrays(unisono)
        for path in paths:
            space = {"f": find(path), "tf": unisono, **arrays}
            for call in RECORDED[path]["calls"]:
                try:
                    with np.errstate(all="ignore"):  # Of operators in the call.
                        result = eval(cases.compile_call(call), space)
                    found[path, call] = jax.tree.leaves(result)
                except REFUSALS as error:
                    found[path, call] = error
    finally:
        ambient.enter_dataset(before)
    return found


def wanted_arrays(recorded):
    """Returns the recorded arrays of a result in the order of its leaves."""
    if isinstance(recorded, dict):
        return [recorded]
    return [leaf for part in recorded for leaf in wanted_arrays(part)]


def number(x):
    """Returns a number that JSON cannot hold, and any other as it is."""
    if isinstance(x, list):
        return complex(*map(float, x))
    return float(x) if isinstance(x, str) else x


def mistake(got, recorded, narrow):
    """Returns how a result differs from the recorded one; "" if it does not.

    Args:
        got: arrays, or an exception.
        recorded: what TensorFlow gave.
        narrow: the types that stand for TensorFlow's of 64 bits.
    """
    if "error" in recorded:
        return "" if isinstance(got, Exception) else f"gave {got}"
    if isinstance(got, Exception):
        return f"raised {got!r}"
    wanted = wanted_arrays(recorded)
    if len(got) != len(wanted):
        return f"gave {len(got)} arrays instead of {len(wanted)}"
    for a, b in zip(got, wanted):
        dtype = narrow.get(b["dtype"], b["dtype"])
        if str(a.dtype) != dtype or list(a.shape) != b["shape"]:
            return f"gave {a.dtype}{list(a.shape)}, not {dtype}{b['shape']}"
        x = np.asarray(a).reshape(-1)
        x = x.astype(np.float32) if dtype in ("bfloat16", "float16") else x
        y = np.array([number(v) for v in b["values"]], x.dtype)
        if not np.allclose(x, y, rtol=2e-5, atol=1e-5, equal_nan=True):
            return f"gave {x.tolist()}, not {y.tolist()}"
    return ""


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
def test_recorded_calls_give_what_tensorflow_gave():
    check_all(RECORDED, compute(RECORDED), NARROW)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
def test_recorded_calls_in_functions_of_datasets_give_what_tensorflow_gave():
    check_all(RECORDED, compute_on_host(RECORDED), {})


def check_all(paths, found, narrow):
    mistakes = [
        f"{path}: {call} {said}"
        for path in paths
        for call, recorded in RECORDED[path]["calls"].items()
        if (said := mistake(found[path, call], recorded, narrow))
    ]
    assert not mistakes, "\n".join(mistakes)


def test_every_row_has_recorded_calls():
    assert RECORDED.keys() == ROWS.keys() == cases.CALLS.keys(), (
        "write calls for each row in cases.py, and record them with record.py."
    )


def test_the_signatures_are_those_of_tensorflow():
    differing = {
        path: (given, row["signature"])
        for path, row in RECORDED.items()
        if (given := signature(find(path))) != row["signature"]
    }
    assert not differing


def signature(function):
    """Returns [name, kind, default] for each argument, as `record` writes them."""
    found = []
    for parameter in inspect.signature(function).parameters.values():
        default = parameter.default
        if default is inspect.Parameter.empty:
            text = ""
        else:
            text = default.name if isinstance(default, np.dtype) else repr(default)
        found.append([parameter.name, parameter.kind.name, text])
    return found
