"""Programs of the host run once they are worth it, and leave the rest to NumPy."""

import threading

import numpy as np
import pytest

from unisono._src.ops.host import host_programs


def numbers(seed=0):
    return np.random.default_rng(seed).random((120, 70), np.float32)


def run(program, *arguments, uses=1):
    """Returns what the program makes, or None, as those who have one call it."""
    return program.run(*arguments) if program.prepare(uses, *arguments) else None


def test_a_program_runs_when_it_has_been_wanted_often_enough():
    program = host_programs.Program(lambda x, y: x + y, worth=2)
    x, y = numbers(), numbers(1)
    found = [run(program, x, y) for _ in range(4)]
    assert found[:2] == [None, None]
    for made in found[2:]:
        assert made is not None and made.flags.writeable
        np.testing.assert_array_equal(made, x + y)


def test_runs_that_are_wanted_at_once_are_counted_and_compiled_once():
    seen = []
    program = host_programs.Program(lambda x: seen.append(x.shape) or x[::-1], worth=2)
    assert run(program, numbers(), uses=2) is None
    np.testing.assert_array_equal(run(program, numbers()), numbers()[::-1])
    np.testing.assert_array_equal(run(program, numbers(), uses=9), numbers()[::-1])
    assert seen == [(120, 70)]


def test_a_program_that_is_not_compiled_computes_nothing():
    program = host_programs.Program(lambda x: x, worth=2)
    assert not program.prepare(0, numbers())
    assert program.run(numbers()) is None


def test_no_one_waits_for_another_thread_that_compiles():
    begun, done = threading.Event(), threading.Event()

    def compute(x):
        begun.set()
        assert done.wait(60)
        return x

    program = host_programs.Program(compute, worth=0)
    found = []
    thread = threading.Thread(target=lambda: found.append(run(program, numbers())))
    thread.start()
    assert begun.wait(60)
    assert run(program, numbers()) is None
    done.set()
    thread.join()
    np.testing.assert_array_equal(found[0], numbers())
    np.testing.assert_array_equal(run(program, numbers()), numbers())


def test_a_function_that_fails_is_told_and_tried_again():
    calls = []

    def fail_once(x):
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("not yet")
        return x

    program = host_programs.Program(fail_once, worth=0)
    with pytest.raises(ValueError, match="not yet"):
        run(program, numbers())
    np.testing.assert_array_equal(run(program, numbers()), numbers())
