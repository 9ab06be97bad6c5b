"""What `jax_debug_nans` and `jax_debug_infs` tell of a step."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.parity.programs import mirrored, per_replica, variable

# A batch for each of two replicas. The root of one number of replica 1 is not one.
BATCHES = np.ones((2, 3, 2), "float32")
BATCHES[1, 2, 0] = -1.0


@pytest.fixture(autouse=True)
def _look():
    with jax.debug_nans(True):
        yield


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


def test_the_error_names_an_argument_or_a_variable_that_comes_so():
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
