"""Generators: TensorFlow's numbers, a stream for each replica, state that is saved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import mirrored
from tests.threads import at_once, repeated
from unisono._src.training import random_generator

Generator = tf.random.Generator
D = tf.distribute


def as_int64(generator):
    copies = D.get_strategy().experimental_local_results(generator.state)
    return copies[0].numpy().view(np.int64).tolist()


def drawn(strategy, fn):
    found = strategy.experimental_local_results(strategy.run(fn))
    return [np.asarray(x).tolist() for x in found]


# What TensorFlow 2.21 draws on two replicas with the seed 1.
NORMALS = [
    [-0.8793044686317444, 1.468078851699829, 0.5950567722320557],
    [0.020661573857069016, 1.9473345279693604, -1.693806767463684],
]


def test_a_seed_gives_tensorflow_s_numbers():
    g = Generator.from_seed(1234)
    expected = [[0.9356609, 1.0854305, -0.93788373], [-0.5061547, 1.3169702, 0.7137579]]
    np.testing.assert_allclose(g.normal((2, 3)), expected, rtol=2e-6)
    assert as_int64(g) == [2770, 0, 0]
    assert g.uniform([5])[1] == np.float32(0.9295905828475952)
    assert g.uniform([5], 0, 10, tf.int32).tolist() == [6, 1, 9, 7, 8]


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        ((1 << 70) + 5, [0.6388099789619446, -1.2359929084777832]),
        ([5, 6], [0.29211440682411194, 0.9346778392791748]),
        ([1, 2, 3, 4], [-0.2601637542247772, -1.2205220460891724]),
    ],
)
def test_seeds_of_any_size_are_tensorflow_s(seed, expected):
    g = Generator.from_seed(seed)
    np.testing.assert_allclose(g.normal([2]), expected, rtol=2e-6)


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["mirrored", "tpu", "central"])
def test_replicas_have_streams_of_their_own_and_they_are_tensorflow_s(kind, compiled):
    strategy = {
        "mirrored": lambda: mirrored(2),
        "tpu": lambda: D.TPUStrategy(),
        "central": lambda: D.CentralStorageStrategy(["CPU:0", "CPU:1"]),
    }[kind]()
    with strategy.scope():
        g = Generator.from_seed(1)

    def fn():
        return g.normal([3])

    first = drawn(strategy, tf.function(fn) if compiled else fn)
    np.testing.assert_allclose(first[:2], NORMALS, rtol=2e-6)
    assert as_int64(g) == [769, 0, 0]


def test_a_compiled_step_goes_on_where_the_last_one_ended():
    strategy = mirrored(2)
    with strategy.scope():
        g = Generator.from_seed(1)
    strategy.run(lambda: g.normal([3]))
    fn = tf.function(lambda: g.uniform([3], 0, 100, tf.int32))
    assert drawn(strategy, fn) == [[11, 12, 40], [50, 38, 7]]
    assert drawn(strategy, fn) != [[11, 12, 40], [50, 38, 7]]
    assert as_int64(g) == [2305, 0, 0]


def test_across_replicas_all_copies_move_on_and_the_key_is_the_generator_s():
    strategy = mirrored(2)
    with strategy.scope():
        g = Generator.from_seed(1)
        g.skip(6)
        inside = g.normal([3])
    np.testing.assert_allclose(inside, [-0.4495664, 1.6220769, -1.3694807], rtol=2e-6)
    outside = g.normal([3])
    np.testing.assert_allclose(
        outside, [-0.08948538, -0.18445471, 0.14822665], rtol=2e-6
    )
    states = [x.numpy().view(np.int64).tolist() for x in g.state.values]
    assert states == [[3073, 0, 0]] * 2


def test_replicas_share_a_generator_that_was_made_outside():
    strategy, g = mirrored(2), Generator.from_seed(1)
    expected = [
        [0.4384227395057678, -0.5343984365463257],
        [1.6307176351547241, 0.007847783155739307],
    ]
    found = drawn(strategy, lambda: g.normal([2]))
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)
    assert as_int64(g) == [1025, 0, 0]


def test_one_device_draws_as_its_first_replica():
    strategy = D.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        g = Generator.from_seed(1)
    np.testing.assert_allclose(
        strategy.run(lambda: g.normal([2])), NORMALS[0][:2], rtol=2e-6
    )


def test_replicas_may_draw_different_amounts():
    strategy = mirrored(2)
    with strategy.scope():
        g = Generator.from_seed(1)

    def fn():
        if D.get_replica_context().replica_id_in_sync_group == 1:
            g.normal([])
        return g.uniform([])

    strategy.run(fn)
    states = [x.numpy().view(np.int64)[0] for x in g.state.values]
    assert states == [257, 513]


def test_split_generators_are_tensorflow_s():
    g = Generator.from_seed(1234)
    g.reset([17618, 0, 0])
    keys = [s.key.numpy() for s in g.split(2)]
    assert keys == [-1176847479923400678, 728725364681722623]
    assert as_int64(g) == [18130, 0, 0]


def test_seeds_are_tensorflow_s():
    g = Generator.from_seed(16850)
    seeds = np.asarray(g.make_seeds(3))
    whole = np.ascontiguousarray(seeds.T).view(np.int64)[:, 0]
    expected = [-5999396764614389117, 4438265394999115972, -9064191144119738769]
    assert whole.tolist() == expected
    with jax.enable_x64(True):
        g = Generator.from_seed(16850)
        assert g.make_seeds(3).tolist() == [expected, [0, 0, 0]]


def test_the_state_can_be_set():
    strategy = mirrored(2)
    with strategy.scope():
        g = Generator.from_seed(1)
    g.reset_from_seed(3)
    assert as_int64(g) == [3, 0, 0]
    g.reset([1, 2, -3])
    assert (as_int64(g), g.key.numpy()) == ([1, 2, -3], -3)
    g.reset_from_key_counter(7, [8, 9])
    assert as_int64(g) == [8, 9, 7]
    assert as_int64(Generator(copy_from=g)) == [8, 9, 7]
    g.reset(Generator.from_seed(4).state)
    assert as_int64(g) == [4, 0, 0]
    assert g.algorithm == 1
    shared = Generator.from_state(g.state, "philox")
    assert shared.state is g.state


def test_with_64_bit_types_the_state_is_tensorflow_s():
    with jax.enable_x64(True):
        g = Generator.from_seed([5, 6])
        assert g.state.numpy().tolist() == [0, 5, 6]
        assert g.state.dtype == np.int64
        assert g.skip(3).tolist() == [0, 5, 6]
        assert g.state.numpy().tolist() == [768, 5, 6]
        assert g.key.numpy() == 6
        assert g.uniform_full_int([2]).dtype == np.uint64


def test_a_checkpoint_keeps_the_streams_on_another_number_of_replicas(tmp_path):
    two, four = mirrored(2), mirrored(4)
    with two.scope():
        g = Generator.from_seed(1)
    two.run(lambda: g.normal([5]))
    path = tf.train.Checkpoint(g=g).save(str(tmp_path / "c"))
    expected = drawn(two, lambda: g.normal([3]))
    with four.scope():
        other = Generator.from_seed(99)
    tf.train.Checkpoint(g=other).restore(path).assert_consumed()
    assert drawn(four, lambda: other.normal([3]))[:2] == expected


def test_ranges_and_distributions():
    g = Generator.from_seed(2)
    x = np.asarray(g.uniform([1000], -2.0, 4.0))
    assert -2 <= x.min() < x.max() < 4
    n = np.asarray(g.normal([20000], mean=3.0, stddev=0.5))
    assert (round(n.mean(), 1), round(n.std(), 1)) == (3.0, 0.5)
    t = np.asarray(g.truncated_normal([1000], mean=1.0, stddev=2.0))
    assert -3 < t.min() < t.max() < 5
    full = g.uniform([4], None, None, tf.int32)
    assert full.dtype == jnp.int32
    assert g.uniform_full_int([4]).dtype == jnp.uint32
    assert g.normal([]).shape == ()
    assert g.normal([0, 3]).shape == (0, 3)


def test_the_global_generator_is_one_for_all():
    before = tf.random.get_global_generator()
    try:
        assert tf.random.experimental.get_global_generator() is before
        tf.random.set_global_generator(Generator.from_seed(1234))
        found = tf.function(lambda: tf.random.get_global_generator().normal([2]))()
        np.testing.assert_allclose(found, [0.9356609, 1.0854305], rtol=2e-6)
        with pytest.raises(TypeError, match=r"Expected a unisono\.random\.Generator"):
            tf.random.set_global_generator(3)
    finally:
        tf.random.set_global_generator(before)


@pytest.mark.parametrize(
    ("kind", "words", "make"),
    [
        (ValueError, "unsupported value foo", lambda: Generator.from_seed(1, "foo")),
        (ValueError, "Shapes", lambda: Generator(state=[1, 2], alg="philox")),
        (ValueError, "Shapes", lambda: Generator.from_seed(1).reset([1, 2])),
        (
            ValueError,
            "Shapes",
            lambda: Generator.from_key_counter(1, [1], "philox"),
        ),
        (AssertionError, "from_seed", Generator),
        (NotImplementedError, "philox", lambda: Generator.from_seed(1, "threefry")),
        (
            ValueError,
            "both non-`None`",
            lambda: Generator.from_seed(1).uniform([2], 0, dtype=tf.int32),
        ),
        (
            tf.errors.InvalidArgumentError,
            "minval < maxval",
            lambda: Generator.from_seed(1).uniform([2], 3, 3, tf.int32),
        ),
        (
            TypeError,
            "type of floats",
            lambda: Generator.from_seed(1).normal([2], dtype=tf.int32),
        ),
        (
            TypeError,
            "of 32 or 64 bits",
            lambda: Generator.from_seed(1).uniform([2], 0, 3, tf.int8),
        ),
    ],
)
def test_wrong_arguments_are_refused(kind, words, make):
    with pytest.raises(kind, match=words):
        make()


def test_the_global_generator_can_be_made_inside_a_function(monkeypatch):
    monkeypatch.setattr(random_generator, "_global", [])
    draw = tf.function(lambda: tf.random.get_global_generator().uniform([3]))
    first, second = draw(), draw()
    assert first.tolist() != second.tolist()


def test_threads_draw_different_numbers():
    generator, seen = Generator.from_seed(1), []
    draw = repeated(lambda: seen.append(float(generator.uniform([]))), 40)
    step = tf.function(lambda: generator.uniform([]))
    step()
    at_once(draw, draw, repeated(lambda: seen.append(float(step())), 40))
    assert len(set(seen)) == 120


@pytest.mark.needs_devices(2)
def test_threads_draw_different_numbers_in_and_outside_replicas():
    seen = []
    with mirrored(2).scope():
        generator = Generator.from_seed(1)

    def draw():
        seen.extend(map(float, drawn(mirrored(2), lambda: generator.uniform([]))))
        seen.append(float(generator.uniform([])))

    at_once(*[repeated(draw, 5)] * 2)
    assert len(set(seen)) == 30


def test_threads_share_the_generator_of_the_process(monkeypatch):
    monkeypatch.setattr(random_generator, "_global", [])
    seen = []
    at_once(*[lambda: seen.append(tf.random.get_global_generator())] * 3)
    assert len(set(map(id, seen))) == 1


def test_seeds_that_a_function_of_a_dataset_makes_are_tensorflows():
    generator = tf.random.Generator.from_seed(123, alg="philox")
    dataset = tf.data.Dataset.range(2).map(lambda x: generator.make_seeds(1)[:, 0])
    seeds = [[5919633356954535739, 0], [95213998067280893, 0]]
    assert [x.tolist() for x in dataset] == seeds
