"""Reads gigabytes of TFRecords through a distributed dataset and prints the memory.

usage: python benchmarks/records.py [gigabytes] [replicas]

The files are written to a temporary folder first and removed at the end.
"""

from __future__ import annotations

import hashlib
import pathlib
import resource
import sys
import tempfile
import time

import numpy as np

import unisono as uni

RECORD, FILES, BATCH = 16_384, 8, 128


def write(folder: pathlib.Path, gigabytes: float) -> list[str]:
    """Writes files of records, each of which begins with its number."""
    count = int(gigabytes * 2**30 / RECORD)
    body = hashlib.shake_256(b"unisono").digest(RECORD - 8)
    paths = [str(folder / f"part-{i}.tfrecord") for i in range(FILES)]
    for i, path in enumerate(paths):
        with uni.io.TFRecordWriter(path) as writer:
            for number in range(i, count, FILES):
                writer.write(number.to_bytes(8, "little") + body)
    return paths


def parse(record: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Returns the number of a record and the rest of it."""
    number = np.frombuffer(record, "<i8", 1)[0].astype("i4")
    return number, np.frombuffer(record, np.uint8, offset=8)


def peak() -> int:
    """Returns the peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    """Writes and reads, checks that every record came once, and prints the figures."""
    gigabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    replicas = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    strategy = uni.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        paths = write(pathlib.Path(folder), gigabytes)
        print(f"wrote {gigabytes} GB in {time.perf_counter() - begin:.0f} s")
        dataset = uni.data.TFRecordDataset(paths).map(parse).shuffle(1000).batch(BATCH)
        distributed = strategy.experimental_distribute_dataset(dataset)
        print(distributed.describe())
        seen = np.zeros(int(gigabytes * 2**30 / RECORD), np.int8)
        marks = []
        begin = time.perf_counter()
        for step, (numbers, _) in enumerate(distributed):
            for part in strategy.experimental_local_results(numbers):
                seen[np.asarray(part)] += 1
            if step % (len(seen) // BATCH // 5) == 0:
                marks.append(peak())
        seconds = time.perf_counter() - begin
    assert (seen == 1).all()
    print(
        f"{len(seen):,} records, each once, {gigabytes * 1024 / seconds:.0f} MiB/s, "
        f"peak memory after each fifth {marks} MiB"
    )


if __name__ == "__main__":
    main()
