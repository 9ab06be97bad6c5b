"""The leak check finds the threads and variables that a test leaves behind."""

import threading

from tests.plugins import leaks


def test_a_changed_variable_is_told_with_both_values():
    told = leaks.describe_changes({"A": "1", "B": "2"}, {"A": "1", "B": "3", "C": "4"})
    assert told == [
        "environment variable B was '2', is '3'",
        "environment variable C was None, is '4'",
    ]


def test_a_thread_that_ends_in_time_is_no_leak():
    before = set(threading.enumerate())
    threading.Thread(target=lambda: None).start()
    assert leaks.surviving_threads(before) == []


def test_a_thread_that_stays_is_told_by_name(monkeypatch):
    monkeypatch.setattr(leaks, "_GRACE_SECONDS", 0.01)
    before, stop = set(threading.enumerate()), threading.Event()
    thread = threading.Thread(target=stop.wait, name="left behind")
    thread.start()
    try:
        told = leaks.surviving_threads(before)
    finally:
        stop.set()
        thread.join()
    assert told == ["thread 'left behind' still runs; join it"]
