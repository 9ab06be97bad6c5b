"""Programs of workers are told apart by what they compute, not by where it stands."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unisono._src.execution import step_labels

X = jnp.arange(3.0)


def lowered(fn):
    return step_labels.digest_lowered(jax.jit(fn).lower(X))


def traced(fn):
    return step_labels.digest_jaxpr(jax.make_jaxpr(fn)(X).jaxpr)


def step(rate, says=False):
    def run(x):
        if says:
            jax.debug.callback(lambda y: None, x)
        return jax.lax.cond(x[0] > 0, lambda: x - rate, lambda: x * rate)

    return run


@pytest.mark.parametrize("digest", [lowered, traced])
def test_equal_programs_have_equal_digests(digest):
    assert digest(step(0.1)) == digest(step(0.1))


@pytest.mark.parametrize("digest", [lowered, traced])
def test_another_number_inside_a_branch_is_another_program(digest):
    assert digest(step(0.1)) != digest(step(0.2))


def test_another_array_in_the_program_is_another_program():
    assert lowered(lambda x: x + np.array([1.0, 2.0, 3.0])) != lowered(
        lambda x: x + np.array([1.0, 2.0, 4.0])
    )


def test_another_operation_beside_a_callback_is_another_program():
    assert traced(step(0.1, True)) == traced(step(0.1, True))
    assert traced(step(0.1, True)) != traced(step(0.2, True))


def test_two_processes_give_a_program_with_a_callback_one_digest():
    program = (
        "import jax, tests.unit.execution.test_step_labels as t;"
        "print(t.traced(t.step(0.1, True)), t.lowered(t.step(0.1)))"
    )
    told = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert told.split() == [traced(step(0.1, True)), lowered(step(0.1))]
