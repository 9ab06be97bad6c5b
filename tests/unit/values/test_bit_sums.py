"""A checksum changes with every bit, whatever the type."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unisono._src.values import bit_sums

TYPES = (
    "float32", "bfloat16", "float16", "int32", "uint32", "int16", "uint8", "int8",
    "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
total = jax.jit(bit_sums.sum_bits)


@pytest.mark.parametrize("kind", TYPES)
def test_every_flipped_bit_changes_the_checksum(kind):
    value = np.asarray(jnp.arange(6).reshape(2, 3).astype(kind))
    found = {int(total(jnp.asarray(value)))}
    for at in range(value.nbytes * 8):
        other = value.copy()
        other.reshape(-1).view(np.uint8)[at // 8] ^= np.uint8(1 << at % 8)
        found.add(int(total(jnp.asarray(other))))
    assert len(found) == 1 + value.nbytes * 8


def test_every_flipped_truth_value_changes_the_checksum():
    sums = {int(total(jnp.arange(9) == at)) for at in range(10)}
    assert len(sums) == 10


@pytest.mark.parametrize("kind", ["int4", "uint4", "float4_e2m1fn", "int2"])
def test_numbers_of_less_than_a_byte_have_checksums(kind):
    a, b = jnp.asarray([0, 1, 1], kind), jnp.asarray([1, 0, 1], kind)
    assert int(total(a)) == int(total(a + 0)) != int(total(b))


def test_complex_numbers_and_numbers_of_64_bits_have_checksums():
    with jax.enable_x64(True):
        values = [jnp.asarray([1.0, 2.0], k) for k in ("float64", "complex64")]
        values += [jnp.asarray([1, 1 << 40], "int64"), jnp.asarray([1, 1], "int64")]
        sums = [int(total(x)) for x in values]
        assert len(set(sums)) == 4
        assert int(total(jnp.conj(values[1] + 1j))) != int(total(values[1] + 1j))


def test_keys_of_random_numbers_have_checksums():
    a, b = jax.random.key(1), jax.random.key(2)
    assert int(total(a)) == int(total(jax.random.key(1))) != int(total(b))


def test_many_changed_signs_do_not_cancel():
    x = jnp.arange(1.0, 65.0)
    assert int(total(x)) != int(total(-x))


def test_zeros_of_both_signs_and_exchanged_elements_differ():
    sums = {int(total(jnp.float32(x))) for x in ([0, 1], [-0.0, 1], [1, 0], [0, 0])}
    assert len(sums) == 4


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_arrays_of_one_element_or_none_have_a_checksum(shape):
    assert total(jnp.ones(shape)).shape == ()


@pytest.mark.needs_devices(3)
def test_each_device_has_a_checksum_of_its_own_copy():
    devices = jax.devices()[:3]
    mesh = jax.sharding.Mesh(np.array(devices), ("x",))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    pieces = [jax.device_put(jnp.float32([1, 2 + (i == 1)]), d)
              for i, d in enumerate(devices)]  # fmt: skip
    uneven = jax.make_array_from_single_device_arrays((2,), whole, pieces)
    even = jax.device_put(jnp.arange(300.0), whole)
    key = jax.device_put(jax.random.key(0), whole)
    (found,) = bit_sums.sum_copies([uneven, even, key], devices)
    numbers = np.asarray(found)
    assert numbers.shape == (3, 3)
    assert numbers[0, 0] == numbers[2, 0] != numbers[1, 0]
    assert (numbers[:, 1:] == numbers[0, 1:]).all()
    assert int(numbers[0, 1]) == int(total(jnp.arange(300.0)))


def test_more_arrays_than_one_program_takes_come_in_parts():
    arrays = [jnp.float32(i) for i in range(300)]
    found = bit_sums.sum_copies(arrays, jax.devices()[:1])
    assert [x.shape for x in found] == [(1, 256), (1, 44)]


@pytest.mark.parametrize("shape", [(64,), (7, 10), (16, 2, 2), (2, 40), (3, 1, 5)])
def test_an_array_in_blocks_has_the_checksum_of_the_whole(shape, monkeypatch):
    x = jnp.arange(np.prod(shape), dtype=jnp.float32).reshape(shape)
    whole = int(bit_sums.sum_bits(x))
    monkeypatch.setattr(bit_sums, "_BLOCK", 12)
    assert int(bit_sums.sum_bits(x)) == whole


def test_large_arrays_have_programs_of_their_own():
    small, large = jnp.zeros(3), jnp.zeros(bit_sums.LARGE)
    found = bit_sums.sum_copies([small, small, large, large, small], jax.devices()[:1])
    assert [x.shape for x in found] == [(1, 2), (1, 1), (1, 1), (1, 1)]
