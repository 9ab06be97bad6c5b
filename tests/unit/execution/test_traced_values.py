"""Python statements on traced values raise one error, with the line to write."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono


def choose(x):
    if x > 0 and not x > 5:  # noqa: SIM108
        y = x * 2
    else:
        y = -x
    return y


def leave(x):
    if 0 < x < 5:
        return x
    return -x


def effects(x):
    if x > 0:
        z = x
        print(z)
    return x


def pick(x):
    return x if x > 0 else -x


def loop(x):
    i = 0
    while x < 10:
        x = x * 2
        i += 1
    return x, i


def check(x):
    assert x > 0, "must be positive"
    return x


def compare(x):
    assert x == 2 * x
    return x


def count(x):
    total = 0
    for i in range(x):
        total += i
    return total


def convert(x):
    return int(x) + 1


def ask(x):
    return bool(x)


def sine(x):
    return np.sin(x)


CASES = {
    choose: (
        "if x > 0 and not x > 5:  # noqa: SIM108",
        "y = unisono.cond(unisono.logical_and(x > 0, unisono.logical_not(x > 5)), "
        "lambda: x * 2, lambda: -x)",
    ),
    leave: (
        "if 0 < x < 5:",
        "return unisono.where(unisono.logical_and(0 < x, x < 5), x, -x)",
    ),
    effects: ("if x > 0:", "z = unisono.cond(x > 0, if_true, if_false)"),
    pick: ("return x if x > 0 else -x", "unisono.cond(x > 0, lambda: x, lambda: -x)"),
    loop: (
        "while x < 10:",
        "x, i = unisono.while_loop(lambda x, i: x < 10, body, (x, i))",
    ),
    check: (
        'assert x > 0, "must be positive"',
        "unisono.debugging.Assert(x > 0, ['must be positive'])",
    ),
    compare: ("assert x == 2 * x", "unisono.debugging.assert_equal(x, 2 * x)"),
    count: (
        "for i in range(x):",
        "i, total = unisono.while_loop(lambda i, total: i < x, body, (0, total))",
    ),
    convert: ("return int(x) + 1", "unisono.cast(x, unisono.int32)"),
    ask: ("return bool(x)", "unisono.cond(x, lambda: a, lambda: b)"),
    sine: ("return np.sin(x)", "jax.numpy instead of NumPy's"),
}


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_the_error_has_the_line_and_what_to_write(function):
    line, advice = CASES[function]
    with pytest.raises(unisono.errors.OperatorNotAllowedInGraphError) as raised:
        unisono.function(function, autograph=False)(jnp.asarray(3))
    lines, start = inspect.getsourcelines(function)
    number = start + next(i for i, text in enumerate(lines) if text.strip() == line)
    said = str(raised.value)
    where = (
        f"test_traced_values.py, line {number}, in {function.__name__}\n    {line}\n"
    )
    assert where in said
    assert advice in said
    # What is caught for JAX catches this, too.
    assert isinstance(raised.value, jax.errors.ConcretizationTypeError)
    assert isinstance(raised.value.__cause__, TypeError)


@pytest.mark.needs_devices(2)
def test_replicas_in_a_function_get_the_same_error():
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def replica():
        replica_id = unisono.distribute.get_replica_context().replica_id_in_sync_group
        return 1 if replica_id == 0 else 2

    with pytest.raises(unisono.errors.OperatorNotAllowedInGraphError) as raised:
        unisono.function(lambda: strategy.run(replica), autograph=False)()
    assert "unisono.cond(replica_id == 0, lambda: 1, lambda: 2)" in str(raised.value)
    assert "one program serves all replicas" in str(raised.value)


def test_a_slice_with_computed_bounds_is_told_with_its_line():
    def windows(x):
        total = unisono.zeros([])
        for t in unisono.range(3):
            total += unisono.reduce_sum(x[t : t + 2])
        return total

    with pytest.raises(IndexError, match=r"x\[t : t \+ 2\].*\n.*unisono\.slice\("):
        unisono.function(windows)(jnp.ones(4))


@pytest.mark.parametrize("keep", ["list", "attribute"])
def test_a_value_that_a_replica_function_has_kept_is_told(keep):
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    kept = []

    class Model:
        loss: Any = None

    def replica(x):
        kept.append(x * 2)
        Model.loss = kept[0]

    @unisono.function
    def step(x):
        strategy.run(replica, args=(x,))
        return (kept[0] if keep == "list" else Model.loss) + 1

    with pytest.raises(TypeError, match="combine the values of the replicas"):
        step(jnp.ones(2))
