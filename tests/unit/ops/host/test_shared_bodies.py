"""Everyday names in functions of datasets: TensorFlow's types and numbers, by NumPy."""

import inspect
import json
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.unit.ops.host import record
from unisono._src.ops import axis_functions, elementwise, tensors, windows
from unisono._src.ops.host import shared_bodies, working_arrays

RECORDED = json.loads(
    pathlib.Path(__file__).with_name("recorded.json").read_text(encoding="utf-8")
)
# NumPy and TensorFlow round these alike but for the last bits. All other numbers are
# the same bit by bit.
REFUSALS = (tf.errors.InvalidArgumentError, TypeError, ValueError)
ROUNDED = ("exp", "log", "softmax", "sigmoid", "std", "norm", "einsum", "linspace")


def differs(call, recorded):
    """Returns how a call differs from what TensorFlow gave; "" if it does not."""
    try:
        found = record.compute(tf, call)
    except REFUSALS as error:
        return "" if isinstance(recorded, str) else f"raised {error!r}"
    if isinstance(recorded, str):
        return f"gave {found}, not {recorded}"
    for x, (dtype, shape, values) in zip(found, recorded, strict=True):
        name = "string" if x.dtype == object else x.dtype.name
        if (name, list(x.shape)) != (dtype, shape):
            return f"gave {name}{list(x.shape)}, not {dtype}{shape}"
        got, limit = record.encode(x), 1e-6 if dtype == "float32" else 1e-12
        rtol = limit if any(part in call for part in ROUNDED) else 0
        if dtype != "string" and not np.allclose(got, values, rtol, 0, equal_nan=True):
            return f"gave {got}, not {values}"
        if rtol == 0 and got != values and not np.isnan(values).any():
            return f"gave {got}, not {values}"
    return ""


def test_calls_in_functions_of_datasets_give_what_tensorflow_gives():
    found = {call: differs(call, row) for call, row in RECORDED.items()}
    assert not {call: said for call, said in found.items() if said}


def test_every_call_is_recorded():
    assert [*RECORDED] == [*dict.fromkeys(record.CALLS)]


def run(function, *given, **kwargs):
    """Returns what a function makes of one element."""
    dataset = tf.data.Dataset.from_tensors(given)
    return next(iter(dataset.map(function, **kwargs)))


def test_an_array_of_jax_or_a_variable_is_computed_with_by_jax():
    x, there = np.array([1.0, 2.0], np.float32), jnp.ones(2)
    variable = tf.Variable([3.0, 4.0])
    kinds = []

    def function(x):
        found = tf.add(x, there), tf.multiply(x, variable)
        kinds.extend(isinstance(y, jax.Array) for y in found)
        return found

    first, second = run(function, x)
    assert first.tolist() == [2.0, 3.0] and second.tolist() == [3.0, 8.0]
    assert all(kinds)


def test_results_are_tensors_of_the_host_that_names_and_random_numbers_share():
    kinds = []

    def function(x):
        drawn = tf.random.stateless_uniform([2], seed=[1, 2])
        more = tf.random.uniform([2], seed=7)
        found = [drawn, more, tf.math.erf(x), tf.add(drawn, more), tf.shape(x)]
        kinds.extend(found)
        return tuple(found)

    found = run(function, np.array([0.5, 1.0], np.float32))
    assert all(map(tf.is_tensor, kinds)) and all(map(tf.is_tensor, found))
    assert {type(x).__name__ for x in kinds} == {"HostArray"}
    expected = tf.random.stateless_uniform([2], seed=[1, 2])
    np.testing.assert_array_equal(found[0], expected)


def test_names_that_only_jax_computes_keep_types_of_64_bits():
    large = np.array([[2**40], [3]])
    found = run(lambda x: tf.math.segment_sum(x, [0, 0]), large)
    assert found.tolist() == [[2**40 + 3]]
    assert run(tf.math.erf, np.array([1e300])).dtype == np.float64
    assert run(lambda x: tf.random.normal([2], dtype=tf.float64), 0).dtype == np.float64
    assert jnp.asarray(1.5).dtype == np.float32


def test_a_seed_of_64_bits_is_split_into_tensorflows_seeds_of_64_bits():
    seed = np.array([1, 2])
    first = [7464880146280614444, 1591045637757961278]
    assert run(tf.random.split, seed)[0].tolist() == first
    assert run(lambda x: tf.random.split([x[0], x[1]]), seed)[0].tolist() == first
    assert run(lambda x: tf.random.split((1, 2)), seed)[0].tolist() == [
        1105988140,
        1738052849,
    ]
    assert run(lambda x: tf.random.fold_in(x, x[1]), seed).tolist() == [first[0], 2]


def test_outside_functions_of_datasets_names_compute_with_jax():
    element = next(iter(tf.data.Dataset.from_tensors(np.float32([1, 2]))))
    assert isinstance(tf.add(element, element), jax.Array)
    assert tf.is_tensor(element)
    assert not tf.is_tensor(np.zeros(2))


def test_a_constant_keeps_its_numbers_when_the_program_changes_its_array():
    given = np.array([1, 2])

    def function(x):
        made = tf.constant(given), tf.convert_to_tensor(given)
        given[:] = 9
        return made

    assert [x.tolist() for x in run(function, np.int32(0))] == [[1, 2], [1, 2]]


def test_floats_beyond_the_range_of_integers_become_its_limits():
    x = np.array([np.nan, 1e30, -1e30, 3.7, -3.7])
    wide, narrow = run(lambda x: (tf.cast(x, tf.int64), tf.cast(x, tf.uint8)), x)
    limits = np.iinfo(np.int64)
    assert wide.tolist() == [0, limits.max, limits.min, 3, -3]
    assert narrow.tolist() == [0, 255, 0, 3, 0]


def test_a_function_that_the_program_compiles_may_use_names():
    compiled = jax.jit(lambda x: tf.add(x, tf.constant([1.0, 1.0])))
    found = run(compiled, np.array([1.0, 2.0], np.float32))
    assert found.tolist() == [2.0, 3.0]


def test_threads_make_the_bodies_of_the_host_at_once():
    shared_bodies._names_of.cache_clear()
    dataset = tf.data.Dataset.range(64).map(
        lambda x: tf.reduce_sum(tf.stack([x, x * 2])), num_parallel_calls=8
    )
    assert [int(x) for x in dataset] == [3 * i for i in range(64)]


def test_an_integer_out_of_the_range_of_the_type_is_an_error():
    x = np.array([200], np.uint8)
    with pytest.raises(OverflowError, match="300"):
        run(lambda x: tf.add(x, 300), x)
    with pytest.raises(OverflowError, match="300"):
        run(lambda x: tf.constant(300, tf.uint8), x)


def test_the_host_has_all_that_bodies_use_of_tensors():
    room = pathlib.Path(tensors.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in room.glob("*.py")]
    shared = [text for text in texts if "shared_bodies import array_function" in text]
    helpers = [inspect.getsource(m) for m in (elementwise, axis_functions, windows)]
    used = set(re.findall(r"\btensors\.(\w+)\(", "".join(shared + helpers)))
    assert "to_one_type" in used
    assert not {name for name in used if not hasattr(working_arrays, name)}


def test_a_saturated_cast_keeps_within_the_limits_of_floats():
    def function(x):
        return tf.saturate_cast(x, tf.float16)

    assert run(function, np.array([2**40, -3])).tolist() == [65504.0, -3.0]
    assert run(function, np.array([1e10, -np.inf])).tolist() == [65504.0, -65504.0]
    assert tf.saturate_cast(jnp.array([1e10, 1.5]), tf.float16).tolist() == [65504, 1.5]


def test_names_that_only_jax_computes_need_no_cpu_backend(monkeypatch):
    def refuse(**kwargs):
        raise RuntimeError("Unknown backend cpu")

    shared_bodies._find_cpu.cache_clear()
    monkeypatch.setattr(jax, "local_devices", refuse)
    try:
        assert float(run(tf.math.erf, np.array(0.0))) == 0
    finally:
        shared_bodies._find_cpu.cache_clear()
