"""`unisono.function`: tracing, signatures, methods, state and failure."""

import collections
import contextlib
import copy
import dataclasses
import gc
import math
import pickle
import threading
import types
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni
from tests import machine
from tests.threads import at_once
from unisono._src.execution import program_cache

context = uni.distribute.get_replica_context


def strategy_of(replicas):
    return uni.distribute.MirroredStrategy(machine.names(replicas))


@pytest.fixture(params=[1, 2, 4, 8])
def s(request):
    return strategy_of(request.param)


@pytest.mark.feature("D12")
def test_a_function_is_traced_once_per_shape_and_type():
    calls = []

    @uni.function
    def double(x):
        calls.append(x.shape)
        return x * 2

    for _ in range(3):
        double(jnp.ones(2))
        double(jnp.ones(3))
        double(jnp.ones(2, jnp.int32))
    assert len(calls) == 3
    assert double.experimental_get_tracing_count() == 3


def test_numbers_and_text_are_part_of_the_signature():
    calls = []

    @uni.function
    def f(x, k, *, mode="a"):
        calls.append((k, mode))
        return x * k if mode == "a" else x + k

    x = jnp.float32(3.0)
    assert [float(f(x, 2)), float(f(x, 5)), float(f(x, 2))] == [6.0, 15.0, 6.0]
    assert float(f(x, 2, mode="b")) == 5.0
    assert calls == [(2, "a"), (5, "a"), (2, "b")]


def test_zero_and_negative_zero_are_told_apart():
    sign = uni.function(lambda k: np.copysign(1.0, k))
    assert [float(sign(0.0)), float(sign(-0.0))] == [1.0, -1.0]


def test_structures_go_in_and_come_out_as_they_are():
    @uni.function
    def f(tree):
        return {"sum": tree["a"] + tree["b"][0], "none": None, "text": "x", "n": 5}

    out = f({"a": jnp.ones(2), "b": (jnp.ones(2), None)})
    np.testing.assert_array_equal(out["sum"], [2.0, 2.0])
    assert out["none"] is None
    assert out["text"] == "x"
    assert isinstance(out["n"], jax.Array)


def test_variables_are_found_and_updated():
    v, w = uni.Variable(1.0), uni.Variable([1.0, 2.0])

    @uni.function
    def f():
        v.assign_add(1.0)
        w.assign(w * v)
        return v + 0.0

    assert [float(f()), float(f())] == [2.0, 3.0]
    np.testing.assert_array_equal(w.numpy(), [6.0, 12.0])


def test_a_variable_that_only_some_shapes_touch_is_retraced_once_each():
    v = uni.Variable(0.0)
    calls = []

    @uni.function
    def f(x):
        calls.append(x.shape)
        if x.shape[0] == 3:
            v.assign_add(1.0)
        return x * 2

    for _ in range(5):
        f(jnp.ones(3))
        f(jnp.ones(4))
    assert len(calls) == 2
    assert float(v.numpy()) == 5.0


def test_variables_may_be_created_on_the_first_call_only():
    made = []

    @uni.function
    def once(x):
        if not made:
            made.append(uni.Variable(10.0))
        return made[0].assign_add(x)

    assert [float(once(1.0)), float(once(1.0))] == [11.0, 12.0]

    @uni.function
    def always():
        return uni.Variable(1.0) + 1.0

    with pytest.raises(ValueError, match="singleton"):
        always()


@pytest.mark.parametrize(("replicas", "parameters"), [(2, 0), (2, 3), (4, 2)])
def test_a_replica_makes_a_variable_of_one_on_the_parameter_device(
    replicas, parameters
):
    strategy = uni.distribute.experimental.CentralStorageStrategy(
        machine.names(replicas), machine.name(parameters)
    )
    average = uni.train.ExponentialMovingAverage(0.5)
    with strategy.scope():
        v = uni.Variable([1.0], aggregation=uni.VariableAggregation.MEAN)
    made = []

    def replica_fn():
        if not made:
            made.append(uni.Variable(v.read_value() + 1.0))
        average.apply([v])
        v.assign_add([2.0])
        return made[0].read_value(), average.average(v).read_value()

    step = uni.function(lambda: strategy.run(replica_fn))
    for wanted in (1.0, 2.0):
        results = zip(*map(strategy.experimental_local_results, step()), strict=True)
        for first, mean in results:
            assert (first.tolist(), mean.tolist()) == ([2.0], [wanted])
    assert made[0].device == average.average(v).device == v.device


@dataclasses.dataclass
class Point:
    """A class whose parts neither JAX nor the package knows."""

    x: object


def test_arrays_inside_of_an_unknown_object_are_no_result():
    makers = (
        Point,
        lambda x: types.SimpleNamespace(x=[x]),
        lambda x: collections.deque([x]),
        lambda x: {"x": (x,)}.values(),
    )
    for make in makers:
        with pytest.raises(TypeError, match=r"unsupported type \w+: .*register"):
            uni.function(lambda x, make=make: [make(x + 1.0)])(jnp.ones(2))
    # One without arrays of the program comes back as it is.
    point = Point("text")
    assert uni.function(lambda: [point])()[0] is point


def test_a_variable_of_a_call_that_failed_has_its_first_value():
    class Model:
        w = None

        @uni.function
        def step(self, x):
            if self.w is None:
                self.w = uni.Variable(jnp.ones(3))
            self.w.assign_add(x @ jnp.ones((3, 3)))

    model = Model()
    with pytest.raises(TypeError):
        model.step(jnp.ones(4))
    np.testing.assert_array_equal(model.w.numpy(), np.ones(3))
    model.step(jnp.ones(3))
    np.testing.assert_array_equal(model.w.numpy(), np.full(3, 4.0))


@pytest.mark.feature("D12")
def test_functions_nest():
    v = uni.Variable(0.0)
    inner = uni.function(lambda x: v.assign_add(x))
    outer = uni.function(lambda x: inner(x) * 10.0)
    assert [float(outer(jnp.float32(1.0))) for _ in range(2)] == [10.0, 20.0]


def test_methods_are_compiled_for_each_object():
    class Scale:
        def __init__(self, k):
            self.k = k

        @uni.function
        def __call__(self, x):
            return x * self.k

        @uni.function
        def f(self, x):
            return x * self.k

    a = Scale(2.0)
    assert float(a.f(jnp.float32(1.0))) == 2.0
    b = copy.copy(a)
    b.k = 10.0
    assert float(b.f(jnp.float32(1.0))) == 10.0
    assert float(Scale(3.0).f(jnp.float32(1.0))) == 3.0
    alive = weakref.ref(a)
    del a
    gc.collect()
    assert alive() is None


def test_an_input_signature_binds_by_name_and_checks():
    spec = uni.TensorSpec((), jnp.float32)

    @uni.function(input_signature=[spec, spec])
    def minus(x, y):
        return x - y

    assert float(minus(y=1.0, x=5.0)) == 4.0
    assert float(minus(5, 1)) == 4.0
    assert minus.experimental_get_tracing_count() == 1
    with pytest.raises(TypeError, match="input_signature"):
        minus(jnp.ones(2), 1.0)
    with pytest.raises(TypeError):
        minus(1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        uni.function(lambda: minus(jnp.ones(2), 1.0))()


def test_a_value_read_before_a_step_stays_what_it_was(s):
    with s.scope():
        v = uni.Variable([1.0, 2.0])
    before = v.value()
    step = uni.function(lambda: v.assign(v * 2.0))
    step()
    step()
    np.testing.assert_array_equal(before, [1.0, 2.0])
    np.testing.assert_array_equal(v.numpy(), [4.0, 8.0])


def test_two_variables_never_share_an_array(s):
    with s.scope():
        v, w = uni.Variable([1.0, 2.0]), uni.Variable([5.0, 6.0])
    v.assign(w)
    uni.function(lambda: w.assign(w * 2.0))()
    np.testing.assert_array_equal(v.numpy(), [5.0, 6.0])
    np.testing.assert_array_equal(w.numpy(), [10.0, 12.0])


def test_a_variable_does_not_follow_the_callers_memory(s):
    source = np.ones(1 << 16, np.float32)
    with s.scope():
        v = uni.Variable(source)
    source[:] = 2.0
    assert v.numpy()[0] == 1.0
    v.assign(source)
    source[:] = 3.0
    assert v.numpy()[0] == 2.0


def test_after_an_error_in_a_step_every_variable_is_as_before(s):
    with s.scope():
        v = uni.Variable(1.0, aggregation=uni.VariableAggregation.MEAN)
        w = uni.Variable(2.0)

    @uni.function
    def step():
        s.run(lambda: v.assign(5.0))
        w.assign(7.0)
        raise KeyError("in the middle")

    with pytest.raises(KeyError):
        step()
    assert (float(v.numpy()), float(w.numpy())) == (1.0, 2.0)


def test_a_step_that_fails_while_it_runs_leaves_its_variables():
    with strategy_of(1).scope():
        v = uni.Variable(1.0)

    def fail(_):
        raise ValueError("boom")

    @uni.function
    def step():
        v.assign_add(1.0)
        v.assign(jax.pure_callback(fail, jax.ShapeDtypeStruct((), jnp.float32), v + 0))

    with pytest.raises(Exception, match="boom"):
        step()
    assert float(v.numpy()) == 1.0


@pytest.mark.parametrize("body", ["scan", "cond", "jit", "while"])
def test_assigning_inside_a_body_of_jax_is_explained(body, s):
    with s.scope():
        v = uni.Variable(0.0, name="v")

    def put(x):
        v.assign(x)
        return x

    bodies = {
        "scan": lambda: jax.lax.scan(lambda c, x: (c, put(x)), 0.0, jnp.ones(2)),
        "cond": lambda: jax.lax.cond(True, lambda: put(1.0), lambda: 0.0),
        "jit": lambda: jax.jit(put)(jnp.float32(1.0)),
        "while": lambda: jax.lax.while_loop(
            lambda c: c < 1.0, lambda c: put(c + 1), 0.0
        ),
    }
    for run in (bodies[body], uni.function(bodies[body])):
        with pytest.raises(RuntimeError, match=r"'v' \(created at .*test_function"):
            run()
    assert float(v.numpy()) == 0.0


def test_a_function_inside_jax_jit_loses_nothing():
    v = uni.Variable(1.0)
    step = uni.function(lambda x: v.assign_add(x))
    with pytest.raises(RuntimeError, match=r"jax\.jit"):
        jax.jit(step)(2.0)
    assert float(v.numpy()) == 1.0


def test_reading_a_variable_in_jax_jit_is_refused():
    v = uni.Variable(1.0, name="v")
    with pytest.raises(RuntimeError, match=r"'v' was read inside a function given to"):
        jax.jit(lambda x: x * v)(2.0)


def _persistent(carry, x):
    return carry + _shared[0] * x, x


_shared = []


def test_bodies_that_jax_remembers_see_the_variable_of_the_moment():
    _shared[:] = [uni.Variable(1.0)]

    @uni.function
    def twice(x):
        first = jax.lax.scan(_persistent, 0.0, x)[0]
        _shared[0].assign_add(1.0)
        return first, jax.lax.scan(_persistent, 0.0, x)[0]

    for n, expected in ((3, (3.0, 6.0)), (3, (6.0, 9.0)), (4, (18.0, 24.0))):
        assert tuple(map(float, twice(jnp.arange(float(n))))) == expected


def test_a_gradient_reaches_through_checkpoint_and_jit():
    w = uni.Variable(0.5)
    inner = jax.checkpoint(jax.jit(lambda x: jnp.sin(x * w)))

    @uni.function
    def both():
        return uni.value_and_grad(lambda: inner(2.0), [w])()

    for at in (0.5, 1.5):
        w.assign(at)
        value, (gradient,) = both()
        np.testing.assert_allclose(value, np.sin(2 * at), rtol=1e-5)
        np.testing.assert_allclose(gradient, 2 * np.cos(2 * at), rtol=1e-5)


@pytest.mark.feature("B04", "D12")
@pytest.mark.parametrize("count", [8, 200])
def test_threads_that_call_a_new_function_trace_it_once(count):
    v, calls = uni.Variable(0.0), []

    @uni.function
    def step(x):
        calls.append(1)
        if not made:
            made.append(uni.Variable(0.0))
        made[0].assign_add(x)
        return v.assign_add(jnp.tanh(x) * 0.0 + x)

    made: list = []
    at_once(*[lambda: step(jnp.float32(1.0))] * count)
    # A trace that creates variables is repeated.
    assert (len(calls), len(made), step.experimental_get_tracing_count()) == (2, 1, 1)
    assert float(v.numpy()) == float(made[0].numpy()) == count


@pytest.mark.needs_devices(2)
def test_threads_that_call_a_new_method_or_run_a_new_function_trace_it_once():
    strategy, calls = strategy_of(2), []

    class Model:
        @uni.function
        def step(self, x):
            calls.append("method")
            return x

    def fn(x):
        calls.append("run")
        return x

    model, compiled = Model(), uni.function(fn)
    at_once(*[lambda: model.step(jnp.ones(2))] * 4)
    at_once(*[lambda: strategy.run(compiled, (jnp.ones(2),))] * 4)
    assert calls == ["method", "run", "run"]


def test_threads_that_call_a_new_function_take_an_element_each():
    calls, seen = [], []
    elements = iter(uni.data.Dataset.range(10))

    @uni.function
    def step(iterator):
        calls.append(1)
        return next(iterator)

    at_once(*[lambda: seen.append(int(step(elements)))] * 4)
    assert (sorted(seen), calls) == ([0, 1, 2, 3], [1])


def test_a_trace_that_waits_for_a_thread_that_waits_for_it_ends(monkeypatch):
    monkeypatch.setattr(program_cache, "_TRACE_SECONDS", 0.1)
    seen = []

    @uni.function
    def step(x):
        if not seen:
            seen.append(threading.current_thread())
            at_once(lambda: step(x_outside))
        return x * 2.0

    x_outside = jnp.float32(3.0)
    assert float(step(jnp.float32(1.0))) == 2.0


@pytest.mark.feature("B04")
def test_threads_may_share_a_function():
    v = uni.Variable(0.0)
    step = uni.function(lambda: v.assign_add(1.0))
    step()
    threads = [
        threading.Thread(target=lambda: [step() for _ in range(50)]) for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert float(v.numpy()) == 201.0


@pytest.mark.feature("D11")
@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_python_runs_once_per_replica_per_trace(replicas):
    strategy = strategy_of(replicas)
    calls, outer = [], []

    @uni.function
    def step(x):
        outer.append(1)
        return strategy.run(lambda x: calls.append(1) or x * 2, args=(x,))

    for i in range(3):
        step(jnp.float32(i))
    assert (len(calls), len(outer)) == (replicas, 1)


@pytest.mark.parametrize("replicas", [2, 4, 8])
def test_python_that_differs_between_replicas_gives_each_its_own_number(replicas):
    strategy = strategy_of(replicas)
    counter = iter(range(1000))

    @uni.function
    def step(x):
        return strategy.run(lambda x: x + float(next(counter)), args=(x,))

    found = [float(x) for x in strategy.experimental_local_results(step(jnp.zeros(())))]
    assert len(set(found)) == replicas


@pytest.mark.feature("M01")
def test_uneven_parts_give_the_same_as_one_device():
    parts = [np.arange(3.0, dtype=np.float32), np.arange(1.0, dtype=np.float32)]
    strategy = strategy_of(2)
    value = strategy.experimental_distribute_values_from_function(
        lambda c: parts[c.replica_id_in_sync_group]
    )
    calls = []

    @uni.function
    def total(x):
        calls.append(1)
        return strategy.reduce("SUM", strategy.run(jnp.sum, args=(x,)), axis=None)

    assert [float(total(value)), float(total(value))] == [3.0, 3.0]
    assert len(calls) == 1


def test_copies_of_a_mirrored_variable_cannot_diverge_in_a_program():
    strategy = strategy_of(2)
    with strategy.scope():
        v = uni.Variable(0.0, name="v")

    def replica():
        x = context().replica_id_in_sync_group + 1.0
        strategy.extended.update(v, lambda c, x: c.assign(x), args=(x,))

    with pytest.raises(ValueError, match=r"'v' .* different values"):
        uni.function(lambda: strategy.run(replica))()
    with pytest.raises(ValueError, match="different values"):
        strategy.run(replica)
    assert float(v.numpy()) == 0.0


@pytest.mark.parametrize("kind", ["cond", "while"])
def test_replicas_that_disagree_about_a_collective_are_refused(kind):
    strategy = strategy_of(2)

    def reduce(x):
        return context().all_reduce("SUM", x)

    def replica():
        number = context().replica_id_in_sync_group
        if kind == "cond":
            return jax.lax.cond(number == 0, lambda: reduce(1.0), lambda: jnp.zeros(()))
        return jax.lax.while_loop(lambda c: c < number, lambda c: reduce(c) + 1.0, 0.0)

    with pytest.raises(RuntimeError, match="merge_call"):
        uni.function(lambda: strategy.run(replica))()


def test_a_program_has_one_all_reduce_for_a_whole_update(s):
    with s.scope():
        made = [uni.Variable(jnp.ones(4)) for _ in range(3)]

    @uni.function
    def step(x):
        def replica(x):
            grads = uni.grad(lambda: sum(jnp.sum(v * x) for v in made), made)()
            total = context().all_reduce("SUM", grads)
            for v, g in zip(made, total, strict=True):
                s.extended.update(v, lambda c, g: c.assign_sub(0.1 * g), args=(g,))

        s.run(replica, args=(x,))

    x = s.experimental_distribute_values_from_function(lambda c: jnp.ones(4))
    text = step.lowered(x).compile().as_text()
    expected = 0 if s.num_replicas_in_sync == 1 else 1
    assert text.count(" all-reduce(") == expected


@pytest.fixture
def eagerly():
    """Runs functions as plain Python for one test."""
    uni.config.run_functions_eagerly(True)
    yield
    uni.config.run_functions_eagerly(False)


def _train(s):
    """Returns what a small training gives, and how often its Python code ran."""
    calls = []
    with s.scope():
        v = uni.Variable(1.0, aggregation=uni.VariableAggregation.MEAN)

    @uni.function
    def replica(x):
        calls.append("replica")
        v.assign_add(jnp.sum(x))
        return jnp.sum(x) * 2.0

    @uni.function
    def step(iterator, scale):
        calls.append("step")
        found = s.run(replica, args=(next(iterator),))
        return {"loss": s.reduce("SUM", found, axis=None) * scale, "name": "a"}

    @uni.function(input_signature=[uni.TensorSpec(())])
    def double(x):
        return x + x, x.dtype.name

    batches = [np.full(4, float(i), np.float32) for i in range(4)]
    iterator = iter(s.experimental_distribute_dataset(batches))
    told = [float(step(iterator, 10.0)["loss"]) for _ in range(3)]
    told.append(sum(float(x) for x in s.run(replica, args=(next(iterator),)).values))
    with pytest.raises(uni.errors.OutOfRangeError):
        step(iterator, 10.0)
    number, kind = double(3)
    return [*told, float(v.numpy()), float(number), kind], calls


def test_functions_run_as_python_where_it_is_asked_for(eagerly):
    s = uni.distribute.MirroredStrategy(machine.names(2))
    assert uni.config.functions_run_eagerly()
    told, calls = _train(s)
    # Python runs every time; the last call of a step found no batch.
    assert (calls.count("step"), calls.count("replica")) == (5 - 1, 8)
    uni.config.run_functions_eagerly(False)
    assert not uni.config.functions_run_eagerly()
    compiled, calls = _train(s)
    assert told == compiled
    assert calls.count("step") == 1


def test_a_function_that_was_compiled_before_runs_as_python_too(request):
    seen = []

    @uni.function
    def double(x):
        seen.append(isinstance(x, jax.core.Tracer))
        return x * 2

    x = jnp.float32(3.0)
    assert [float(double(x)) for _ in range(3)] == [6.0] * 3
    request.getfixturevalue("eagerly")
    assert [float(double(x)) for _ in range(2)] == [6.0] * 2
    assert seen == [True, False, False]
    assert type(double(3)) is int
    uni.config.run_functions_eagerly(False)
    assert float(double(x)) == 6.0
    assert seen == [True, False, False, False]


# Defaults beside an input_signature.


def test_a_default_is_used_where_the_input_signature_has_a_spec_for_it():
    vector, number = uni.TensorSpec([None]), uni.TensorSpec([])

    @uni.function(input_signature=[vector, number])
    def scale(x, by=2.0, *, plus=1.0):
        return x * by + plus

    assert scale(jnp.ones(2)).tolist() == [3.0, 3.0]
    assert scale(jnp.ones(3), 4).tolist() == [5.0, 5.0, 5.0]
    assert scale(by=3.0, x=jnp.ones(1)).tolist() == [4.0]
    # One program for all numbers, as for those that are given.
    assert scale.experimental_get_tracing_count() <= 3
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        scale()  # type: ignore[call-arg]


def test_an_argument_without_a_spec_is_its_default():
    @uni.function(input_signature=[uni.TensorSpec([None])])
    def call(x, training=False, *, by=2.0):
        return x * (10.0 if training else by)

    wanted = [2.0, 2.0]
    assert call(jnp.ones(2)).tolist() == wanted
    assert call(jnp.ones(2), False).tolist() == wanted
    assert call(jnp.ones(2), training=False, by=2.0).tolist() == wanted
    with pytest.raises(TypeError, match="default False, received True"):
        call(jnp.ones(2), training=True)
    with pytest.raises(TypeError, match=r"default 2\.0, received 3\.0"):
        call(jnp.ones(2), by=3.0)
    # An array is never taken for the default.
    with pytest.raises(TypeError, match="'by'"):
        call(jnp.ones(2), by=jnp.float32(2.0))


def test_an_argument_that_only_has_a_name_may_have_a_spec():
    @uni.function(input_signature=[uni.TensorSpec([]), uni.TensorSpec([])])
    def add(x, *, y=3.0):
        return x + y

    assert float(add(1)) == 4.0
    assert float(add(1, y=2)) == 3.0


# Copies and pickles.


class Trainer(uni.Module):
    def __init__(self):
        super().__init__()
        self.weight = uni.Variable(2.0)
        self.step = uni.function(self._step)

    def _step(self, x):
        return self.weight * x

    @uni.function
    def method(self, x):
        return self.weight + x


@uni.function
def found_by_name(x):
    return x + 1


def test_a_copy_of_an_object_has_functions_of_its_own():
    first = Trainer()
    assert float(first.step(3.0)) == 6.0
    second = copy.deepcopy(first)
    second.weight.assign(5.0)
    assert [float(t.step(3.0)) for t in (first, second)] == [6.0, 15.0]
    assert [float(t.method(1.0)) for t in (first, second)] == [3.0, 6.0]
    bound = copy.deepcopy(first.method)
    assert bound.__self__ is not first and float(bound(1.0)) == 3.0


def test_a_copy_of_a_function_is_traced_by_itself_and_has_its_options():
    weight = uni.Variable(2.0)
    spec = [uni.TensorSpec([])]
    first = uni.Function(lambda x: weight * x, spec, "scale", max_programs=3)
    assert float(first(3)) == 6.0
    for second in (copy.copy(first), copy.deepcopy(first)):
        assert second.experimental_get_tracing_count() == 0
        assert second.input_signature == spec and second.__name__ == "scale"
        weight.assign(2.0)
        assert float(second(3)) == 6.0


def test_a_function_of_a_module_is_pickled_by_its_name():
    assert int(found_by_name(1)) == 2
    assert pickle.loads(pickle.dumps(found_by_name)) is found_by_name
    assert copy.deepcopy(found_by_name) is found_by_name


def test_another_function_is_pickled_with_its_python_function():
    made = uni.function(math.hypot)
    assert pickle.loads(pickle.dumps(made)).python_function is math.hypot
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        pickle.dumps(uni.function(lambda x: x))


@pytest.mark.parametrize("in_scope", [False, True])
def test_a_variable_that_is_returned_is_its_value_then(in_scope):
    # TensorFlow's numbers.
    with strategy_of(1).scope() if in_scope else contextlib.nullcontext():
        v = uni.Variable(1.0)
    get = uni.function(lambda: {"v": v})
    epoch = uni.function(lambda data: [v.assign_add(x) for x in data] and v)

    @uni.function
    def step():
        before = get()["v"]
        v.assign_add(1.0)
        return before, v

    assert [float(x) for x in step()] == [1.0, 2.0]
    compiled = get()["v"]
    ran_on_host = epoch(uni.data.Dataset.from_tensor_slices([1.0, 2.0]))
    with uni.GradientTape() as tape:
        inside_a_tape = get()["v"]
        v.assign(0.0)
        loss = 3.0 * inside_a_tape
    assert [float(x) for x in (compiled, ran_on_host, loss)] == [2.0, 5.0, 15.0]
    assert float(tape.gradient(loss, v)) == 3.0


def test_a_part_of_a_variable_that_is_returned_is_its_value_then():
    v = uni.Variable([1.0, 2.0, 3.0])

    @uni.function
    def step():
        before = v[0:2]
        v[0].assign(50.0)
        return before, v

    assert [x.tolist() for x in step()] == [[1.0, 2.0], [50.0, 2.0, 3.0]]


def test_a_variable_that_a_replica_returns_is_its_value_then():
    s = strategy_of(2)
    with s.scope():
        v = uni.Variable(1.0)
    get = uni.function(lambda: v)

    @uni.function
    def step():
        before = s.run(get)
        v.assign_add(5.0)
        return before

    assert [float(x) for x in s.experimental_local_results(step())] == [1.0, 1.0]


def test_numbers_that_a_function_on_the_host_returns_are_arrays():
    @uni.function
    def count(data):
        found = 0
        for _ in data:
            found += 1
        return found, {"half": found / 2}

    found, rest = count(uni.data.Dataset.range(3))
    assert found.numpy() == 3 and found.dtype == np.int32
    assert rest["half"].numpy() == 1.5 and rest["half"].dtype == np.float32
