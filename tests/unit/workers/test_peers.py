"""Whom a worker blames, by the records of the others."""

import zlib

import unisono
from unisono._src.workers import peers, worker_records


def judge(worker, labels):
    """Returns the error that a worker finds if each has this label in step 1."""
    records = []
    for other, label in enumerate(labels):
        r = worker_records.WorkerRecord(other, 0.0)
        r.step, r.recent = 1, [(1, zlib.crc32(label.encode()))]
        r.label = worker_records.shorten(label)
        records.append(r)
    mine = records.pop(worker)
    own = labels[mine.worker]
    steps = {1: (zlib.crc32(own.encode()), own)}
    point = peers.FailureDetector(worker, 1, steps.get, 30.0, 3.5)
    return point.judge(records, 0.0, 30.0)


def test_workers_that_agree_find_no_error():
    assert [judge(w, ["a", "a", "a"]) for w in range(3)] == [None] * 3


def test_all_of_three_name_the_one_that_differs():
    for odd in range(3):
        labels = ["b" if w == odd else "a" for w in range(3)]
        found = [judge(w, labels) for w in range(3)]
        assert all(isinstance(e, unisono.errors.WorkerMismatchError) for e in found)
        assert [e.worker for e in found] == [odd] * 3


def test_of_two_that_differ_each_names_the_other():
    assert [judge(w, ["a", "b"]).worker for w in range(2)] == [1, 0]
