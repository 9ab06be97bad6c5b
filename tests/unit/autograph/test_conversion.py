"""Which functions AutoGraph converts, and how they look afterwards."""

import functools
import inspect
import subprocess
import sys
import traceback
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import unisono as tf

X = jnp.asarray(2.0)
MINUS = jnp.asarray(-2.0)


def absolute(x):
    if x > 0:
        return x
    return -x


def test_a_program_that_needs_nothing_does_not_load_it():
    program = (
        "import sys, numpy, unisono as tf\n"
        "v = tf.Variable(1.0)\n"
        "@tf.function\n"
        "def f(x):\n"
        "    a, b = x\n"
        "    for y in [a, b]:\n"
        "        v.assign_add(y)\n"
        "    return tf.range(3) + 1\n"
        "f(numpy.ones(2, 'float32'))\n"
        "print([m for m in sys.modules if m.startswith('unisono._src.autograph')])\n"
    )
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_unpacking_an_array_needs_no_conversion():
    calls = []

    @tf.function
    def f(x):
        calls.append(1)
        a, b = x
        return a + b

    assert float(f(jnp.asarray([1.0, 2.0]))) == 3.0
    assert len(calls) == 1


def test_a_function_is_converted_once_and_later_signatures_are_traced_once():
    calls = []

    @tf.function
    def f(x):
        calls.append(x.shape)
        if tf.reduce_sum(x) > 0:
            x = x * 2
        return x

    f(jnp.ones(1))
    assert calls == [(1,), (1,)]
    f(jnp.ones(2))
    f(jnp.ones(3))
    assert calls == [(1,), (1,), (2,), (3,)]


def test_except_exception_does_not_hide_a_branch():
    @tf.function
    def f(x):
        try:
            if x > 0:  # noqa: SIM108
                y = x * 2
            else:
                y = x
        except Exception:
            y = jnp.asarray(-99.0)
        return y

    assert float(f(X)) == 4.0
    assert float(f(MINUS)) == -2.0


def test_autograph_false_and_do_not_convert_leave_functions_alone():
    kept = tf.autograph.experimental.do_not_convert(lambda x: x if x > 0 else -x)

    @tf.autograph.experimental.do_not_convert()
    def kept_too(x):
        return absolute(x)

    for f in (
        tf.function(absolute, autograph=False),
        tf.function(lambda x: kept(x)),
        tf.function(kept_too),
    ):
        with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
            f(X)
    assert float(kept(MINUS)) == 2.0


def test_an_inner_function_is_converted_in_one_that_is_not():
    inner = tf.function(absolute)
    outer = tf.function(lambda x: inner(x) + 1, autograph=False)
    assert float(outer(MINUS)) == 3.0


class Base:
    def __init__(self):
        self.__hidden = 5.0

    def call(self, x):
        if x > 0:
            return x + self.__hidden
        return x


class Derived(Base):
    @tf.function
    def call(self, x):
        if x > 1:
            x = super().call(x)
        return x

    @staticmethod
    def clip(x, low=0.0, *, high=1.0):
        if x > high:
            return high
        return low if x < low else x

    def __call__(self, x):
        return self.clip(x) if x != 7 else -1.0


def test_methods_super_private_names_and_defaults_are_converted():
    found = Derived()
    assert float(found.call(X)) == 7.0
    assert float(found.call(jnp.asarray(0.5))) == 0.5
    f = tf.function(lambda x: found(x))
    assert [float(f(jnp.asarray(v))) for v in (-3.0, 0.5, 3.0, 7.0)] == [0, 0.5, 1, -1]


def test_two_lambdas_in_one_line_are_told_apart():
    f, g = [tf.function(h) for h in (lambda x: x if x > 0 else -x, lambda x: x or 1)]
    assert float(f(MINUS)) == 2.0
    assert bool(g(MINUS)) is True


def test_partial_and_wrapped_functions_are_converted():
    def add(y, x):
        return x + y if x > 0 else x

    def twice(fn):
        @functools.wraps(fn)
        def wrapper(x):
            if x > 100:
                return x
            return fn(fn(x))

        return wrapper

    f = tf.function(twice(functools.partial(add, 3.0)))
    assert [float(f(jnp.asarray(v))) for v in (1.0, -1.0, 200.0)] == [7.0, -1.0, 200.0]


def test_functions_given_to_map_fn_and_jax_are_converted():
    @tf.function
    def f(xs):
        return tf.map_fn(lambda x: x if x > 0 else x * 10, xs), jax.grad(absolute)(
            xs[0]
        )

    rows, slope = f(jnp.asarray([-1.0, 2.0]))
    assert rows.tolist() == [-10.0, 2.0]
    assert float(slope) == -1.0


def test_code_without_source_gets_the_error_that_says_what_to_write():
    names: dict[str, Any] = {"tf": tf}
    exec("@tf.function\ndef f(x):\n    return x if x > 0 else -x\n", names)
    with pytest.raises(
        tf.errors.OperatorNotAllowedInGraphError, match=r"unisono\.cond"
    ):
        names["f"](X)


def test_a_generator_is_left_as_it_is():
    def parts(x):
        for _ in range(2):
            yield x

    @tf.function
    def f(x):
        total = 0.0
        for part in parts(x):
            if part > 0:
                total += part
        return total

    assert float(f(X)) == 4.0


def test_a_match_statement_may_hold_branches():
    @tf.function
    def f(x, kind):
        match kind:
            case "double":
                if x > 0:
                    x = x * 2
            case _:
                return x
        return x + 1

    assert float(f(X, "double")) == 5.0
    assert float(f(X, "plain")) == 2.0


def test_tracebacks_show_the_lines_of_the_user():
    def fail(x):
        y = x
        if x > 0:
            for _ in tf.range(3):
                y = y + jnp.zeros(3)[:, None] @ jnp.zeros(7)
        return y

    with pytest.raises(TypeError) as raised:
        tf.function(fail)(X)
    shown = traceback.extract_tb(raised.value.__traceback__)
    mine = [f.lineno for f in shown if f.filename == __file__]
    lines, start = inspect.getsourcelines(fail)
    failing = next(i for i, text in enumerate(lines) if "zeros(7)" in text)
    assert mine[-1] == start + failing


def test_python_effects_and_prints_happen_at_both_traces(capsys):
    @tf.function
    def f(x):
        print("tracing")
        return -x if x > 0 else x

    f(X)
    f(X)
    assert capsys.readouterr().out == "tracing\ntracing\n"


def test_names_that_functions_inside_change_are_shared():
    @tf.function
    def f(x):
        count = 0

        def bump(by):
            nonlocal count
            if by > 1:
                count = count + 1
            return count

        bump(x)
        bump(x + 1)
        return count

    assert int(f(jnp.asarray(1.0))) == 1
    assert int(f(jnp.asarray(5.0))) == 2


def test_a_walrus_in_a_condition_keeps_its_name():
    @tf.function
    def f(x):
        if (y := x * 2) > 3:
            y = y + 100
        return y

    assert float(f(X)) == 104.0
    assert float(f(jnp.asarray(1.0))) == 2.0


def test_a_name_that_has_no_value_raises_the_error_of_python():
    @tf.function
    def f(x):
        if x > 0:
            x = x + 1
        return missing  # noqa: F821

    with pytest.raises(NameError, match="missing"):
        f(X)


def test_functions_that_call_each_other_and_themselves_are_converted():
    def countdown(x, depth):
        if depth == 0:
            return x
        if x > 10:
            x = x - 10
        return countdown(x, depth - 1)

    f = tf.function(countdown)
    assert float(f(jnp.asarray(35.0), 2)) == 15.0
    assert float(f(jnp.asarray(35.0), 9)) == 5.0


def test_eager_functions_are_not_converted():
    tf.config.run_functions_eagerly(True)
    try:
        seen = []

        @tf.function
        def f(x):
            seen.append(sys._getframe().f_code)
            return x if x > 0 else -x

        assert float(f(MINUS)) == 2.0
        assert seen == [f.python_function.__code__]
    finally:
        tf.config.run_functions_eagerly(False)


class Doubling(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec((None,), tf.float32)])
    def __call__(self, x):
        if tf.reduce_sum(x) < 0:
            x = -x
        while tf.reduce_sum(x) < 100:
            x = x * 2
        return x


def test_a_function_with_branches_and_loops_is_exported(tmp_path):
    tf.saved_model.save(Doubling(), tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    assert loaded(jnp.asarray([-3.0, 0.0])).tolist() == [192.0, 0.0]
    assert loaded(jnp.asarray([30.0])).tolist() == [120.0]


def test_a_loop_of_steps_is_not_exported(tmp_path):
    class Trainer(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((), tf.int32)])
        def train(self, steps):
            total = 0.0
            for _ in tf.range(steps):
                total += next(iterator)
            return total

    iterator = iter(tf.data.Dataset.range(5).map(lambda x: tf.cast(x, tf.float32)))
    with pytest.raises(ValueError, match="has no program, because it runs on the host"):
        tf.saved_model.save(Trainer(), tmp_path)


def test_a_chain_of_comparisons_evaluates_each_part_once():
    calls = []

    def middle(x):
        calls.append(1)
        return tf.abs(x)

    @tf.function
    def f(x):
        return 1 if 0 < middle(x) < 3 else 2

    assert int(f(MINUS)) == 1
    assert int(f(jnp.asarray(-4.0))) == 2
    # Once in each of the two traces.
    assert len(calls) == 2
