"""What `jax_debug_nans` and `jax_debug_infs` tell of a step."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.parity.programs import mirrored, per_replica, variable
from unisono._src.execution import invalid_numbers

# A batch for each of two replicas. The root of one number of replica 1 is not one.
BATCHES = np.ones((2, 3, 2), "float32")
BATCHES[1, 2, 0] = -1.0


@pytest.fixture(autouse=True)
def _look():
    with jax.debug_nans(True):
        yield


@pytest.fixture
def as_worker(monkeypatch):
    """Has the search know the replica of one of two workers only."""

    def choose(worker):
        def explain(found, consts, arrays):
            mesh = dataclasses.replace(
                found.mesh, workers=2, worker=worker, first=worker, copies=1
            )
            whole(dataclasses.replace(found, mesh=mesh), consts, arrays)

        monkeypatch.setattr(invalid_numbers, "explain", explain)

    whole = invalid_numbers.explain
    return choose


def make_step(strategy, w):
    """A step, and the number of its line that computes roots."""

    @unisono.function
    def step(x):
        def replica_fn(x):
            with unisono.GradientTape() as tape:
                # The logarithm is not finite, but it is left out.
                x = jnp.where(x < 9, x, jnp.log(-x * x))
                root = jnp.sqrt(x)
                loss = jnp.mean(root * w)
            w.assign_sub(tape.gradient(loss, w))
            return loss, jnp.sum(x)

        return strategy.run(replica_fn, args=(x,))

    return step, make_step.__code__.co_firstlineno + 9


@pytest.mark.parametrize("is_uneven", [False, True], ids=["even", "uneven"])
def test_the_error_names_step_line_replica_and_example(is_uneven):
    strategy = mirrored(2)
    w = variable(strategy, [1.0, 2.0], "MEAN", name="w")
    step, line = make_step(strategy, w)
    first, second = BATCHES
    x = per_replica(strategy, first[:2] if is_uneven else first, second)
    with pytest.raises(FloatingPointError) as caught:
        step(x)
    found = str(caught.value)
    assert found.startswith("'step' computed a number that is not finite. It appeared")
    assert "first on replica 1 as the result of sqrt" in found
    assert f"{__file__}:{line}, float32[3, 2]" in found
    assert "at position [2, 0], which is example 2 of 3." in found
    assert "It is in the variable 'w', result 0." in found
    # The step changed nothing, and goes on with other numbers.
    assert w.numpy().tolist() == [1.0, 2.0]
    step(per_replica(strategy, first, first))
    assert w.numpy().tolist() == [0.5, 1.5]


def test_the_error_names_an_argument_or_a_variable_that_comes_so(as_worker):
    strategy = mirrored(2)
    w = variable(strategy, [1.0, 2.0], "MEAN", name="w")
    step, _ = make_step(strategy, w)
    data = unisono.data.Dataset.from_tensor_slices(np.ones((4, 2), "float32"))
    data = data.map(lambda x: x).batch(4)
    (good,) = strategy.experimental_distribute_dataset(data)
    step(good)
    with jax.debug_nans(False):
        missing = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, np.nan]])
        data = unisono.data.Dataset.from_tensor_slices(missing.astype("float32"))
        (bad,) = strategy.experimental_distribute_dataset(data.batch(4))
    with pytest.raises(
        FloatingPointError, match="on replica 1 as argument 0"
    ) as caught:
        step(bad)
    assert "at position [1, 1], which is example 1 of 2" in str(caught.value)
    as_worker(1)
    with pytest.raises(FloatingPointError) as again:
        step(bad)
    told, operand, rest = str(again.value).partition("an operand of psum")
    assert str(caught.value).startswith(told) and operand and "result 0" in rest
    as_worker(0)
    with pytest.raises(FloatingPointError, match="Nothing that this worker computes"):
        step(bad)
    with jax.debug_nans(False):
        w.assign([np.nan, 1.0])
    with pytest.raises(FloatingPointError) as caught:
        step(good)
    assert "The variable 'w'" in str(caught.value.__notes__)


def test_infinity_is_found_if_it_is_asked_for_also_without_a_strategy():
    v = unisono.Variable(1.0, name="sum")

    @unisono.function
    def step(x):
        v.assign(jnp.sum(1.0 / x))
        return {"rows": x.shape[0], "loss": v * 0.0}

    x = jnp.array([1.0, 0.0, 2.0])
    with jax.debug_infs(True), pytest.raises(FloatingPointError) as caught:
        step(x)
    found = str(caught.value)
    assert re.search(r"first as the result of div at \S+:\d+, float32\[3\]", found)
    assert "at position [1], which is example 1 of 3" in found
    assert "'sum'" in found and "No variable was changed" in found
    assert v.numpy() == 1.0


def test_a_step_that_has_run_before_the_option_says_so():
    strategy = mirrored(2)
    w = variable(strategy, [1.0, 2.0], "MEAN")
    step, _ = make_step(strategy, w)
    with jax.debug_nans(False):
        step(per_replica(strategy, BATCHES[0], BATCHES[0]))
    # JAX has compiled it so that it updates variables in place.
    with pytest.raises(unisono.errors.FailedPreconditionError, match="Set the option"):
        step(per_replica(strategy, *BATCHES))


def test_an_eager_replica_is_named():
    strategy = mirrored(2)
    x = per_replica(strategy, *BATCHES)
    with pytest.raises(FloatingPointError, match="in sqrt") as caught:
        strategy.run(jnp.sqrt, args=(x,))
    assert caught.value.__notes__[-1] == "It was computed on replica 1."


def test_a_worker_names_what_its_own_replica_computed(as_worker):
    strategy = mirrored(2)
    w = variable(strategy, [1.0, 2.0], "MEAN", name="w")
    step, line = make_step(strategy, w)
    as_worker(1)
    with pytest.raises(FloatingPointError) as caught:
        step(per_replica(strategy, *BATCHES))
    found = str(caught.value)
    assert f"first on replica 1 as the result of sqrt at {__file__}:{line}," in found
    assert "float32[3, 2], at position [2, 0], which is example 2 of 3." in found
    assert f"It is in an operand of psum at {__file__}:{line + 2}, result 0." in found
    as_worker(0)
    with pytest.raises(FloatingPointError) as caught:
        step(per_replica(strategy, *BATCHES))
    found = str(caught.value)
    assert "Nothing that this worker computes before the workers exchange" in found
    assert f"which is first psum at {__file__}:{line + 2}. No variable" in found


def run_as_worker(as_worker, worker, replica_fn, *rest):
    """Returns what a worker tells of a compiled `run` over the batches."""
    strategy = mirrored(2)

    @unisono.function
    def step(x):
        parts = strategy.run(replica_fn, args=(x, *rest))
        parts = strategy.run(lambda y: y + 1.0, args=(parts,))
        return jnp.sum(jnp.stack(strategy.experimental_local_results(parts)))

    as_worker(worker)
    with pytest.raises(FloatingPointError) as caught:
        step(per_replica(strategy, *BATCHES))
    return str(caught.value)


def loop_and_branch(x):
    """Computes with a random number, a loop and a branch of the replica's number."""
    number = unisono.distribute.get_replica_context().replica_id_in_sync_group
    key = jax.random.fold_in(jax.random.key(3), number)
    x = x + 0.0 * jax.random.normal(key, x.shape)
    x = jax.lax.fori_loop(0, 2, lambda i, y: y @ jnp.eye(2), x)
    x = jax.lax.cond(jnp.sum(x) > 0, lambda y: y, lambda y: -y, x)
    return jnp.sqrt(x - 1.0 * number)


def test_a_worker_computes_with_numbers_of_its_replica(as_worker):
    found = run_as_worker(as_worker, 1, loop_and_branch)
    assert "first on replica 1 as the result of sqrt" in found
    assert "at position [0, 0]" not in found
    found = run_as_worker(as_worker, 0, loop_and_branch)
    assert "Nothing that this worker computes before" in found


def test_a_worker_searches_on_beside_what_it_does_not_know(as_worker):
    def replica_fn(x):
        total = unisono.distribute.get_replica_context().all_reduce("SUM", x)
        # A choice by what is not known may leave infinity out.
        kept = jnp.where(total < 99, x, jnp.log(x - x))
        kept = kept + jnp.maximum(total, jnp.log(x - x))
        kept = kept + jnp.max(total, initial=-jnp.inf)
        root = jnp.sqrt(x)
        return root * total + kept

    with jax.debug_infs(True):
        found = run_as_worker(as_worker, 1, replica_fn)
    assert "first on replica 1 as the result of sqrt" in found
    assert "It is in an operand of mul at" in found
    with jax.debug_infs(True):
        found = run_as_worker(as_worker, 0, replica_fn)
    assert "which is first psum at" in found


def test_a_collective_in_a_loop_is_not_known_either(as_worker):
    def replica_fn(x):
        def body(i, y):
            return y + jax.lax.psum(x, "replica")

        return jnp.sqrt(jax.lax.fori_loop(0, 2, body, x) - 4.5)

    for worker in (0, 1):
        found = run_as_worker(as_worker, worker, replica_fn)
        at = r"at \S+:\d+"
        assert re.search(f"first psum {at} inside scan {at}. No variable", found)


def test_a_number_inside_a_program_that_is_not_compiled_is_no_error():
    s = mirrored(2)

    @unisono.function
    def step(x):
        # The root is NaN, and is not used.
        found = s.run(lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0), (x,))
        return s.reduce("SUM", found, axis=None)

    with jax.debug_nans(False), jax.disable_jit():
        assert float(step(jnp.float32(-4.0))) == 0.0
