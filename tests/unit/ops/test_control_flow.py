"""TensorFlow's answers and ours, for the module `control_flow`."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.unit.ops import everyday_programs


def test_it_gives_what_tensorflow_gives():
    everyday_programs.check(unisono, "control_flow")


def test_a_compiled_condition_runs_one_branch_and_its_assignments():
    v, w = unisono.Variable(1.0), unisono.Variable(5.0)

    @unisono.function
    def step(x):
        def add():
            v.assign_add(x)
            return 2 * x

        def copy():
            w.assign(3 * v)
            return x

        with unisono.GradientTape() as tape:
            y = unisono.cond(x > 0, add, copy) * unisono.cond(
                x > 0, lambda: w * x, lambda: w + 0
            )
        return y, tape.gradient(y, w)

    found = [float(x) for x in step(jnp.asarray(2.0))]
    assert (found, float(v.numpy()), float(w.numpy())) == ([40.0, 8.0], 3.0, 5.0)
    found = [float(x) for x in step(jnp.asarray(-2.0))]
    assert (found, float(v.numpy()), float(w.numpy())) == ([-18.0, -2.0], 3.0, 9.0)
    assert step.experimental_get_tracing_count() == 1


def test_a_compiled_loop_carries_the_variables_that_it_assigns():
    count = unisono.Variable(0)

    @unisono.function
    def run(n):
        def body(i, drawn):
            count.assign_add(i)
            return i + 1, drawn.at[i].set(unisono.random.uniform([]))

        _, drawn = unisono.while_loop(
            lambda i, _: (i < n) & (count < 100), body, (0, jnp.zeros(4))
        )
        return drawn, count.read_value()

    drawn, total = run(jnp.asarray(4))
    assert (int(total), int(count.numpy())) == (6, 6)
    assert len(set(np.asarray(drawn).tolist())) == 4


def test_the_condition_of_a_compiled_loop_may_assign_variables_and_draw_numbers():
    # The numbers are TensorFlow's.
    count = unisono.Variable(0)

    @unisono.function
    def run(x, most):
        def goes_on(i, y):
            is_lucky = unisono.random.uniform([], seed=1) < 0.7
            return (count.assign_add(1) > 0) & is_lucky & (i < 50)

        def body(i, y):
            return i + 1, y * x

        free = unisono.while_loop(goes_on, body, (0, x))
        limited = unisono.while_loop(goes_on, body, (0, x), maximum_iterations=most)
        with unisono.GradientTape() as tape:
            tape.watch(x)
            y = unisono.while_loop(goes_on, body, (0, x), maximum_iterations=5)[1]
        return free[0], limited[0], y, tape.gradient(y, x)

    unisono.random.set_seed(7)
    found = [
        [float(v) for v in run(jnp.asarray(2.0), jnp.asarray(5))] for _ in range(4)
    ]
    assert found == [
        *([2, 2, 8, 12], [15, 5, 64, 192]),
        *([3, 5, 64, 192], [9, 3, 16, 32]),
    ]
    # Once more than the body, each time.
    assert int(count.numpy()) == 29 + 15 + 15 + 3 * 4


def test_a_gradient_goes_through_a_loop_of_bounded_length():
    @unisono.function
    def power(x, most):
        with unisono.GradientTape() as tape:
            tape.watch(x)
            _, y = unisono.while_loop(
                lambda i, y: i < 3, lambda i, y: (i + 1, x * y), (0, x), 0, 1, True,
                False, most,
            )  # fmt: skip
        return tape.gradient(y, x)

    assert float(power(jnp.asarray(2.0), 5)) == 32.0
    with pytest.raises(ValueError, match="largest number of turns is not known"):
        power(jnp.asarray(2.0), None)


def test_a_tape_inside_a_body_trains_and_one_around_it_is_told_what_it_cannot_follow():
    v = unisono.Variable(2.0)

    def descend(i):
        with unisono.GradientTape() as tape:
            loss = v * v
        gradient = tape.gradient(loss, v)
        assert gradient is not None
        v.assign_sub(0.25 * gradient)
        return i + 1

    unisono.function(
        lambda: unisono.while_loop(lambda i: i < 3, descend, [jnp.asarray(0)])
    )()
    assert float(v.numpy()) == 0.25

    @unisono.function
    def follow(x):
        with unisono.GradientTape():
            return unisono.cond(x > 0, lambda: v.assign(2 * x) * v, lambda: x)

    with pytest.raises(RuntimeError, match="Open the tape inside the body"):
        follow(jnp.asarray(1.0))


@pytest.mark.needs_devices(2)
def test_replicas_may_take_different_branches_but_not_past_a_collective():
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        total = unisono.Variable(
            0.0,
            synchronization=unisono.VariableSynchronization.ON_READ,
            aggregation=unisono.VariableAggregation.SUM,
        )
        mirrored = unisono.Variable(0.0, aggregation=unisono.VariableAggregation.SUM)

    def run(variable, x):
        step = unisono.function(
            lambda x: strategy.run(
                lambda x: unisono.cond(
                    x > 1, lambda: variable.assign_add(x), variable.read_value
                ),
                (x,),
            )
        )
        return step(unisono.distribute.PerReplica(x))

    run(total, (jnp.asarray(1.0), jnp.asarray(2.0)))
    assert float(total.read_value()) == 2.0
    with pytest.raises(RuntimeError, match="Every replica must reach each"):
        run(mirrored, (jnp.asarray(1.0), jnp.asarray(2.0)))


def test_compiled_branches_and_loops_keep_shapes_and_types():
    with pytest.raises(TypeError, match=r"int32\[\], and true_fn returns float32\[\]"):
        unisono.function(lambda x: unisono.cond(x, lambda: 1.0, lambda: 2))(
            jnp.asarray(True)
        )
    with pytest.raises(ValueError, match="Value 0 of the loop"):
        unisono.function(
            lambda x: unisono.while_loop(lambda i: i < 3, lambda i: i * 1.5, [x])
        )(jnp.asarray(1))
    with pytest.raises(unisono.errors.InvalidArgumentError, match="no default"):
        unisono.function(lambda x: unisono.case([(x > 5, lambda: 1)]))(jnp.asarray(1))


def test_choices_and_loops_in_functions_of_datasets_keep_64_bits_and_text():
    def function(x):
        def grow(i, number, text):
            return i + 1, number * 2, text + "a"

        return (
            unisono.case([(x > 5, lambda: x + 1)], default=lambda: x),
            unisono.while_loop(
                lambda i, *_: i < 3, grow, (0, x, unisono.constant("b"))
            ),
        )

    chosen, looped = next(iter(unisono.data.Dataset.from_tensors(2**40).map(function)))
    assert chosen == 2**40 + 1
    assert [x.numpy() for x in looped] == [3, 2**43, b"baaa"]
