"""What could make workers differ is found in the program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import unisono
from tests import machine
from unisono._src.execution import value_sources
from unisono._src.machines.topology import AXIS, Topology

SPLIT, SAME = PartitionSpec(AXIS), PartitionSpec()
OWN, RATE = value_sources.OWN, 2


def mapped(body, in_specs, out_specs):
    mesh = Topology.of(machine.names(2)).mesh
    return jax.shard_map(
        body, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )


def find(program):
    """Returns the sources of the new value of a program of a variable, rows and a rate.

    Each worker passes a rate of its own.
    """
    closed = jax.make_jaxpr(program)(jnp.ones(3), jnp.ones((2, 3)), jnp.float32(1))
    follows = value_sources.Dependence()
    (found,) = follows.outputs(closed.jaxpr, [0, 0, RATE])
    return found, follows.decisive


def total(rows):
    return mapped(lambda x: jax.lax.psum(x[0], AXIS), SPLIT, SAME)(rows)


def own_row(rows):
    return mapped(lambda x: x[0], SPLIT, SAME)(rows)


def scaled_in_replicas(v, rows, rate):
    def body(x, rate):
        return jax.lax.psum(x[0], AXIS) * rate

    return v - mapped(body, (SPLIT, SAME), SAME)(rows, rate)


def scaled_before_the_sum(v, rows, rate):
    def body(x, rate):
        return jax.lax.psum(x[0] * rate, AXIS)

    return v - mapped(body, (SPLIT, SAME), SAME)(rows, rate)


def looped(v, rows, rate):
    def body(x, v):
        def turn(v, _):
            return v - jax.lax.psum(x[0] * v, AXIS), None

        return jax.lax.scan(turn, v, None, 3)[0]

    return mapped(body, (SPLIT, SAME), SAME)(rows, v)


def counted(v, rows, rate):
    return jax.lax.while_loop(lambda c: c[0] < rate, lambda c: c + 1.0, v)


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda v, rows, rate: v - total(rows), 0),
        (lambda v, rows, rate: v - rate * total(rows), RATE),
        (scaled_in_replicas, RATE),
        # The sum over the replicas is equal, whatever each has added.
        (scaled_before_the_sum, 0),
        (lambda v, rows, rate: v - own_row(rows), OWN),
        # Rows of all replicas are one array that all workers share.
        (lambda v, rows, rate: v - rows.sum(0), 0),
        (looped, 0),
        (counted, RATE),
        (lambda v, rows, rate: jnp.where(rate > 0, v, -v), RATE),
        (lambda v, rows, rate: jax.lax.cond(rate > 0, lambda: v, lambda: -v), RATE),
        (lambda v, rows, rate: jax.jit(lambda a: a * rate)(v), RATE),
        (
            lambda v, rows, rate: jax.pure_callback(
                lambda x: x, jax.ShapeDtypeStruct((3,), "float32"), v
            ),
            OWN,
        ),
    ],
)
def test_a_new_value_depends_on_what_no_collective_has_made_equal(program, expected):
    assert find(program) == (expected, 0)


@pytest.mark.needs_devices(2)
def test_what_decides_whether_replicas_communicate_is_found():
    def program(v, rows, rate):
        return jax.lax.cond(rate > 0, lambda: total(rows), lambda: v)

    assert find(program) == (RATE, RATE)


def equal_on_all(fn):
    """Whether ``fn(shared, own)`` is equal on all replicas."""
    made = jax.make_jaxpr(fn, axis_env=[(AXIS, 2)])(jnp.ones(3), jnp.ones(3))
    return value_sources.find_equal(made.jaxpr, [True, False])


WITHIN, ACROSS = [[0, 1], [2, 3]], [[0, 2], [1, 3]]


def gather(x, groups=None):
    return jax.lax.all_gather(x, AXIS, axis_index_groups=groups)


def total_of(x, groups):
    return jax.lax.psum(x, AXIS, axis_index_groups=groups)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda p, o: p, False),
        (lambda p, o: gather(p, WITHIN), True),
        (lambda p, o: gather(p * 2 + 1, WITHIN), True),
        (lambda p, o: gather(o, WITHIN), False),
        (lambda p, o: gather(p + o, WITHIN), False),
        (lambda p, o: gather(p, ACROSS), False),
        (lambda p, o: gather(total_of(o, ACROSS), WITHIN), True),
        (lambda p, o: gather(p - total_of(o, ACROSS), WITHIN), True),
        (lambda p, o: gather(total_of(o, WITHIN), ACROSS), False),
        (lambda p, o: gather(p, [[0, 3], [1, 2]]), False),
        (
            lambda p, o: gather(jax.lax.axis_index(AXIS) + p, WITHIN),
            False,
        ),
        (lambda p, o: jax.jit(lambda x: gather(x, WITHIN))(p), True),
        (lambda p, o: gather(p), True),
    ],
)
def test_parts_that_groups_have_are_equal_when_they_are_together(fn, expected):
    made = jax.make_jaxpr(fn, axis_env=[(AXIS, 4)])(jnp.ones(3), jnp.ones(3))
    found = value_sources.find_equal(made.jaxpr, [False, False], [2, 0])
    assert found == [expected]


def reduce(x):
    return jax.lax.psum(x, AXIS)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda s, o: s * 2, True),
        (lambda s, o: s + o, False),
        (lambda s, o: s - 0.1 * reduce(o), True),
        (lambda s, o: reduce(o) + o, False),
        (lambda s, o: s + jax.lax.axis_index(AXIS), False),
        (lambda s, o: jax.lax.all_gather(o, AXIS), True),
        (lambda s, o: jax.jit(lambda a: reduce(a))(o), True),
        (
            lambda s, o: jax.jit(lambda a: a * jax.lax.axis_index(AXIS))(s),
            False,
        ),
        (lambda s, o: jax.lax.cond(s[0] > 0, lambda: s, lambda: s * 2), True),
        (lambda s, o: jax.lax.cond(o[0] > 0, lambda: s, lambda: s * 2), False),
        (lambda s, o: jax.lax.scan(lambda c, x: (c + x, x), 0.0, s)[0], True),
        (lambda s, o: jax.lax.scan(lambda c, x: (c + x, x), 0.0, o)[0], False),
        # Without a turn, the result is what the loop was given.
        (lambda s, o: jax.lax.scan(lambda c, x: (s, x), o, None, 1)[0], True),
        (lambda s, o: jax.lax.scan(lambda c, x: (s, x), o, None, 0)[0], False),
        (
            lambda s, o: jax.lax.scan(lambda c, x: (c + reduce(x), x), 0.0, o)[0],
            True,
        ),
        (lambda s, o: jax.lax.while_loop(lambda c: c < 3, lambda c: c + 1, s[0]), True),
        (
            lambda s, o: jax.lax.while_loop(lambda c: c < 3, lambda c: c + o[0], s[0]),
            False,
        ),
    ],
)
def test_equality_follows_from_the_equations(fn, expected):
    assert equal_on_all(fn) == [expected]


def test_groups_of_replicas_are_not_all():
    def fn(s, o):
        return jax.lax.psum(o, AXIS, axis_index_groups=[[0], [1]])

    assert equal_on_all(fn) == [False]


@pytest.mark.parametrize("kind", ["cond", "while", "test"])
def test_a_collective_that_not_all_may_reach_is_refused(kind):
    def fn(s, o):
        if kind == "cond":
            return jax.lax.cond(o[0] > 0, lambda: reduce(s), lambda: s)
        if kind == "test":
            return jax.lax.while_loop(lambda c: reduce(c)[0] < o[0], lambda c: c + 1, s)
        return jax.lax.while_loop(lambda c: c[0] < o[0], lambda c: reduce(c), s)

    with pytest.raises(RuntimeError, match="merge_call"):
        equal_on_all(fn)


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
