"""TensorFlow's answers and ours, for `TensorArray`."""

import jax
import numpy as np
import pytest

import unisono as tf
from tests.unit.ops import everyday_programs


def test_it_gives_what_tensorflow_gives():
    everyday_programs.check(tf, "tensor_array")


def fill(x, n=4, most=None, **options):
    """Returns a TensorArray that a loop has written."""
    found = tf.TensorArray(tf.float32, **{"size": 4, **options})
    return tf.while_loop(
        lambda i, _: i < n,
        lambda i, found: (i + 1, found.write(i, tf.cast(i, tf.float32) * x * x)),
        (tf.constant(0), found),
        maximum_iterations=most,
    )[1]


@pytest.mark.parametrize(
    "options", [{}, {"infer_shape": False}, {"element_shape": []}], ids=str
)
def test_a_loop_writes_one_eagerly_and_in_a_program(options):
    x = tf.constant(2.0)
    compiled = tf.function(lambda x, n: fill(x, n, **options).stack())
    assert fill(x, **options).stack().numpy().tolist() == [0.0, 4.0, 8.0, 12.0]
    assert compiled(x, tf.constant(4)).numpy().tolist() == [0.0, 4.0, 8.0, 12.0]
    assert compiled(x, tf.constant(3)).numpy().tolist() == [0.0, 4.0, 8.0, 0.0]


def test_a_program_reads_and_writes_at_positions_that_it_computes():
    @tf.function
    def read(x, i):
        found = tf.TensorArray(tf.float32, size=3).unstack(x)
        later = found.scatter([i, 0], [10.0, 20.0])
        assert tf.zeros(later.size()).shape == (3,)
        taken = later.read(i), later.gather([i, 0]), later.stack()
        return *taken, found.stack(), found.write(i, 5.0).stack()

    x = tf.constant([1.0, 2.0, 3.0])
    told = [np.asarray(a).tolist() for a in read(x, tf.constant(2))]
    assert told == [10, [10, 20], [20, 2, 10], [1, 2, 3], [1, 2, 5]]
    # A position that is not there, also a negative one, is left out.
    for i in (7, -1):
        told = [np.asarray(a).tolist() for a in read(x, tf.constant(i))]
        assert told == [0, [0, 20], [20, 2, 3], [1, 2, 3], [1, 2, 3]]


def test_loops_in_loops_and_branches_give_them_on():
    @tf.function
    def step(x):
        def row(i, rows):
            row = tf.TensorArray(tf.float32, size=3)
            _, row = tf.while_loop(
                lambda j, _: j < 3,
                lambda j, r: (j + 1, r.write(j, x * tf.cast(i * j, tf.float32))),
                (0, row),
            )
            return i + 1, rows.write(i, row.stack())

        start = (0, tf.TensorArray(tf.float32, size=2))
        _, rows = tf.while_loop(lambda i, _: i < 2, row, start)
        one = rows.write(0, [9.0, 9.0, 9.0])
        return rows.concat(), tf.cond(x > 0, lambda: one, lambda: rows).read(0)

    flat, first = step(tf.constant(2.0))
    assert flat.numpy().tolist() == [0, 0, 0, 0, 2, 4]
    assert first.numpy().tolist() == [9, 9, 9]


def test_it_grows_at_known_positions_in_a_program():
    @tf.function
    def step(x):
        found = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        for i in range(3):
            found = found.write(i, x * i)
        return found

    assert step(tf.constant(2.0)).stack().numpy().tolist() == [0.0, 2.0, 4.0]


def test_gradients_go_through_it_in_replicas_too():
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(fill(x, most=4).stack())
        return tape.gradient(y, x)

    x = tf.constant(2.0)
    assert float(gradient(x)) == float(tf.function(gradient)(x)) == 24.0
    assert float(jax.grad(lambda x: fill(x, most=4).stack().sum())(x)) == 24.0
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    @tf.function
    def step():
        def replica():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            return gradient(tf.cast(number, tf.float32) + 1.0)

        return strategy.run(replica)

    found = strategy.experimental_local_results(step())
    assert [float(x) for x in found] == [12.0, 24.0]


def test_one_that_grows_at_computed_positions_has_a_function_run_on_the_host():
    grown = tf.function(lambda x, n: fill(x, n, size=0, dynamic_size=True).stack())
    x = tf.constant(2.0)
    assert grown(x, tf.constant(3)).tolist() == fill(x, 3).stack().tolist()[:3]
    with pytest.raises(ValueError, match="Give it size="):
        jax.jit(lambda x, n: fill(x, n, size=0, dynamic_size=True).stack())(x, 3)
    with pytest.raises(ValueError, match="TensorArray grows"):
        grown.get_concrete_function(x, tf.constant(3))


def test_functions_of_datasets_have_their_entries_on_the_host():
    @tf.function
    def positive(row):
        found, count = tf.TensorArray(tf.int64, 0, dynamic_size=True), 0
        for x in row:
            if x > 0:
                found, count = found.write(count, x), count + 1
        return found.stack(), found.size()

    rows = np.array([[3, -1, 2**40], [5, 6, 7]])
    dataset = tf.data.Dataset.from_tensor_slices(rows).map(positive)
    found = [(x.tolist(), int(n)) for x, n in dataset.as_numpy_iterator()]
    assert found == [([3, 2**40], 2), ([5, 6, 7], 3)]


def test_what_a_program_cannot_do_is_told():
    x, three = tf.constant(2.0), tf.constant(3)
    loop = tf.while_loop

    def grow(x):
        found = tf.TensorArray(tf.float32, size=1, dynamic_size=True)
        return loop(lambda i, _: i < 4, lambda i, a: (i + 1, a.write(3, x)), (0, found))

    def cut(n):
        return tf.TensorArray(tf.int32, 1).split([1], [n])

    for told, program, given in [
        ("largest size as a number", lambda n: tf.TensorArray(tf.int32, n), three),
        ("enters its body with shape", grow, x),
        ("lengths .* must be known", cut, three),
    ]:
        with pytest.raises(ValueError, match=told):
            tf.function(program)(given)
    with pytest.raises(ValueError, match="no handle"):
        tf.TensorArray(tf.int32, 1, handle=3)
    with pytest.raises(TypeError, match="one whole number"):
        tf.TensorArray(tf.int32, 1).write(0.5, 1)
    with pytest.raises(TypeError, match=r"TensorArray\(not written\)"):
        tf.function(
            lambda x: tf.cond(
                x > 0,
                lambda: tf.TensorArray(tf.float32, 3).write(0, x),
                lambda: tf.TensorArray(tf.float32, 3),
            ).stack()
        )(x)
