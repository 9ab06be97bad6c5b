"""Concrete functions: what they tell about a program, and how they are called."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni

Spec = uni.TensorSpec


@pytest.fixture
def v():
    return uni.Variable(1.0, name="v")


def test_a_concrete_function_tells_what_goes_in_and_out(v):
    unused = uni.Variable(5.0)
    counter = uni.Variable(0, trainable=False)

    @uni.function
    def f(x, k=2, *, flag=True):
        counter.assign_add(1)
        return {"y": x["a"] * k + v, "n": [counter.value(), None], "f": flag}

    found = f.get_concrete_function({"a": Spec((4, 2)), "b": jnp.zeros(3)}, 3)
    assert found.structured_outputs == {
        "y": Spec((4, 2)),
        "n": [Spec((), "int32"), None],
        "f": Spec((), "bool"),
    }
    assert {x.ref() for x in found.variables} == {v.ref(), counter.ref()}
    assert unused not in found.variables
    assert found.trainable_variables == (v,)
    assert found.inputs[:2] == [Spec((4, 2)), Spec((3,))]
    assert len(found.inputs) == 4
    assert sorted(str(s.dtype) for s in found.outputs) == ["bool", "float32", "int32"]
    args, kwargs = found.structured_input_signature
    assert (args, kwargs) == (({"a": Spec((4, 2)), "b": Spec((3,))}, 3), {"flag": True})
    assert found.name == "f"
    # Nothing has run.
    assert int(counter.numpy()) == 0


def test_a_concrete_function_is_called_with_arrays_only(v):
    traces = []

    @uni.function
    def f(x, k=2, *, flag=True):
        traces.append(1)
        v.assign_add(1.0)
        return x * k if flag else x

    found = f.get_concrete_function(Spec((2,)), 3)
    x = np.ones(2, np.float32)
    for told in (found(x), found(x=x), found(x, 3), found(x, k=3, flag=True)):
        assert told.tolist() == [3.0, 3.0]
    assert found([1, 2]).tolist() == [3.0, 6.0]
    assert float(v.numpy()) == 6.0
    # The function itself runs the same program.
    assert f(x, 3, flag=True).tolist() == [3.0, 3.0]
    assert len(traces) == f.experimental_get_tracing_count() == 1


def test_a_concrete_function_takes_nothing_else():
    f = uni.function(lambda x, k=2: x["a"] * k)
    found = f.get_concrete_function({"a": Spec((2,))}, 3)
    good = {"a": jnp.ones(2)}
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        found()
    with pytest.raises(TypeError, match="was made for k=3, received 4"):
        found(good, 4)
    with pytest.raises(TypeError, match="must be like"):
        found([jnp.ones(2)])
    with pytest.raises(uni.errors.InvalidArgumentError, match="'x' must be an array"):
        found({"a": jnp.ones(3)})
    with pytest.raises(uni.errors.InvalidArgumentError, match="'x' must be an array"):
        found({"a": jnp.ones(2, jnp.int32)})
    with pytest.raises(TypeError, match="missing a required argument"):
        f.get_concrete_function()
    with pytest.raises(ValueError, match="leaves the number of axes open"):
        f.get_concrete_function({"a": Spec(None)})


def test_there_is_one_concrete_function_for_the_same_arguments():
    f = uni.function(lambda x, k: x * k)
    first = f.get_concrete_function(Spec((2,)), 3)
    assert f.get_concrete_function(Spec((2,)), 3) is first
    assert f.get_concrete_function(k=3, x=jnp.zeros(2)) is first
    for other in ((Spec((3,)), 3), (Spec((2,), "int32"), 3), (Spec((2,)), 4)):
        assert f.get_concrete_function(*other) is not first


def test_sizes_may_be_left_open(v):
    f = uni.function(lambda x: (x + v, x.sum(0), x.T @ x))
    found = f.get_concrete_function(Spec((None, 2)))
    assert found.structured_outputs == (Spec((None, 2)), Spec((2,)), Spec((2, 2)))
    assert found.inputs[0] == Spec((None, 2))
    for n in (1, 5):
        assert found(jnp.ones((n, 2)))[1].tolist() == [n, n]
    with pytest.raises(uni.errors.InvalidArgumentError, match="must be an array of"):
        found(jnp.ones((2, 3)))


def test_an_input_signature_says_what_the_arguments_are():
    f = uni.function(lambda x: x * 2, [Spec((None,))])
    found = f.get_concrete_function()
    assert found.structured_input_signature == ((Spec((None,)),), {})
    assert f.get_concrete_function(Spec((3,))) is found
    assert found(jnp.ones(3)).tolist() == [2.0] * 3
    with pytest.raises(TypeError, match="does not match the input_signature"):
        f.get_concrete_function(Spec((3, 2)))


def test_variables_are_made_when_the_function_is_traced():
    class Model:
        w = early = None

        @uni.function
        def __call__(self, x):
            if self.w is None:
                self.w = uni.Variable(jnp.full(x.shape, 2.0))
            return self.w * x

        @uni.function
        def start(self, x):
            if self.early is None:
                self.early = uni.Variable(x + 1.0)
            return self.early.value()

    model = Model()
    found = model.__call__.get_concrete_function(Spec((2,)))
    assert found.variables == (model.w,)
    assert found(jnp.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="depends on an argument of the function"):
        model.start.get_concrete_function(Spec((2,)))


def test_replicas_run_inside_a_concrete_function():
    s = uni.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with s.scope():
        w = uni.Variable(3.0)

    @uni.function
    def step(x):
        each = s.run(lambda y: y * w, args=(x,))
        return each, s.reduce("SUM", each, axis=None)

    found = step.get_concrete_function(Spec((4,)))
    each, total = found.structured_outputs
    assert type(each).__name__ == "PerReplicaSpec"
    assert each.specs == (Spec((4,)), Spec((4,)))
    assert total == Spec((4,))
    assert found.variables == (w,)
    assert found(jnp.ones(4))[1].tolist() == [6.0] * 4


def test_a_concrete_function_stays_compiled_where_functions_run_as_python():
    traced = []
    f = uni.function(lambda x: traced.append(1) or x * 2)
    found = f.get_concrete_function(Spec(()))
    uni.config.run_functions_eagerly(True)
    try:
        assert [float(found(jnp.float32(3.0))) for _ in range(2)] == [6.0, 6.0]
        assert len(traced) == 1
        assert float(f(jnp.float32(3.0))) == 6.0
        assert len(traced) == 2
    finally:
        uni.config.run_functions_eagerly(False)
