"""What a launcher tells its workers, and what they make of anything else."""

import os
import threading

import pytest

from unisono._src.cluster import launcher_pipes


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_an_end_is_told_to_all_who_listen_before_and_after(pipe, monkeypatch):
    reader, writer = os.dup(pipe[0]), os.dup(pipe[1])
    monkeypatch.setenv(launcher_pipes.NEWS_VARIABLE, launcher_pipes.name_pipe(reader))
    messages, early, late = launcher_pipes.LauncherMessages(), [], []
    came = threading.Event()
    assert messages.listen()
    messages.subscribe(lambda ending: (early.append(ending), came.set()))
    sent = launcher_pipes.WorkerEnding(
        "worker", 1, "signal SIGKILL", "ValueError: né\n"
    )
    line = launcher_pipes.encode(sent)
    for part in (b"no JSON\n[]\n", line[:7], line[7:]):
        os.write(writer, part)
    assert came.wait(10)
    messages.subscribe(late.append)
    assert early == late == messages.endings == [sent]
    os.close(writer)


def test_a_pause_is_told_and_is_no_end():
    messages, told = launcher_pipes.LauncherMessages(), []
    messages.subscribe(told.append)
    for sent in (True, False):
        pause = launcher_pipes.WorkerPause("worker", 1, sent)
        messages._add(launcher_pipes.encode(pause))
    messages.subscribe(told.append)
    assert [pause.is_paused for pause in told] == [True, False] * 2
    assert messages.endings == []


def test_only_the_end_of_a_long_traceback_is_told():
    sent = launcher_pipes.WorkerEnding(
        "worker", 0, "exit code 1", "x" * 10_000 + "the end"
    )
    told = launcher_pipes.decode(launcher_pipes.encode(sent))
    assert told.said.endswith("the end") and len(told.said) == 2000


def test_another_file_with_the_pipe_s_number_is_not_read(pipe, monkeypatch):
    value = launcher_pipes.name_pipe(pipe[0])
    number, _, inode = value.partition(":")
    for other in ("", "x", number, f"{number}:{int(inode) + 1}", f"9999:{inode}"):
        monkeypatch.setenv(launcher_pipes.NEWS_VARIABLE, other)
        assert not launcher_pipes.LauncherMessages().listen()
