"""Iterators and datasets inside compiled functions."""

import functools
import math

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import unisono as uni
from tests import machine, random_programs


@pytest.fixture(params=[1, 2, 4])
def s(request):
    devices = machine.names(request.param)
    return uni.distribute.MirroredStrategy(devices)


BATCHES = [np.arange(4 * i, min(4 * i + 4, 10), dtype=np.float32) for i in range(3)]


def total(s, x):
    return s.reduce("SUM", s.run(jnp.sum, args=(x,)), axis=None)


@pytest.mark.feature("F10", "V08")
def test_a_function_may_contain_the_whole_epoch(s):
    calls = []

    @uni.function
    def epoch(dataset):
        def replica(x):
            calls.append(1)
            return jnp.sum(x)

        summed = jnp.zeros(())
        for x in dataset:
            summed += s.reduce("SUM", s.run(replica, args=(x,)), axis=None)
        return summed

    dataset = s.experimental_distribute_dataset(BATCHES)
    assert [float(epoch(dataset)) for _ in range(3)] == [45.0, 45.0, 45.0]
    traced = len(calls)
    epoch(dataset)
    assert len(calls) == traced


@pytest.mark.feature("H02")
def test_a_step_may_take_the_next_batch_itself(s):
    traces = []

    @uni.function
    def step(iterator):
        traces.append(1)
        return total(s, next(iterator))

    dataset = s.experimental_distribute_dataset(BATCHES)
    for _ in range(2):
        iterator = iter(dataset)
        assert [float(step(iterator)) for _ in range(3)] == [6.0, 22.0, 17.0]
        with pytest.raises(StopIteration):
            step(iterator)
    # Once for each of the two sizes of a batch.
    assert len(traces) == 2


@pytest.mark.feature("H02")
@pytest.mark.parametrize("is_captured", [False, True])
def test_a_step_that_takes_many_batches_is_traced_once(s, is_captured):
    dataset = s.experimental_distribute_dataset([np.full(4, i) for i in range(12)])
    iterator, traces = iter(dataset), []

    def take_six(given):
        traces.append(1)
        # The numbers tell the batches apart: none may stand for another.
        return [total(s, next(given)) for _ in range(6)]

    step = uni.function((lambda: take_six(iterator)) if is_captured else take_six)
    args = () if is_captured else (iterator,)
    for start in (0, 6):
        assert [float(x) for x in step(*args)] == [4.0 * (start + i) for i in range(6)]
    assert len(traces) == step.experimental_get_tracing_count() == 1
    with pytest.raises(StopIteration):
        step(*args)


def test_a_step_may_take_batches_of_different_sizes_and_kinds(s):
    ends = uni.data.Dataset.from_tensor_slices({"x": np.arange(3.0), "n": [7, 8, 9]})
    iterator, scalars = iter(s.experimental_distribute_dataset(BATCHES)), iter(ends)
    traces = []

    @uni.function
    def step(iterator):
        traces.append(1)
        sums = [total(s, next(iterator)) for _ in range(3)]
        return sums, next(scalars)["n"], next(scalars)

    sums, first, second = step(iterator)
    assert [float(x) for x in sums] == [6.0, 22.0, 17.0]
    assert int(first) == 7
    assert (int(second["n"]), float(second["x"])) == (8, 1.0)
    assert len(traces) == 1
    # It ends in the middle: what was taken before is there again.
    again = iter(s.experimental_distribute_dataset(BATCHES))
    with pytest.raises(StopIteration):
        step(again)
    assert len(list(again)) == 3
    assert int(next(scalars)["n"]) == 9


def test_a_loop_may_follow_a_batch_that_was_taken_by_itself(s):
    dataset = s.experimental_distribute_dataset(BATCHES)

    @uni.function
    def epoch(iterator, dataset):
        first = total(s, next(iterator))
        rest = 0.0
        for batch in dataset:
            rest += total(s, batch)
        return first, rest

    iterator = iter(dataset)
    told = [[float(x) for x in epoch(iterator, dataset)] for _ in range(3)]
    assert told == [[6.0, 45.0], [22.0, 45.0], [17.0, 45.0]]
    with pytest.raises(StopIteration):
        epoch(iterator, dataset)


def test_a_step_that_takes_another_number_of_batches_is_refused(s):
    iterator = iter(s.experimental_distribute_dataset([np.zeros(4)] * 3))

    @uni.function
    def step(x):
        return sum(total(s, next(iterator)) for _ in range(x.shape[0])) + x[0]

    assert float(step(np.zeros(1))) == 0.0
    with pytest.raises(RuntimeError, match="takes other elements from its iterators"):
        step(np.zeros(2))
    assert len(list(iterator)) == 2


def test_looking_at_a_program_takes_no_batch(s):
    iterator = iter(s.experimental_distribute_dataset(BATCHES))
    step = uni.function(lambda iterator: total(s, next(iterator)))
    assert "stablehlo" in step.lowered(iterator).as_text()
    assert len(list(iterator)) == 3


def test_a_step_that_lacks_a_batch_takes_none(s):
    iterator = iter(s.experimental_distribute_dataset(BATCHES))

    @uni.function
    def two():
        return total(s, next(iterator)) + total(s, next(iterator))

    assert float(two()) == 28.0
    with pytest.raises(StopIteration):
        two()
    assert len(list(iterator)) == 1


def test_a_step_that_fails_gives_its_batch_back(s):
    iterator = iter(s.experimental_distribute_dataset(BATCHES))

    @uni.function
    def step():
        next(iterator)
        raise KeyError("no")

    for _ in range(2):
        with pytest.raises(KeyError):
            step()
    assert len(list(iterator)) == 3


def test_a_model_may_be_built_by_the_first_step(s):
    class Model:
        w = None

        @uni.function
        def step(self, iterator):
            if self.w is None:
                self.w = uni.Variable(jnp.ones(()))
            return self.w.assign_add(total(s, next(iterator)))

    model, iterator = Model(), iter(s.experimental_distribute_dataset(BATCHES))
    assert [float(model.step(iterator)) for _ in range(3)] == [7.0, 29.0, 46.0]


@pytest.mark.feature("C13")
def test_a_replica_cannot_take_a_batch(s):
    iterator = iter(s.experimental_distribute_dataset(BATCHES))
    with pytest.raises(ValueError, match="cross-replica"):
        s.run(lambda: next(iterator))


@pytest.mark.feature("H27")
def test_what_cannot_be_split_is_refused():
    s = uni.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with pytest.raises(ValueError, match="Batch the dataset first"):
        next(iter(s.experimental_distribute_dataset([np.float32(1.0)])))
    with pytest.raises(TypeError, match="iterate"):
        s.experimental_distribute_dataset(3)


def test_a_loader_may_reuse_its_memory(s):
    buffer = np.zeros(8, np.float32)

    def loader():
        for i in range(3):
            buffer[:] = i
            yield buffer

    class Loader:
        def __iter__(self):
            return loader()

    parts = list(s.experimental_distribute_dataset(Loader()))
    sums = [float(total(s, x)) for x in parts]
    assert sums == [0.0, 8.0, 16.0]


@pytest.mark.feature("H02")
def test_a_function_asks_its_iterator_whether_there_is_more(s):
    @uni.function
    def train(iterator):
        summed = 0.0
        for _ in range(2):
            found = iterator.get_next_as_optional()
            if not found.has_value():
                break
            summed += total(s, found.get_value())
        return summed

    iterator = iter(s.experimental_distribute_dataset(BATCHES))
    assert [float(train(iterator)) for _ in range(3)] == [28.0, 17.0, 0.0]


@pytest.mark.feature("H02")
def test_a_function_may_loop_over_what_is_left_of_an_iterator(s):
    def summed(iterator):
        found = 0.0
        for batch in iterator:
            found += total(s, batch)
        return found

    given = uni.function(summed)
    iterator = iter(s.experimental_distribute_dataset(BATCHES))
    next(iterator)
    assert [float(given(iterator)) for _ in range(2)] == [39.0, 0.0]
    other = iter(s.experimental_distribute_dataset(BATCHES))
    captured = uni.function(lambda: summed(other))
    assert float(captured()) == 45.0


@pytest.mark.feature("H02")
@pytest.mark.parametrize("take", [next, lambda iterator: iterator.get_next()])
def test_the_end_within_a_function_is_tensorflow_s_error(s, take):
    step = uni.function(lambda iterator: total(s, take(iterator)))
    iterator = iter(s.experimental_distribute_dataset(BATCHES[:1]))
    step(iterator)
    for _ in range(2):
        with pytest.raises(uni.errors.OutOfRangeError, match="End of sequence"):
            step(iterator)


@pytest.mark.feature("H23")
def test_text_may_come_along_into_a_function(s):
    dataset = uni.data.Dataset.from_tensor_slices(
        {"text": ["a", "b", "cc", "d", "e"], "x": np.arange(5.0)}
    ).batch(4)
    given = s.experimental_distribute_dataset(dataset)
    traces = []

    def doubled(batch):
        traces.append(1)
        found = s.run(lambda b: 2 * b["x"], args=(batch,))
        return s.reduce("SUM", found, axis=0)

    for step in (
        uni.function(doubled),
        uni.function(doubled, input_signature=[given.element_spec]),
    ):
        traces.clear()
        assert [float(step(batch)) for batch in given] == [12.0, 8.0]
        # Once for each of the two sizes of a batch, not for each text.
        assert len(traces) == 2
    with pytest.raises(TypeError, match="Text stays on the host"):
        uni.function(lambda batch: len(batch["text"]))(next(iter(given)))
    with pytest.raises(TypeError, match="returns a component that holds text"):
        uni.function(lambda batch: batch)(next(iter(given)))


def test_a_captured_negative_zero_is_another_number_than_zero():
    host = uni.function(lambda: None)

    def make(factor):
        return lambda x: x * factor

    found = [float(host.compiled_run(make(zero))(1.0)) for zero in (0.0, -0.0, 0.0)]
    assert [math.copysign(1.0, x) for x in found] == [1.0, -1.0, 1.0]


def numbers(count=20):
    return iter(uni.data.Dataset.range(count).map(lambda x: np.int32(x)))


def test_each_round_of_a_loop_takes_an_element_of_its_own():
    iterator, seen = numbers(), uni.Variable(0)

    def body(i, sum_):
        x = next(iterator)
        seen.assign_add(x)
        return i + 1, sum_ + x

    @uni.function
    def captured(n):
        return uni.while_loop(lambda i, _: i < n, body, (0, 0))[1]

    @uni.function
    def given(it, n):
        return uni.while_loop(
            lambda i, _: i < n, lambda i, t: (i + 1, t + it.get_next()), (0, 0)
        )[1]

    assert [int(captured(np.int32(3))) for _ in range(2)] == [3, 12]
    assert (int(given(iterator, np.int32(2))), int(seen)) == (6 + 7, 15)
    assert int(next(iterator)) == 8


def test_only_the_branch_that_is_taken_takes_an_element():
    iterator, other = numbers(), numbers()

    @uni.function
    def choose(n):
        before = 100 * next(other)
        return before + uni.switch_case(
            n, [lambda: next(iterator), lambda: -1, lambda: 10 * next(iterator)]
        )

    found = [int(choose(np.int32(n))) for n in (1, 0, 2, 1, 0)]
    assert found == [-1, 100, 210, 299, 402]


def test_the_condition_of_a_loop_may_take_elements():
    iterator = numbers()

    @uni.function
    def count(limit):
        return uni.while_loop(lambda n: next(iterator) < limit, lambda n: n + 1, (0,))

    assert [int(count(np.int32(n))[0]) for n in (3, 6)] == [3, 2]
    assert int(next(iterator)) == 7


def test_gradients_go_through_a_loop_that_takes_elements():
    iterator, w = numbers(), uni.Variable(2.0)

    @uni.function
    def step():
        with uni.GradientTape() as tape:
            y = uni.while_loop(
                lambda i, _: i < 3, lambda i, y: (i + 1, y + w * next(iterator)), (0, 0)
            )[1]
        return y, tape.gradient(y, w)

    assert [tuple(map(float, step())) for _ in range(2)] == [(6.0, 3.0), (24.0, 12.0)]


def test_replicas_get_a_batch_of_their_own_in_each_round_of_a_loop(s):
    traces = []

    def replica(x):
        traces.append(1)
        return jnp.sum(x)

    @uni.function
    def epoch(iterator, n):
        def body(i, summed):
            found = s.run(replica, args=(next(iterator),))
            return i + 1, summed + s.reduce("SUM", found, axis=None)

        return uni.while_loop(lambda i, _: i < n, body, (0, 0.0))[1]

    dataset = s.experimental_distribute_dataset([*BATCHES[:2], *BATCHES[:2]])
    iterator = iter(dataset)
    assert float(epoch(iterator, np.int32(2))) == 28.0
    traced = len(traces)
    assert float(epoch(iterator, np.int32(1))) == 6.0
    assert len(traces) == traced
    # The data ends within the loop.
    with pytest.raises(uni.errors.OutOfRangeError, match="End of sequence"):
        epoch(iterator, np.int32(2))


def test_a_function_that_runs_on_the_host_has_no_program():
    iterator = numbers()
    choose = uni.function(lambda p: uni.cond(p, lambda: next(iterator), lambda: 0))
    with pytest.raises(ValueError, match=r"next\(iterator\) inside cond"):
        choose.get_concrete_function(uni.TensorSpec((), bool))
    with pytest.raises(ValueError, match="runs on the host"):
        choose.lowered(np.True_)
    assert int(choose(np.True_)) == 0


@pytest.mark.parametrize("wrap", [lambda fn: fn, uni.function])
@pytest.mark.parametrize(
    "body",
    [
        lambda x, add: jax.lax.fori_loop(0, 3, lambda _, t: add(t), x),
        lambda x, add: jax.lax.cond(x > 0, add, lambda x: x, x),
        lambda x, add: jax.jit(add)(x),
        lambda x, add: jax.checkpoint(add)(x),
        lambda x, add: uni.vectorized_map(add, x[None]),
        lambda x, add: uni.recompute_grad(add)(x),
    ],
    ids=["loop", "branch", "jit", "checkpoint", "vectorized_map", "recompute_grad"],
)
def test_a_body_that_jax_traces_by_itself_takes_no_element(wrap, body):
    iterator = numbers()
    step = wrap(lambda x: body(x, lambda x: x + jnp.asarray(next(iterator))))
    with pytest.raises(RuntimeError, match="JAX calls it once"):
        step(jnp.asarray(1))
    assert int(next(iterator)) == 0


def test_a_dataset_that_begins_in_such_a_body_may_be_read_there():
    dataset = uni.data.Dataset.range(3)

    def add(x):
        return functools.reduce(lambda t, e: t + jnp.asarray(np.int32(e)), dataset, x)

    assert int(jax.jit(add)(1)) == 4
    assert int(jax.lax.fori_loop(0, 2, lambda _, x: add(x), 1)) == 7


@pytest.mark.parametrize("is_distributed", [False, True])
def test_replicas_are_given_no_iterator(is_distributed):
    s = uni.distribute.MirroredStrategy(machine.names(2))
    dataset = uni.data.Dataset.range(8).batch(2)
    distributed = s.experimental_distribute_dataset(dataset)
    iterator = iter(distributed if is_distributed else dataset)
    for step in (
        uni.function(lambda it: s.run(lambda it: next(it), args=(it,))),
        lambda it: s.run(uni.function(lambda it: next(it)), args=(it,)),
    ):
        with pytest.raises(ValueError, match="outside of replica_fn"):
            step(iterator)
    first = s.experimental_local_results(next(iterator))[0]
    assert np.asarray(first)[0] == 0


# Random programs: what a statement does to a number, in Python and in a function.
STATEMENTS = st.recursive(
    st.sampled_from(["take", "add", "assign"]),
    lambda inner: st.one_of(
        st.tuples(
            st.just("cond"), st.lists(inner, max_size=2), st.lists(inner, max_size=2)
        ),
        st.tuples(st.just("loop"), st.integers(0, 2), st.lists(inner, max_size=2)),
    ),
    max_leaves=6,
)


def run_in_python(program, x, state):
    for statement in program:
        if statement == "take":
            x = 3 * x + next(state["iterator"])
        elif statement == "add":
            x += 1
        elif statement == "assign":
            state["v"] = state["v"] + x
            x = x + state["v"]
        elif statement[0] == "cond":
            x = run_in_python(statement[1 if x % 2 == 0 else 2], x, state)
        else:
            for _ in range(statement[1]):
                x = run_in_python(statement[2], x, state)
        x %= 1009
    return x


def run_in_function(program, x, take, v):
    for statement in program:
        if statement == "take":
            x = 3 * x + take()
        elif statement == "add":
            x += 1
        elif statement == "assign":
            x = x + v.assign_add(x)
        elif statement[0] == "cond":
            parts = [
                functools.partial(run_in_function, part, x, take, v)
                for part in statement[1:]
            ]
            x = uni.cond(x % 2 == 0, *parts)
        else:
            x = uni.while_loop(
                lambda i, _, n=statement[1]: i < n,
                lambda i, x, p=statement[2]: (i + 1, run_in_function(p, x, take, v)),
                (0, x),
            )[1]
        x = x % 1009
    return x


@pytest.mark.parametrize("is_distributed", [False, True])
@random_programs.tries(15)
@hypothesis.given(program=st.lists(STATEMENTS, min_size=1, max_size=3))
def test_random_programs_take_the_elements_that_python_takes(is_distributed, program):
    expected = iter(range(1000))
    state = {"iterator": expected, "v": 0}
    want = [run_in_python(program, x, state) for x in (1, 2)]

    s = uni.distribute.MirroredStrategy(machine.names(2))
    dataset = uni.data.Dataset.range(2000).batch(2)
    distributed = s.experimental_distribute_dataset(dataset)
    iterator, v = iter(distributed if is_distributed else dataset), uni.Variable(0)

    def take():
        x = next(iterator)
        total = s.reduce("SUM", x, axis=0) if is_distributed else jnp.sum(x)
        # The elements 0 and 1, 2 and 3, ... make 0, 1, ...
        return (uni.cast(total, uni.int32) - 1) // 4

    step = uni.function(lambda x: run_in_function(program, x, take, v))
    assert [int(step(np.int32(x))) for x in (1, 2)] == want
    assert int(v) == state["v"]
    assert int(take()) == next(expected)


def test_iterators_have_the_method_next():
    dataset = uni.data.Dataset.range(4)
    step = uni.function(lambda iterator: iterator.next() + iterator.get_next())
    iterator = iter(dataset)
    assert int(iterator.next()) + int(step(iterator)) == 3
    assert dataset.as_numpy_iterator().next() == 0
