"""A number of 64 bits keeps its value on its way to JAX, or is refused by name."""

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import unisono as tf
from tests import random_programs
from unisono._src.foundation import wide_numbers

MIRRORED = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
ONE = tf.distribute.OneDeviceStrategy("CPU:1")
WIDE = {
    "int64": np.array([1_700_000_000_123, 2**32 + 1]),
    "uint64": np.array([1, 2**63], np.uint64),
    "float64": np.array([1.0, -1e300]),
}


# Where numbers of the host reach devices.


def batches(x, strategy=MIRRORED, size=2):
    dataset = tf.data.Dataset.from_tensor_slices(x).batch(size)
    return next(iter(strategy.experimental_distribute_dataset(dataset)))


def values(x):
    return MIRRORED.experimental_distribute_values_from_function(lambda _: x)


def scoped(x):
    with MIRRORED.scope():
        return tf.Variable(x)


def zeros(x):
    return tf.Variable(np.zeros_like(x))


def assigned_by_replicas(x):
    with MIRRORED.scope():
        v = tf.Variable(np.zeros_like(x), aggregation=tf.VariableAggregation.SUM)
    return tf.function(lambda: MIRRORED.run(lambda: v.assign_add(x)))()


def summed(x):
    context = tf.distribute.get_replica_context()
    return context.all_reduce("SUM", x)


def signed(x):
    spec = tf.TensorSpec([None], x.dtype)
    return tf.function(lambda y: y, input_signature=[spec])(x)


PATHS = [
    batches,
    lambda x: batches(x, ONE),
    lambda x: batches(np.concatenate([x, x[:1]]), size=3),
    lambda x: batches({"a": np.zeros(2), "b": x}),
    lambda x: MIRRORED.reduce("SUM", values(x), axis=None),
    lambda x: MIRRORED.reduce("SUM", values(x), axis=0),
    lambda x: MIRRORED.gather(values(x), 0),
    lambda x: tf.function(lambda y: y)(values(x)),
    lambda x: MIRRORED.run(lambda: summed(x)),
    lambda x: tf.function(lambda: MIRRORED.run(lambda: summed(x)))(),
    lambda x: tf.function(lambda y: y)(x),
    lambda x: tf.function(lambda y: y)({"a": (x[0], x[1])}),
    lambda x: tf.function(lambda: x)(),
    lambda x: tf.function(lambda i: next(i))(
        iter(tf.data.Dataset.from_tensor_slices(x).batch(2))
    ),
    lambda x: tf.function(lambda y: y * x)(tf.constant([1, 2])),
    lambda x: tf.function(lambda y: MIRRORED.run(lambda z: x - z, (y,)))(
        tf.constant([1, 2])
    ),
    signed,
    tf.Variable,
    lambda x: tf.Variable(x[-1] if x[0] == 1 else x[0]),
    lambda x: tf.Variable(lambda: x),
    scoped,
    lambda x: zeros(x).assign(x),
    lambda x: zeros(x).assign_add(x),
    lambda x: zeros(x).scatter_add(tf.IndexedSlices(x, [0, 1])),
    lambda x: zeros(x) + x,
    lambda x: x + zeros(x),
    assigned_by_replicas,
    tf.constant,
    tf.convert_to_tensor,
    tf.identity,
    tf.reduce_sum,
    lambda x: tf.add(x, x),
    lambda x: tf.cast(x, x.dtype),
    lambda x: tf.stack([x, x]),
    lambda x: tf.where([True, False], x, x),
    lambda x: tf.numpy_function(lambda: x, [], x.dtype),
    lambda x: tf.while_loop(lambda y: True, lambda y: y, (x,), maximum_iterations=1),
]


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("path", range(len(PATHS)))
def test_what_does_not_fit_is_refused_wherever_it_goes_to_a_device(path, name):
    with pytest.raises(OverflowError, match=rf"(?s){name}.*jax_enable_x64"):
        PATHS[path](WIDE[name])


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("path", [0, 4, 10, 14, 17, 21, 27, 31])
def test_with_64_bit_types_nothing_is_refused(path, name):
    with jax.enable_x64(True):
        found = PATHS[path](WIDE[name])
        kinds = [np.asarray(x).dtype.itemsize for x in jax.tree.leaves(plain(found))]
        assert set(kinds) == {8}


def plain(x):
    return x.values if isinstance(x, tf.distribute.DistributedValues) else x


def test_the_error_tells_number_place_and_what_has_it():
    data = {"id": np.array([[1, 2], [3, 2**40]]), "x": np.zeros(2)}
    with pytest.raises(OverflowError) as raised:
        batches(data)
    told = "The number 1099511627776 at [1, 1] of the component ['id'] of a batch of"
    assert told in str(raised.value)
    with pytest.raises(OverflowError, match=r"-5000000000 of the value of .* 'count'"):
        tf.Variable(np.int64(-5_000_000_000), name="count")


@pytest.mark.parametrize("given", [2**40, [1, -(2**40)], (2**31,)])
def test_python_integers_that_do_not_fit_are_refused_with_the_same_advice(given):
    for take in (tf.Variable, tf.constant, lambda x: tf.Variable([1]).assign(x)):
        with pytest.raises(OverflowError, match=r"(does|do) not fit .*jax_enable_x64"):
            take(given)
    with pytest.raises(OverflowError, match="jax_enable_x64"):
        tf.function(lambda y: y + np.array(given))(tf.constant(1))
    with pytest.raises(OverflowError, match=r"Python int .*jax_enable_x64"):
        tf.function(lambda y: y + 2**40)(tf.constant(1))


def test_an_overflow_of_the_program_itself_stays_what_it_is():
    def fail(x):
        raise OverflowError("math range error")

    with pytest.raises(OverflowError, match=r"^math range error$"):
        tf.function(fail)(1)


def test_what_is_not_finite_already_and_what_is_rounded_are_no_overflow():
    given = np.array([np.inf, -np.inf, np.nan, 0.1, np.finfo(np.float32).max])
    np.testing.assert_array_equal(tf.constant(given), given.astype(np.float32))
    np.testing.assert_array_equal(tf.Variable(given), given.astype(np.float32))
    # In 16 bits, and for Python's floats, it is infinite in TensorFlow, too.
    with np.errstate(over="ignore"):
        assert tf.multiply(tf.constant([1.0], tf.float16), np.float64(-1e9)) == -np.inf
        assert tf.constant(1e300) == np.inf


def test_a_cast_to_a_type_that_jax_has_is_tensorflows():
    given = np.array([2**32 + 5, -1])
    assert tf.cast(given, tf.int32).tolist() == [5, -1]
    assert tf.cast(given, tf.bool).tolist() == [True, True]
    assert tf.cast(given, tf.float32).tolist() == [2.0**32, -1.0]
    assert tf.saturate_cast(given, tf.int32).tolist() == [2**31 - 1, -1]
    assert tf.saturate_cast(given, tf.uint8).tolist() == [255, 0]
    assert tf.saturate_cast(np.uint64([2**63]), tf.int32).tolist() == [2**31 - 1]


def test_shapes_are_told_of_any_numbers():
    assert tf.shape(WIDE["int64"]).tolist() == [2]
    assert (int(tf.size(WIDE["int64"])), int(tf.rank(WIDE["uint64"]))) == (2, 1)


def test_other_byte_orders_and_empty_arrays_are_looked_at():
    with pytest.raises(OverflowError, match="1099511627776"):
        wide_numbers.check(np.array([2**40], ">i8"))
    assert wide_numbers.check(np.zeros(0, np.int64)).size == 0
    with pytest.raises(OverflowError, match="complex128"):
        tf.constant(np.array([1 + 1e300j]))


def test_programs_that_are_jaxs_alone_go_by_the_rule_of_jax():
    assert jax.jit(lambda x: x + np.int64(2**32))(jnp.asarray(1)) == 1


NUMBERS = st.one_of(
    arrays.arrays(
        st.sampled_from([np.int64, np.uint64, np.dtype(">i8"), np.int32]),
        st.integers(0, 5),
    ),
    arrays.arrays(np.float64, st.integers(0, 5), elements=st.floats(allow_nan=False)),
)
WAYS = {
    "argument": lambda x: tf.function(lambda y: y)(x),
    "constant": tf.constant,
    "variable": lambda x: tf.Variable(x).value(),
    "batch": lambda x: batches(x, ONE, max(len(x), 1)) if len(x) else x,
    "values": lambda x: MIRRORED.experimental_local_results(
        tf.function(lambda y: y)(values(x))
    )[1],
}


@hypothesis.given(x=NUMBERS, way=st.sampled_from(sorted(WAYS)))
@random_programs.tries(60)
def test_random_numbers_arrive_as_they_are_or_not_at_all(x, way):
    native = x.astype(x.dtype.newbyteorder("="))
    with np.errstate(over="ignore"):
        narrow = native.astype(jax.dtypes.canonicalize_dtype(native.dtype))
        fits = np.array_equal(narrow, native) or (
            x.dtype.kind == "f" and np.array_equal(np.isinf(narrow), np.isinf(native))
        )
    if not fits:
        with pytest.raises(OverflowError):
            WAYS[way](native if way != "batch" else x)
        return
    found = np.asarray(WAYS[way](native if way != "batch" else x))
    np.testing.assert_array_equal(found, narrow)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.0, "float32"),
        ([1, 2.5], "float32"),
        ([], "float32"),
        (3, "int32"),
        (2**40, "int64"),
        (np.float64(2), "float64"),
        (lambda: 1.0, "float32"),
    ],
)
def test_with_64_bits_a_variable_of_python_numbers_has_tensorflows_type(value, dtype):
    with jax.enable_x64(True):
        assert tf.Variable(value).dtype == dtype
