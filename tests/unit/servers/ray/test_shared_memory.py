"""Memory that two processes see."""

import os
import subprocess
import sys

import pytest

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
