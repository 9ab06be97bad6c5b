"""Copies of a mirrored variable that a program writes one by one stay equal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono

DIFFERENT = "would get different values on different replicas"


@pytest.fixture
def strategy():
    return unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def make(strategy, value=0.0, **options):
    with strategy.scope():
        return unisono.Variable(value, name="v", **options)


def test_copies_that_a_function_writes_differently_are_refused(strategy):
    v = make(strategy)

    @unisono.function
    def step(x):
        v.values[0].assign(x)
        v.values[1].assign(x + 1)
        return v.read_value()

    with pytest.raises(ValueError, match=DIFFERENT):
        step(3.0)
    assert [float(c.value()) for c in v.values] == [0.0, 0.0]


@pytest.mark.parametrize(
    "write",
    [
        lambda v, x: v.assign(x),
        lambda v, x: v.assign_add(x * 2),
        lambda v, x: v.assign(jnp.where(x > 0, jnp.linalg.norm(v * x), 1.0)),
        lambda v, x: v.assign(jnp.sum(jnp.asarray([1.0, 2.0]) * x)),
        lambda v, x: v.assign(jax.lax.cond(x > 0, lambda: x, lambda: -x)),
        lambda v, x: v.assign(jax.random.uniform(jax.random.key(3)) + x),
    ],
)
def test_copies_that_a_function_writes_alike_are_stored(strategy, write):
    v, alone = make(strategy, 1.5), unisono.Variable(1.5)

    @unisono.function
    def step(x):
        for copy in v.values:
            write(copy, x)

    step(3.0)
    write(alone, jnp.float32(3.0))
    found = [float(c.value()) for c in v.values]
    assert found == pytest.approx([float(alone.value())] * 2, rel=1e-6)


@pytest.mark.parametrize("constant", [np.arange(3.0), 2.0])
def test_equal_constants_count_as_equal_and_others_do_not(strategy, constant):
    v = make(strategy, np.zeros(np.shape(constant), np.float32))

    def step(change):
        for i, copy in enumerate(v.values):
            copy.assign(jnp.asarray(constant + change * i, jnp.float32))

    unisono.function(lambda: step(0))()
    assert v.numpy() == pytest.approx(constant)
    with pytest.raises(ValueError, match=DIFFERENT):
        unisono.function(lambda: step(1))()


def test_random_numbers_of_python_make_copies_differ(strategy):
    v, draw = make(strategy), np.random.default_rng(0)
    step = unisono.function(
        lambda: strategy.extended.update(v, lambda c: c.assign(draw.random()))
    )
    with pytest.raises(ValueError, match=DIFFERENT):
        step()


def test_an_update_of_replicas_with_uneven_batches_must_be_one_value(strategy):
    v = make(strategy)
    x = unisono.distribute.PerReplica([np.ones(1, "f"), np.ones(2, "f")])

    def replica(x, is_reduced):
        context = unisono.distribute.get_replica_context()
        total = jnp.sum(x)
        if is_reduced:
            total = context.all_reduce("SUM", total) * 2
        strategy.extended.update(v, lambda c, y: c.assign(y), args=(total,))

    strategy.run(unisono.function(lambda x: replica(x, True)), args=(x,))
    assert v.numpy() == 6.0
    with pytest.raises(ValueError, match=DIFFERENT):
        strategy.run(unisono.function(lambda x: replica(x, False)), args=(x,))


def test_a_replica_that_writes_single_copies_differently_is_refused(strategy):
    v = make(strategy)

    @unisono.function
    def replica(x):
        v.values[0].assign(x)
        v.values[1].assign(x + 1)

    with pytest.raises(ValueError, match=DIFFERENT):
        strategy.run(replica, args=(3.0,))
    assert v.numpy() == 0.0


def test_a_replica_reads_and_writes_the_copy_that_it_names(strategy):
    on_read = unisono.VariableSynchronization.ON_READ
    add_up = unisono.VariableAggregation.SUM
    v = make(strategy, synchronization=on_read, aggregation=add_up)
    for copy, value in zip(v.values, (1.0, 5.0), strict=True):
        copy.assign(value)

    def replica():
        v.values[1].assign_add(10.0)
        return v.values[1] + 0.0

    # Each of the two replicas adds once.
    found = strategy.run(unisono.function(replica))
    assert [float(c.value()) for c in v.values] == [1.0, 25.0]
    own = strategy.experimental_local_results(found)
    assert sorted(float(x) for x in own) == [15.0, 25.0]


@pytest.mark.parametrize("is_even", [True, False])
def test_a_result_of_a_loop_or_branch_is_compared_by_itself(strategy, is_even):
    # As the count of a random stream in `nnx.scan`, beside the examples.
    count = make(strategy, [0, 0])
    sizes = (2, 2) if is_even else (2, 1)
    x = unisono.distribute.PerReplica([np.ones(n, "f") for n in sizes])

    def write(value):
        for copy, new in zip(count.values, value, strict=True):
            copy.assign(new)

    def scanned(x, added):
        def body(total, number):
            return total + jnp.sum(x), (number + added(x), number * 2)

        return jax.lax.scan(body, 0.0, count.values[0] + 0)

    def chosen(x, added):
        def branch(factor):
            return lambda: (factor * jnp.sum(x), (count.values[0] + added(x), x))

        return jax.lax.cond(count.values[0][0] < 2, branch(1), branch(2))

    def step(compute, added, x):
        parts = [compute(part, added) for part in x.values]
        write([number for _, (number, _) in parts])
        return [total for total, _ in parts]

    for compute in (scanned, chosen):
        before = count.numpy()
        unisono.function(lambda x, f=compute: step(f, lambda _: 1, x))(x)
        assert count.numpy().tolist() == (before + 1).tolist()
        with pytest.raises(ValueError, match=DIFFERENT):
            unisono.function(
                lambda x, f=compute: step(f, lambda x: jnp.int32(x[0]), x)
            )(x)
