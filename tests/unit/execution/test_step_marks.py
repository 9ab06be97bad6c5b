"""A step tells by its marks whether all replicas take the same one."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tests import machine
from unisono._src.execution import step_marks
from unisono._src.foundation.options import ReduceOp
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.values import gradient_packing
from unisono._src.workers import step_history

SPLIT, SAME = PartitionSpec(AXIS), PartitionSpec()
REPLICAS = 4


def topology():
    return Topology.of(machine.names(REPLICAS))


def put(values):
    """Returns an array that JAX takes for replicated, of which devices have their own.

    So one process acts as several workers.
    """
    found = topology()
    pieces = jax.device_put([jnp.asarray(v) for v in values], list(found.devices))
    return found.assemble(pieces[0].shape, found.replicated_sharding, pieces)


def mapped(body):
    return jax.shard_map(
        body, mesh=topology().mesh, in_specs=SPLIT, out_specs=SAME, check_vma=False
    )


def take_step(program, x, ledgers, labels):
    """Returns the result of a program and the ledger of each device after it."""
    jaxpr = jax.make_jaxpr(program)(x)

    def step(x, ledger, label):
        marks = step_marks.advance(ledger, label, [])
        out, sums = step_marks.evaluate(
            jaxpr.jaxpr, jaxpr.consts, [x], marks, topology()
        )
        return out, step_marks.close(ledger, marks, sums, REPLICAS)

    compiled = jax.jit(step).lower(x, put(ledgers), put(labels)).compile()
    (out, *_), after = compiled(x, put(ledgers), put(labels))
    read = [np.asarray(s.data) for s in after.addressable_shards]
    return np.asarray(out), read, compiled.as_text().count(" all-reduce(")


def packed(x):
    own = [x[0], 2.0 * x[0], jnp.ones(3)]
    return gradient_packing.reduce_together(ReduceOp.SUM, own, REPLICAS)[1]


PROGRAMS = {
    "a pack": (packed, 1),
    "a number": (lambda x: 2.0 * jax.lax.psum(x[0], AXIS), 1),
    "an integer": (
        lambda x: 2.0 * jax.lax.psum(x[0].astype(jnp.int32), AXIS).astype(jnp.float32),
        1,
    ),
    "a narrow float": (
        lambda x: 2.0 * jax.lax.psum(x[0].astype(jnp.bfloat16), AXIS).astype("float32"),
        2,
    ),
    "a loop": (
        lambda x: jax.lax.fori_loop(
            0, 1, lambda _, y: 2.0 * jax.lax.psum(y, AXIS), x[0]
        ),
        2,
    ),
    "nothing": (lambda x: 2.0 * 10.0 * jnp.ones_like(x[0]), 1),
}


@pytest.mark.needs_devices(REPLICAS)
@pytest.mark.parametrize("kind", PROGRAMS)
def test_marks_travel_with_the_numbers_and_change_none(kind):
    program, calls = PROGRAMS[kind]
    x = jax.device_put(jnp.arange(1.0, 5.0), topology().stacked_sharding)
    start = [np.zeros(step_history.WORDS, np.uint32)] * REPLICAS
    labels = [np.uint32(77)] * REPLICAS
    out, same, count = take_step(mapped(program), x, start, labels)
    assert out == 20.0
    assert count == calls
    assert all(list(words[2:]) == [1, 0, 0] for words in same)
    labels[2] = np.uint32(78)
    _, other, _ = take_step(mapped(program), x, same, labels)
    # Each device that differs from the rest finds it, and so do the others.
    assert all(list(words[2:]) == [2, 2, 0] for words in other)


@pytest.mark.needs_devices(REPLICAS)
def test_a_difference_is_kept_when_later_steps_are_right():
    x = jax.device_put(jnp.ones(REPLICAS), topology().stacked_sharding)
    ledgers = [np.zeros(step_history.WORDS, np.uint32)] * REPLICAS
    orders = [[1, 2, 3, 4], [2, 1, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]
    for labels in zip(*orders, strict=True):
        given = [np.uint32(n) for n in labels]
        _, ledgers, _ = take_step(mapped(packed), x, ledgers, given)
    assert all(list(words[2:]) == [4, 1, 0] for words in ledgers)


def test_numbers_that_look_right_to_the_middle_one_are_told_apart():
    # Not the numbers 1, 2 and 3 but their marks are added up.
    nothing = jnp.zeros(step_history.WORDS, jnp.uint32)
    first, middle, last = (
        int(step_marks.advance(nothing, jnp.uint32(n), []).step) for n in (1, 2, 3)
    )
    assert first + last != 2 * middle


@pytest.mark.parametrize("replicas", [2, 255, 256, 257, 4096, 65536])
def test_sums_of_marks_are_exact_in_floats_of_32_bits(replicas):
    most = np.uint32(0xFFFFFFFF)
    lanes = step_marks.split(step_marks.StepMarks(most, most), replicas, np.float32)
    assert len(lanes) == gradient_packing.count_lanes(replicas)
    total = np.asarray(lanes, np.float64) * replicas
    assert (total.astype(np.float32) == total).all()
    assert total.max() <= 2**24


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float16", "int8", "uint32", "bool", "complex64"]
)
def test_the_digest_of_an_array_depends_on_every_element_and_its_place(dtype):
    bits = np.array([1, 0, 0, 1, 1, 0, 1, 0])
    others = [*(bits ^ np.eye(8, dtype=int)), bits[::-1], np.roll(bits, 1)]
    digests = {int(step_marks.digest(jnp.asarray(y, dtype))) for y in [bits, *others]}
    assert len(digests) == 11


def test_digests_tell_zeros_keys_and_empty_arrays_apart():
    zero = jnp.asarray([0.0])
    assert step_marks.digest(zero) != step_marks.digest(-zero)
    one, two = jax.random.key(1), jax.random.key(2)
    assert step_marks.digest(one) != step_marks.digest(two)
    assert step_marks.digest(jnp.zeros(0)) == 0


X = jnp.arange(3.0)


def lowered(fn):
    return step_marks.digest_lowered(jax.jit(fn).lower(X), jax.make_jaxpr(fn)(X).jaxpr)


def traced(fn):
    return step_marks.digest_jaxpr(jax.make_jaxpr(fn)(X).jaxpr)


def step(rate, says=False):
    def run(x):
        if says:
            jax.debug.callback(lambda y: None, x)
        return jax.lax.cond(x[0] > 0, lambda: x - rate, lambda: x * rate)

    return run


def test_arrays_that_are_not_in_the_text_count():
    # JAX has a setting that takes arrays out of the text of programs.
    setting = "jax_use_simplified_jaxpr_constants"
    before = getattr(jax.config, setting)
    jax.config.update(setting, True)
    try:
        text = jax.jit(jnp.sin).lower(X)
        tables = [jnp.arange(3.0), jnp.arange(3.0), jnp.ones(3)]
        programs = [jax.make_jaxpr(lambda x, t=t: x + t)(X).jaxpr for t in tables]
    finally:
        jax.config.update(setting, before)
    one, same, other = (step_marks.digest_lowered(text, p) for p in programs)
    assert one == same
    assert one != other


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
        "import jax, tests.unit.execution.test_step_marks as t;"
        "print(t.traced(t.step(0.1, True)), t.lowered(t.step(0.1)))"
    )
    told = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert told.split() == [traced(step(0.1, True)), lowered(step(0.1))]
