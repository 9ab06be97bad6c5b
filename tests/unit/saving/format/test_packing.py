"""Small arrays are stored together, and come back as they were."""

import time

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

import unisono as uni
from unisono._src.saving.format import comparison, manifest, packing
from unisono.train import Checkpoint

COUNT = 10_000


def test_ten_thousand_small_variables_are_saved_and_restored_in_time(tmp_path):
    values = np.arange(COUNT, dtype=np.float32)
    variables = [uni.Variable(n) for n in values]
    checkpoint = Checkpoint(variables=variables)
    began = time.process_time()
    path = checkpoint.save(tmp_path / "c")
    saved = time.process_time() - began
    for v in variables[::100]:
        v.assign(-1.0)
    began = time.process_time()
    checkpoint.restore(path).assert_consumed()
    restored = time.process_time() - began
    np.testing.assert_array_equal([v.numpy() for v in variables], values)
    # The time of the processor, since the machine may be busy.
    assert saved < 5, f"expected at most 5 s, received {saved:.1f} s for the save"
    assert restored < 5, f"expected at most 5 s, received {restored:.1f} s"
    found = manifest.read(tmp_path / "c-1")
    assert len({e.file for e in found.entries.values()}) == 1


def various():
    return {
        "large": jnp.arange(40_000.0),
        "empty": np.zeros((0, 3), np.float32),
        "flags": np.array([True, False, True]),
        "half": jnp.ones((3, 5), jnp.bfloat16),
        "small": np.arange(5, dtype=ml_dtypes.int4),
        "complex": np.array(1 + 2j, np.complex64),
        "numbers": np.arange(6, dtype=np.int16)[::2],
        "table": np.asfortranarray(np.arange(6.0, dtype=np.float32).reshape(2, 3)),
        "key": jax.random.key(3),
    }


def test_arrays_of_all_types_come_back_from_a_pack(tmp_path):
    path = Checkpoint(d=various()).write(tmp_path / "c")
    fresh = Checkpoint(d={})
    fresh.read(path)
    assert set(fresh.d) == set(various())
    for name, want in various().items():
        got = fresh.d[name]
        if name == "key":
            want, got = jax.random.key_data(want), jax.random.key_data(got)
        assert got.dtype == want.dtype, name
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want), name)
    entries = manifest.read(tmp_path / "c").entries
    assert entries["d/large/.ATTRIBUTES/ARRAY_VALUE"].at is None
    assert entries["d/table/.ATTRIBUTES/ARRAY_VALUE"].at is not None


def test_a_pack_that_is_large_is_followed_by_another(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "_PACK_BYTES", 100)
    arrays = {f"x{i}": np.full(10, i) for i in range(9)}
    path = Checkpoint(d=arrays).write(tmp_path / "c")
    assert len({e.file for e in manifest.read(tmp_path / "c").entries.values()}) > 2
    fresh = Checkpoint(d={})
    fresh.read(path)
    assert all((fresh.d[k] == v).all() for k, v in arrays.items())


def test_checkpoints_are_compared_value_by_value_in_packs(tmp_path):
    values = {"a": np.arange(3), "b": np.zeros(2), "c": np.ones(4)}
    Checkpoint(d=values).write(tmp_path / "one")
    Checkpoint(d={**values, "b": np.array([0.0, 1.0])}).write(tmp_path / "two")
    (change,) = comparison.compare(tmp_path / "one", tmp_path / "two")
    assert change.key.startswith("d/b/")
    assert change.detail == "1 of 2 elements differ"
