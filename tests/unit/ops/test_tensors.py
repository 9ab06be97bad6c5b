"""What the everyday names take: numbers, lists, variables, values of a replica."""

from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import unisono as tf
from unisono._src.ops import tensors


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, "int32"),
        (1.5, "float32"),
        (True, "bool"),
        ([1, 2.5], "float32"),
        ([], "float32"),
        (np.int64(3), "int32"),
        (np.array([1.0]), "float32"),
        (np.array([1], np.uint8), "uint8"),
        ([np.int64(3)], "int32"),
        ([np.float16(3)], "float16"),
        (jnp.zeros(2, jnp.bfloat16), "bfloat16"),
        (1j, "complex64"),
    ],
)
def test_numbers_have_tensorflows_types(value, dtype):
    found = tf.convert_to_tensor(value)
    assert isinstance(found, jax.Array) and found.dtype == dtype
    assert not found.weak_type


def test_arrays_of_different_types_are_refused_with_the_line_to_write():
    floats, integers = tf.constant([1.0]), tf.constant([1])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"unisono\.cast"):
        tf.add(floats, integers)
    with pytest.raises(tf.errors.InvalidArgumentError, match="float32 and int32"):
        tf.concat([floats, integers], 0)
    with pytest.raises(TypeError, match="float32 and int32"):
        tf.divide(floats, integers)


def test_numbers_take_the_type_of_the_array():
    half = tf.constant([1.0], tf.float16)
    assert tf.add(half, 1).dtype == tf.add(2, half).dtype == tf.float16
    assert tf.add(half, np.array([1.0])).dtype == tf.float16
    assert tf.multiply([2, 3], tf.constant([1.5, 2.0])).tolist() == [3.0, 6.0]
    with pytest.raises(TypeError, match=r"Cannot convert 1\.5"):
        tf.add(tf.constant([1]), 1.5)
    with pytest.raises(TypeError, match="NumPy array of type float64"):
        tf.add(tf.constant([1]), np.array([1.5]))


def test_integers_that_do_not_fit_are_refused():
    with pytest.raises(OverflowError, match="jax_enable_x64"):
        tf.constant(2**40)


def test_strings_are_refused_where_numbers_are_needed():
    for text in ("a", b"a", ["a"], np.array(["a"]), tf.constant(["12"])):
        with pytest.raises((TypeError, ValueError), match=r"strings|type object"):
            tf.exp(text)


def test_a_numpy_array_is_copied():
    given = np.zeros(3, np.float32)
    found = tf.constant(given)
    given[:] = 1
    assert found.tolist() == [0, 0, 0]


def test_variables_of_all_kinds_are_arrays():
    variable = tf.Variable([1.0, 2.0])
    assert tf.reduce_sum(variable).item() == 3
    assert tf.add(variable, [1, 1]).tolist() == [2, 3]
    assert tf.stack([variable, [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert tf.square(keras.Variable([3.0])).tolist() == [9]
    rows = tf.IndexedSlices(jnp.array([[2.0]]), jnp.array([1]), dense_shape=(2, 1))
    assert tf.convert_to_tensor(rows).tolist() == [[0], [2]]
    whole: Any = tf.cast(rows, tf.int32)
    assert whole.values.tolist() == [[2]]
    clipped, norm = tf.clip_by_global_norm([rows, None], 1.0)
    assert clipped[0].values.tolist() == [[1]] and clipped[1] is None and norm == 2


def test_values_of_a_replica_are_arrays_in_it():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    values = tf.distribute.PerReplica([np.array([1.0, 2.0]), np.array([3.0, 4.0])])
    sums = strategy.run(lambda: tf.reduce_sum(values))
    assert [float(x) for x in strategy.experimental_local_results(sums)] == [3, 7]


def test_a_known_shape_stays_known_in_a_compiled_function():
    @tf.function
    def flatten(x):
        count = tf.shape(x)[0]
        rows = tf.reshape(x, tf.concat([[count], [-1]], 0))
        pairs = tf.zeros(tf.stack([count // 2, tf.size(x) // count]))
        half = tf.range(tf.constant(3)) + tf.cast(tf.rank(x), tf.int32)
        inner = tf.reshape(x, [count, tf.reduce_prod(tf.shape(x)[1:])])
        return rows, pairs, half, inner, tf.shape(x)

    rows, pairs, half, inner, shape = flatten(tf.ones([4, 2, 3]))
    assert (rows.shape, pairs.shape, inner.shape) == ((4, 6), (2, 6), (4, 6))
    assert half.tolist() == [3, 4, 5] and shape.tolist() == [4, 2, 3]


def test_positions_that_are_not_there_read_as_zero_in_a_compiled_function():
    @tf.function
    def pick(x, i):
        changed = tf.tensor_scatter_nd_add(x, i[:, None], tf.ones([3]))
        return tf.gather(x, i), tf.gather_nd(x, i[:, None]), changed

    found = pick(tf.constant([1.0, 2.0]), tf.constant([-1, 1, 2]))
    assert [x.tolist() for x in found] == [[0, 2, 0], [0, 2, 0], [1, 3]]


def test_a_size_that_a_program_computes_is_refused():
    with pytest.raises(TypeError, match="known when the program is compiled"):
        tf.function(lambda n: tf.zeros([n]))(tf.constant(3))
    with pytest.raises(TypeError, match="boolean_mask"):
        tf.function(lambda x: tf.boolean_mask(x, x > 0))(tf.constant([1.0]))


@pytest.mark.parametrize("place", [(), (1,)], ids=["alone", "beside another"])
@pytest.mark.parametrize("block", [1.0, np.nan])
def test_eager_matrices_without_a_solution_are_refused(place, block):
    given = np.broadcast_to(np.eye(3, dtype="f4"), (2, 3, 3)).copy()
    given[1, 1:, 1:] = block
    given = given[1] if place == () else given
    for compute in (tf.linalg.inv, lambda x: tf.linalg.solve(x, tf.ones(x.shape))):
        with pytest.raises(tf.errors.InvalidArgumentError, match="not invertible"):
            compute(given)
        assert not np.isfinite(tf.function(compute)(given)[(*place, 1)]).all()


def test_an_inverse_that_is_too_large_is_infinite():
    assert tf.linalg.inv([[1e-20, 1e20], [0.0, 1e-20]])[0, 1] == -np.inf
    assert np.isnan(tf.linalg.pinv([[np.inf, 1.0], [1.0, 2.0]])).all()


def test_dropout_keeps_the_mean_and_draws_anew():
    ones = tf.ones([1000, 2])
    first, second = (tf.nn.dropout(ones, 0.5, noise_shape=[None, 1]) for _ in "ab")
    assert {*np.unique(first)} == {0.0, 2.0} and 0.8 < np.mean(first) < 1.2
    assert (first != second).any() and (first == first[:, :1]).all()
    tf.random.set_seed(1)
    third = tf.nn.dropout(ones, 0.5, seed=2)
    tf.random.set_seed(1)
    assert (tf.nn.dropout(ones, 0.5, seed=2) == third).all()


def test_constants_that_are_used_as_sizes_may_be_arrays():
    assert tensors.sizes("zeros", "shape", [jnp.int32(2), np.int64(3), 4]) == (2, 3, 4)
    with pytest.raises(TypeError, match="must be whole"):
        tf.zeros([1.5])


def test_an_empty_list_is_of_the_type_that_is_asked_for():
    assert tensors.tensor([], np.int32).dtype == np.int32
    assert tensors.tensor([]).dtype == np.float32


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
@pytest.mark.parametrize("how", [lambda f: f, tf.function])
def test_sums_of_half_precision_do_not_stop(dtype, how):
    ones, zeros = tf.ones([20, 200], dtype), tf.zeros([4000], tf.int32)
    flat = tf.reshape(ones, [-1])
    sums = [
        how(tf.reduce_sum)(ones),
        how(lambda x: tf.norm(x, 1))(ones),
        how(lambda x: tf.math.unsorted_segment_sum(x, zeros, 1)[0])(flat),
        how(lambda x: tf.add_n([x[0, 0]] * 4000))(ones),
    ]
    assert [float(x) for x in sums] == [4000.0] * 4
    assert all(x.dtype == dtype for x in sums)
    image = tf.reshape(ones, [1, 20, 200, 1])
    pooled = how(lambda x: tf.nn.avg_pool2d(x, [20, 200], 1, "VALID"))(image)
    assert pooled.item() == 1 and pooled.dtype == dtype


@pytest.mark.parametrize(
    ("numbers", "dtype", "mean"),
    [
        ([2_000_000_000, 2_000_000_002], "int32", 2_000_000_001),
        ([-2_000_000_000, -2_000_000_001], "int32", -2_000_000_000),
        ([2**31, 2**31 + 4], "uint32", 2**31 + 2),
        ([127, 127, 126], "int8", 126),
    ],
)
def test_means_of_integers_do_not_overflow(numbers, dtype, mean):
    given = tf.constant(numbers, dtype)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    step = tf.function(lambda: strategy.run(lambda: tf.reduce_mean(given) + 0))
    for found in (tf.reduce_mean(given), step()):
        for part in strategy.experimental_local_results(found):
            assert int(part) == mean


def test_the_largest_and_smallest_element_are_never_nan():
    nan = float("nan")
    for how in (lambda f: f, tf.function):
        assert int(how(tf.argmax)(tf.constant([3.0, nan, 4.0]))) == 2
        assert int(how(tf.argmin)(tf.constant([3.0, nan, 2.0]))) == 2
        assert int(how(tf.argmax)(tf.constant([nan, nan]))) == 0


def test_a_single_index_out_of_range_is_told():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices = 5 is not in"):
        tf.gather(tf.constant([1, 2, 3]), 5)


def test_the_array_that_numpy_returns_can_be_changed():
    element = next(iter(tf.data.Dataset.from_tensor_slices(np.ones((2, 2)))))
    for given in (tf.ones([2]), tf.Variable([1.0, 1.0]), element):
        array = given.numpy()
        array[0] = 5
        assert given.numpy().tolist() == [1, 1]
