import zlib

import hypothesis
import hypothesis.strategies as st

from tests.random_programs import tries
from unisono._src.saving.format import checksummed_files, crc32


@tries(50)
@hypothesis.given(first=st.binary(max_size=300), second=st.binary(max_size=300))
def test_the_checksum_of_two_parts_is_that_of_their_bytes(first, second):
    found = crc32.combine(zlib.crc32(first), zlib.crc32(second), len(second))
    assert found == zlib.crc32(first + second)


def test_ranges_of_a_file_are_put_together(tmp_path, monkeypatch):
    monkeypatch.setattr(checksummed_files, "_RANGE_BYTES", 1000)
    data = bytes(i * i % 251 for i in range(12345))
    for size in (0, 1, 999, 1000, 1001, 12345):
        path = tmp_path / str(size)
        path.write_bytes(data[:size])
        found = checksummed_files.checksum(path)
        assert (found.size, found.crc32) == (size, zlib.crc32(data[:size]))
