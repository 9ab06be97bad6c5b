"""Memory that two processes see."""

import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from unisono._src.servers.messages import Operation
from unisono._src.servers.ray import shared_memory

pytestmark = pytest.mark.skipif(
    not shared_memory.find_machine(), reason="shares memory on Linux only"
)

# Another process writes to a segment by its path alone; it needs no package for that.
WRITER = """
import mmap, os, sys
descriptor = os.open(f"/proc/{sys.argv[1]}/fd/{sys.argv[2]}", os.O_RDWR)
mmap.mmap(descriptor, int(sys.argv[3]))[:5] = b"hello"
"""


def test_another_process_writes_where_this_one_reads():
    segment = shared_memory.Segment()
    segment.reserve(100)
    assert segment.place is not None
    pid, descriptor, _, size = segment.place
    given = [str(x) for x in (pid, descriptor, size)]
    subprocess.run([sys.executable, "-I", "-S", "-c", WRITER, *given], check=True)
    assert segment.memory[:5].tobytes() == b"hello"


def test_a_mapping_shows_the_bytes_of_a_segment_and_follows_its_growth():
    segment, mappings = shared_memory.Segment(), shared_memory.Mappings()
    for size in (10, 200_000):
        segment.reserve(size)
        segment.memory[size - 1] = 7
        assert segment.place is not None
        assert mappings[segment.place][size - 1] == 7


def test_a_segment_that_is_large_enough_stays_where_it_is():
    segment = shared_memory.Segment()
    segment.reserve(1000)
    place = segment.place
    segment.reserve(10)
    assert segment.place == place


def test_a_segment_that_is_gone_cannot_be_opened():
    segment = shared_memory.Segment()
    segment.reserve(10)
    place = segment.place
    descriptors = len(os.listdir("/proc/self/fd"))
    segment.release()
    assert len(os.listdir("/proc/self/fd")) < descriptors
    with pytest.raises(OSError):
        shared_memory.Mappings()[place._replace(descriptor=9999)]


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
    memory = np.zeros(shared_memory.measure(message), np.uint8)
    packed = shared_memory.pack(message, memory)
    found = shared_memory.unpack(packed, memory)
    memory[:] = 255  # What was unpacked belongs to the receiver.
    assert repr(_described(found)) == repr(_described(message))


def test_only_large_arrays_leave_the_message():
    message = [np.ones(4), LARGE]
    memory = np.zeros(shared_memory.measure(message), np.uint8)
    small, large = shared_memory.pack(message, memory)
    assert small is message[0]
    assert isinstance(large, shared_memory.PackedArray)


@pytest.mark.parametrize(
    "message",
    [
        [np.ones(4), 7, "text"],
        [np.array([object()] * 10_000)],
        [np.zeros(shared_memory.LARGEST + 1, np.uint8)],
    ],
    ids=["small", "objects", "too large"],
)
def test_a_message_without_use_for_a_pack_has_none(message):
    assert shared_memory.measure(message) == 0


def _described(tree):
    if isinstance(tree, np.ndarray):
        return tree.dtype, tree.shape, tree.tobytes()
    if isinstance(tree, dict):
        return {k: _described(v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree), [_described(v) for v in tree]
    return tree
