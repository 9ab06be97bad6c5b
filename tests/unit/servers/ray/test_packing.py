"""Messages whose large arrays travel side by side in shared memory."""

import ml_dtypes
import numpy as np
import pytest

from unisono._src.servers.messages import Operation
from unisono._src.servers.ray import packing

LARGE = np.arange(10_000, dtype=np.float32).reshape(100, 100)


@pytest.mark.parametrize(
    "message",
    [
        ("run", [LARGE, 3, "x", b"y", None]),
        {"a": (LARGE, LARGE[::2].T), "b": [np.ones(3)]},
        [Operation("assign_add", ("k",), (LARGE,))],
        (LARGE.astype(ml_dtypes.bfloat16), LARGE > 5, LARGE.astype(np.complex128)),
    ],
)
def test_a_message_comes_out_of_its_pack_as_it_went_in(message):
    memory = np.zeros(packing.measure(message), np.uint8)
    packed = packing.pack(message, memory)
    found = packing.unpack(packed, memory)
    memory[:] = 255  # What was unpacked belongs to the receiver.
    assert repr(_described(found)) == repr(_described(message))


def test_only_large_arrays_leave_the_message():
    message = [np.ones(4), LARGE]
    memory = np.zeros(packing.measure(message), np.uint8)
    small, large = packing.pack(message, memory)
    assert small is message[0]
    assert isinstance(large, packing.PackedArray)


@pytest.mark.parametrize(
    "message",
    [
        [np.ones(4), 7, "text"],
        [np.array([object()] * 10_000)],
        [np.zeros(packing.LARGEST + 1, np.uint8)],
    ],
    ids=["small", "objects", "too large"],
)
def test_a_message_without_use_for_a_pack_has_none(message):
    assert packing.measure(message) == 0


def _described(tree):
    if isinstance(tree, np.ndarray):
        return tree.dtype, tree.shape, tree.tobytes()
    if isinstance(tree, dict):
        return {k: _described(v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree), [_described(v) for v in tree]
    return tree
