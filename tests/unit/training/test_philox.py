"""The numbers are TensorFlow's; those below were recorded from TensorFlow 2.21."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unisono._src.training import philox


def state(low, high=0, key=0):
    return jnp.asarray(np.array([low, high, key], np.int64).view(np.uint32))


# The method, the state, the type, and what TensorFlow drew.
NARROW = [
    (
        philox.normal,
        state(1234),
        jnp.float32,
        [0.9356609, 1.0854305, -0.93788373, -0.5061547, 1.3169702, 0.7137579],
    ),
    (
        philox.normal,
        state(-1, 4, 3),
        jnp.float32,
        [0.039156194776296616, -0.3104718029499054, 1.5903117656707764],
    ),
    (
        philox.uniform,
        state(2770),
        jnp.float32,
        [0.6512613296508789, 0.9295905828475952, 0.508733868598938],
    ),
    (
        philox.truncated_normal,
        state(10706),
        jnp.float32,
        [
            0.6351404190063477,
            -0.012796471826732159,
            1.0350242853164673,
            -0.16259600222110748,
            0.6266007423400879,
            1.0949817895889282,
            1.4330809116363525,
            0.5071642398834229,
            0.34740859270095825,
        ],
    ),
    (philox.uniform, state(14546), jnp.float16, [0.306640625, 0.24609375, 0.5546875]),
    (philox.normal, state(15314), jnp.float16, [-1.62597656, -0.2121582, 1.25488281]),
    (philox.uniform, state(16082), jnp.bfloat16, [0.046875, 0.65625, 0.65625]),
    (
        philox.full_integers,
        state(6866),
        jnp.uint32,
        [514049072, 3009846237, 2711446664, 4076007140, 3835317107],
    ),
    (
        philox.full_integers,
        state(8146),
        jnp.int32,
        [-1386145471, -713319265, -48125803, 1395914773, -1924633839],
    ),
]
WIDE = [
    (
        philox.full_integers,
        state(6098),
        np.uint64,
        [5796473010014489708, 10285904292558191736, 17934672218104562193],
    ),
    (
        philox.uniform,
        state(13010),
        np.float64,
        [0.745961606389901, 0.4968994970066698, 0.7594666003218915],
    ),
    (
        philox.normal,
        state(13778),
        np.float64,
        [0.2720180796120398, -0.38593681931938556, -2.3969619333681673],
    ),
    (
        philox.truncated_normal,
        state(20434),
        np.float64,
        [-0.7790903002209245, 0.4713712856200454, -1.1270738705784706],
    ),
]


def compare(draw, given, kind, expected):
    found = np.asarray(draw(given, (len(expected),), kind))
    assert found.dtype == kind
    if found.dtype.kind in "iu":
        assert found.tolist() == expected
    else:
        # TensorFlow's sine and logarithm differ from XLA's in the last digits.
        close = {2: 2e-3, 4: 2e-6, 8: 1e-14}[found.dtype.itemsize]
        np.testing.assert_allclose(found.astype(float), expected, close, close)


@pytest.mark.parametrize("case", NARROW)
def test_numbers_are_tensorflow_s(case):
    compare(*case)


@pytest.mark.parametrize("case", WIDE)
def test_numbers_of_64_bits_are_tensorflow_s(case):
    with jax.enable_x64(True):
        compare(*case)


def test_integers_in_a_range_are_tensorflow_s():
    found = philox.integers(state(4050), (5,), jnp.int32, 0, 10)
    assert found.tolist() == [6, 1, 9, 7, 8]
    with jax.enable_x64(True):
        found = philox.integers(state(5330), (3,), jnp.int64, -5, 1000)
        assert found.tolist() == [283, 889, 192]


@pytest.mark.parametrize(
    ("before", "count", "after"),
    [
        ((1234, 0, 0), 6, (2770, 0, 0)),
        ((-1, 4, 3), 3, (767, 5, 3)),
        ((-1, -1, 9), 1, (255, 0, 9)),
        ((0xFFFFFFFF, 0, 0), 1, (0xFFFFFFFF + 256, 0, 0)),
        ((0, 0, 0), 1 << 30, (1 << 38, 0, 0)),
    ],
)
def test_the_counter_carries_over_its_words(before, count, after):
    moved = np.asarray(philox.advance(state(*before), count))
    assert moved.view(np.int64).tolist() == list(after)


def test_truncated_normals_are_within_their_bound_and_normal():
    found = np.asarray(philox.truncated_normal(state(5), (20000,), jnp.float32))
    assert np.abs(found).max() < 2
    assert abs(found.mean()) < 0.02
    # The deviation of a normal that is cut at two deviations.
    assert abs(found.std() - 0.8796) < 0.02
