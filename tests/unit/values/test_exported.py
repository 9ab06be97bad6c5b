"""Functions of arrays travel as bytes, and are compiled where they are called."""

import threading

import jax
import jax.numpy as jnp

from tests.threads import at_once
from unisono._src.values import exported


def double(x):
    return x * 2.0


def test_a_program_computes_the_same_from_its_bytes():
    aval = jax.ShapeDtypeStruct((2,), jnp.float32)
    data = exported.export(lambda x: double(x), [aval], "double")
    assert exported.load(data)(jnp.array([1.0, 2.0])).tolist() == [2.0, 4.0]
    # The same bytes are the same program, so that threads compile it once.
    assert exported.load(bytes(data)) is exported.load(data)


def test_threads_that_call_a_program_first_get_its_results():
    aval = jax.ShapeDtypeStruct((), jnp.float32)
    program = exported.Compiled(exported.export(lambda x: double(x), [aval], "double"))
    found, lock = [], threading.Lock()

    def call():
        result = float(program(jnp.float32(3)))
        with lock:
            found.append(result)

    at_once(call, call)
    assert found == [6.0, 6.0]


def test_a_digest_differs_for_different_data():
    same = exported.digest(b"program", (1, 2))
    assert same == exported.digest(b"program", (1, 2))
    assert len({same, exported.digest(b"program", (1, 3)), exported.digest(b"")}) == 3
