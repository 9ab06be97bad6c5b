"""Lines stay lines, and the traceback that ends a worker is found."""

import os

import hypothesis
from hypothesis import strategies as st

from unisono._src.cli.launch import worker_process
from unisono._src.cluster import launcher_pipes

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=20)


@hypothesis.given(st.lists(TEXT), st.data())
def test_lines_do_not_depend_on_how_they_are_cut(lines, data):
    whole = "".join(f"{line}\n" for line in lines).encode()
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=5).map(sorted))
    splitter, found = worker_process.LineSplitter(), []
    for start, end in zip([0, *cuts], [*cuts, len(whole)]):
        found += splitter.feed(whole[start:end])
    assert found + splitter.rest() == lines


@hypothesis.given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_are_shown_and_kept_short(data, step):
    splitter, found = worker_process.LineSplitter(), []
    for i in range(0, len(data), step):
        found += splitter.feed(data[i : i + step])
    found += splitter.rest()
    assert all("\n" not in line and "\r" not in line for line in found)


def test_a_line_without_end_is_cut():
    splitter = worker_process.LineSplitter()
    lines = [line for _ in range(100) for line in splitter.feed(b"x" * 10_000)]
    assert len(lines) > 10 and max(map(len, lines)) < 80_000


def test_a_bar_that_rewrites_its_line_is_one_line():
    splitter = worker_process.LineSplitter()
    for percent in range(100):
        assert splitter.feed(f"\r{percent}%".encode()) == []
        assert len(splitter._partial) < 10
    assert splitter.feed(b"\r\n") == ["99%"]


START = "Traceback (most recent call last):"
TRACEBACK = [START, '  File "x", line 1', "ValueError: 1"]


def find(*lines):
    finder = worker_process.TracebackFinder()
    for now, line in enumerate(lines):
        finder.add(line, float(now))
    return finder


def test_the_last_traceback_is_kept_with_its_time():
    finder = find("a", *TRACEBACK, "b", *TRACEBACK)
    assert (list(finder.lines), finder.since) == (TRACEBACK, 5.0)


def test_a_chain_of_tracebacks_is_one():
    chain = "During handling of the above exception, another exception occurred:"
    lines = [*TRACEBACK, "", chain, "", *TRACEBACK]
    finder = find("a", *lines)
    assert (list(finder.lines), finder.since) == (lines, 1.0)


def test_a_traceback_that_quotes_another_is_one():
    lines = [
        START,
        "unisono.errors.WorkerError: worker 1 failed:",
        *TRACEBACK,
    ]
    finder = worker_process.TracebackFinder()
    for line in lines:
        finder.add(line, 5.0)
    assert list(finder.lines) == lines
    assert finder.is_about_a_peer


def test_a_traceback_long_ago_is_forgotten():
    finder = find(*TRACEBACK, *["on it goes"] * 500)
    assert (finder.lines, finder.since) == ((), None)


def test_an_error_about_a_peer_is_told_from_one_s_own():
    start = TRACEBACK[:2]
    assert find(*start, "unisono.errors.WorkerError: x").is_about_a_peer
    assert find(*start, "unisono.errors.WorkerMismatchError: x").is_about_a_peer
    assert not find(*start, "ValueError: WorkerError").is_about_a_peer
    assert not find(*start, "WorkersUnionError: x").is_about_a_peer


def test_progress_is_told_to_the_launcher_and_to_nobody_else(monkeypatch):
    monkeypatch.delenv(launcher_pipes.PROGRESS_VARIABLE, raising=False)
    launcher_pipes.report(1)
    reader, writer = os.pipe()
    monkeypatch.setenv(launcher_pipes.PROGRESS_VARIABLE, str(writer))
    launcher_pipes.report(2, 10)
    assert os.read(reader, 100) == b'{"step": 2, "total": 10}\n'
    os.close(reader)
    launcher_pipes.report(3, 10)  # Nobody listens any more.
    assert launcher_pipes.PROGRESS_VARIABLE not in os.environ
    os.close(writer)
