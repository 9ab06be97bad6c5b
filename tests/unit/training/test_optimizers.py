"""Optimizers: one reduction, one update of all copies, the same on any replicas."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono
from tests.parity.programs import (
    EXECUTIONS,
    central,
    context,
    copies,
    execute,
    kind,
    local,
    mirrored,
    number,
    numbers,
    on_read,
    one_device,
    per_replica,
    plain,
    variable,
)
from tests.threads import at_once, repeated


def make(strategy, tx, *variables, **more):
    """An optimizer made in the scope of `strategy`."""
    with strategy.scope():
        return unisono.optimizers.Optimizer(tx, list(variables), **more)


def apply(how, strategy, optimizer, gradient):
    """Applies what `gradient()` gives on each replica to the first variable."""
    v = optimizer._variables[0]
    execute(how, strategy, lambda: optimizer.apply_gradients([(gradient(), v)]))


@pytest.mark.feature("V04")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_gradients_of_all_replicas_are_summed_once(how, n):
    s = mirrored(n)
    v = variable(s, 1.0)
    optimizer = make(s, optax.sgd(0.5), v)
    apply(how, s, optimizer, number)
    want = 1.0 - 0.5 * sum(numbers(n))
    assert copies(v) == [want] * n
    assert copies(optimizer.iterations) == [1] * n


@pytest.mark.feature("V04")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize(
    ("strategy", "want"),
    [(lambda: central(2), -0.5), (one_device, 0.5)],
    ids=["central", "one-device"],
)
def test_other_strategies_optimize_too(strategy, want, how):
    s = strategy()
    v = variable(s, 1.0)
    optimizer = make(s, optax.sgd(0.5, momentum=0.9), v)
    apply(how, s, optimizer, number)
    assert plain(v) == want
    assert plain(optimizer.iterations) == 1


@pytest.mark.feature("V04")
def test_without_a_strategy_it_is_a_plain_optimizer():
    v = unisono.Variable([1.0, 2.0])
    optimizer = unisono.optimizers.Optimizer(optax.sgd(0.5), [v])
    optimizer.apply_gradients([(jnp.asarray([1.0, 2.0]), v)])
    optimizer.apply([jnp.asarray([1.0, 2.0])])
    unisono.function(lambda: optimizer.apply([jnp.asarray([1.0, 2.0])], [v]))()
    assert plain(v) == [-0.5, -1.0]
    assert plain(optimizer.iterations) == 3


@pytest.mark.feature("V04")
def test_across_replicas_a_gradient_is_applied_as_it_is():
    s = mirrored(2)
    v = variable(s, 1.0)
    optimizer = make(s, optax.sgd(0.5), v)
    optimizer.apply_gradients([(jnp.asarray(1.0), v)])
    with s.scope():
        optimizer.apply_gradients([(1.0, v)])
    assert copies(v) == [0.0, 0.0]


@pytest.mark.feature("V04", "V08")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize(
    "tx",
    [optax.sgd(0.1, momentum=0.9), optax.adam(0.1), optax.adamw(0.1)],
    ids=["sgd", "adam", "adamw"],
)
def test_training_ends_in_the_same_weights_on_any_number_of_replicas(tx, how):
    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    y = x @ np.asarray([1.0, -2.0, 3.0], np.float32)
    found = []
    for n in (1, 3, 8):
        s = mirrored(n)
        w, b = variable(s, jnp.zeros(3)), variable(s, 0.0)
        optimizer = make(s, tx, w, b)
        size = -(-len(x) // n)
        parts = [slice(i * size, (i + 1) * size) for i in range(n)]
        batch = [per_replica(s, *[a[p] for p in parts]) for a in (x, y)]

        def step(x, y, w=w, b=b, optimizer=optimizer):
            def loss():
                return unisono.nn.compute_average_loss(
                    (x @ w + b - y) ** 2, global_batch_size=7
                )

            value, gradients = unisono.value_and_grad(loss, [w, b])()
            optimizer.apply_gradients(zip(gradients, [w, b]))
            return value

        compiled = unisono.function(step) if how == "compiled" else step
        for _ in range(3):
            losses = execute(how if compiled is step else "eager", s, compiled, batch)
        found.append([*plain(w), plain(b), plain(s.reduce("SUM", losses, None))])
        assert all(c == copies(w)[0] for c in copies(w))
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-4, abs=1e-5)


@pytest.mark.feature("M08", "V04")
def test_the_state_is_made_beside_the_variables():
    s = mirrored(2)
    v = variable(s, jnp.ones([3]))
    optimizer = make(s, optax.adam(0.1), v, name="adam")
    assert [kind(x) for x in optimizer.variables] == ["MirroredVariable"] * 4
    assert optimizer.iterations.aggregation.name == "ONLY_FIRST_REPLICA"
    assert {x.aggregation.name for x in optimizer.variables[1:]} == {"NONE"}
    assert not any(x.trainable for x in optimizer.variables)
    assert all(x.name.startswith("adam/") for x in optimizer.variables)
    shapes = sorted(x.shape for x in optimizer.variables)
    assert shapes == [(), (), (3,), (3,)]
    for x in optimizer.variables:
        assert [c.device for c in x.values] == [c.device for c in v.values]
    assert "MirroredVariable" in repr(optimizer.slots)


@pytest.mark.feature("V04")
@pytest.mark.parametrize("in_replicas", [False, True])
@pytest.mark.parametrize("options", [{}, {"state": "sharded", "shard_above": 4}])
def test_slots_made_in_a_function_begin_with_what_it_has_assigned(options, in_replicas):
    s = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"], **options)
    v = variable(s, jnp.zeros(4), "MEAN")
    follows = optax.GradientTransformation(
        lambda params: params, lambda changes, slots, params: (changes, slots)
    )
    made = []

    def begin():
        if not made:
            v.assign(jnp.ones(4))
            made.append(unisono.optimizers.Optimizer(follows, [v]))

    @unisono.function
    def step():
        if in_replicas:
            s.run(begin)
        else:
            with s.scope():
                begin()

    step()
    assert plain(made[0].variables[1]) == [1.0] * 4


@pytest.mark.feature("O07", "V04")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_sparse_gradients_change_their_rows(how):
    s = mirrored(2)
    v = variable(s, jnp.ones([3, 1]))
    optimizer = make(s, optax.sgd(1.0), v)

    def rows():
        replica = jnp.asarray(context().replica_id_in_sync_group, jnp.int32)
        where = jnp.stack([0 * replica, 1 + replica])
        return unisono.IndexedSlices(jnp.ones([2, 1]) * number(), where)

    apply(how, s, optimizer, rows)
    assert copies(v) == [[[-2.0], [0.0], [-1.0]]] * 2


@pytest.mark.feature("V04")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_a_variable_without_gradient_stays_as_it_is(how):
    s = mirrored(2)
    v, w = variable(s, 1.0), variable(s, 1.0)
    optimizer = make(s, optax.adamw(0.5, weight_decay=0.1), v, w)
    execute(how, s, lambda: optimizer.apply_gradients([(None, v), (number() * 1.0, w)]))
    assert copies(v) == [1.0, 1.0]
    assert plain(w) < 1.0
    execute(how, s, lambda: optimizer.apply_gradients([(number() * 1.0, w)]))
    assert copies(v) == [1.0, 1.0]


@pytest.mark.feature("V04")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_gradients_of_a_variable_given_twice_add_up(how):
    s = mirrored(2)
    v = variable(s, [0.0, 0.0])
    optimizer = make(s, optax.sgd(1.0), v)

    def replica():
        row = unisono.IndexedSlices(jnp.ones(1), jnp.asarray([1]))
        given = [jnp.ones(2), None, jnp.full(2, 10.0), row]
        optimizer.apply_gradients([(g, v) for g in given])

    execute(how, s, replica)
    assert copies(v) == [[-22.0, -24.0]] * 2


@pytest.mark.feature("V04")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_a_constraint_is_applied_after_the_update(how):
    s = mirrored(2)
    v = variable(s, 1.0, constraint=lambda x: jnp.maximum(x, 0.0))
    optimizer = make(s, optax.sgd(1.0), v)
    apply(how, s, optimizer, number)
    assert copies(v) == [0.0, 0.0]


@pytest.mark.feature("V04")
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_variables_keep_their_type(dtype):
    s = mirrored(2)
    v = variable(s, jnp.ones([2], dtype))
    optimizer = make(s, optax.sgd(optax.constant_schedule(0.5), momentum=0.9), v)
    for how in EXECUTIONS:
        apply(how, s, optimizer, lambda: jnp.ones([2], jnp.float32))
    assert v.dtype == dtype
    assert plain(v)[0] < 1.0


@pytest.mark.feature("V04")
def test_what_cannot_be_updated_is_refused():
    s = mirrored(2)
    v, other = variable(s, [1.0, 2.0], name="v"), variable(s, 1.0, name="other")
    optimizer = make(s, optax.sgd(0.5), v)
    with pytest.raises(ValueError, match="not made for the variable other:0"):
        optimizer.apply_gradients([(1.0, other)])
    with pytest.raises(ValueError, match="No gradients provided"):
        optimizer.apply_gradients([(None, v)])
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        optimizer.apply_gradients([(jnp.ones(3), v)])
    with pytest.raises(TypeError, match="Expected the variables"):
        make(s, optax.sgd(0.5), jnp.ones(2))
    with pytest.raises(ValueError, match="accumulate_steps"):
        make(s, optax.sgd(0.5), v, accumulate_steps=0)
    assert (plain(v), plain(optimizer.iterations)) == ([1.0, 2.0], 0)


# Accumulation.


@pytest.mark.feature("V04")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_accumulated_gradients_are_applied_at_the_last_step(how, n):
    s = mirrored(n)
    v = variable(s, 1.0)
    optimizer = make(s, optax.sgd(0.5), v, accumulate_steps=3)
    step = unisono.function(lambda: optimizer.apply_gradients([(number(), v)]))
    seen = []
    for _ in range(6):
        if how == "compiled":
            s.run(step)
        else:
            apply(how, s, optimizer, number)
        seen.append((plain(v), plain(optimizer.iterations)))
    change = 0.5 * 3 * sum(numbers(n))
    assert seen == [
        (1.0, 0),
        (1.0, 0),
        (1.0 - change, 1),
        (1.0 - change, 1),
        (1.0 - change, 1),
        (1.0 - 2 * change, 2),
    ]


@pytest.mark.feature("V04")
@pytest.mark.parametrize("strategy", [lambda: central(2), one_device])
@pytest.mark.parametrize("how", EXECUTIONS)
def test_other_strategies_accumulate_too(strategy, how):
    s = strategy()
    v = variable(s, 1.0)
    optimizer = make(s, optax.sgd(0.5), v, accumulate_steps=2)
    for _ in range(2):
        apply(how, s, optimizer, number)
    assert plain(v) == 1.0 - sum(numbers(s.num_replicas_in_sync))


@pytest.mark.feature("V04")
def test_without_a_replica_context_gradients_accumulate_too():
    for s in (mirrored(2), mirrored(1), unisono.distribute.get_strategy()):
        with s.scope():
            v = unisono.Variable(1.0)
            optimizer = unisono.optimizers.Optimizer(
                optax.sgd(0.5), [v], accumulate_steps=2
            )
        for _ in range(2):
            optimizer.apply_gradients([(jnp.asarray(1.0), v)])
        assert plain(v) == 0.0


@pytest.mark.feature("V04")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize(
    "strategy",
    [
        lambda: mirrored(1),
        lambda: mirrored(2),
        lambda: unisono.distribute.MirroredStrategy(
            ["CPU:0", "CPU:1"], state="sharded", shard_above=2
        ),
    ],
    ids=["one", "mirrored", "sharded"],
)
def test_only_variables_that_had_a_gradient_in_some_call_are_updated(strategy, how):
    s = strategy()
    v, w = variable(s, [1.0, 1.0]), variable(s, [1.0, 1.0])
    tx = optax.adamw(0.5, weight_decay=0.1)
    optimizer = make(s, tx, v, w, accumulate_steps=2)
    seen = []
    for given in (None, None), (1.0, None), (None, None):
        for gradient in given:
            g = None if gradient is None else jnp.full(2, gradient)
            both = [(g, v), (jnp.ones(2), w)]
            execute(how, s, lambda both=both: optimizer.apply_gradients(both))
        slots = [x.variable.numpy() for x in optimizer.slots[0].mu]
        seen.append((v.numpy()[0], w.numpy()[0], slots[0][0], slots[1][0]))
    (v1, w1, m1, n1), (v2, w2, m2, n2), (v3, w3, m3, n3) = seen
    assert (v1, m1) == (1.0, 0.0)
    assert v2 < 1.0 and m2 > 0.0
    assert (v3, m3) == (v2, m2)
    assert 1.0 > w1 > w2 > w3 and 0.0 < n1 < n2 < n3


@pytest.mark.feature("V04")
@pytest.mark.parametrize("steps", [1, 2])
def test_a_gradient_on_some_replicas_is_one(steps):
    s = mirrored(2)
    v, w = variable(s, 1.0), variable(s, 1.0)
    optimizer = make(s, optax.sgd(0.5), v, w, accumulate_steps=steps)

    def replica():
        is_first = int(context().replica_id_in_sync_group) == 0
        one = jnp.asarray(1.0)
        optimizer.apply_gradients([(one if is_first else None, v), (one, w)])

    for _ in range(steps):
        s.run(replica)
    assert (copies(v), copies(w)) == ([1 - 0.5 * steps] * 2, [1.0 - steps] * 2)


def reductions(step):
    """Where a step's all-reduces stand: outside and inside of a conditional."""
    before, conditional, inside = step.lowered().as_text().partition("stablehlo.case")
    counts = [text.count("stablehlo.all_reduce") for text in (before, inside)]
    return counts, bool(conditional)


@pytest.mark.feature("V04")
def test_a_step_reduces_each_gradient_once():
    s = mirrored(2)
    made = [variable(s, jnp.ones([4, i + 1])) for i in range(3)]
    optimizer = make(s, optax.adam(0.1), *made)

    @unisono.function
    def step():
        s.run(lambda: optimizer.apply([jnp.ones(v.shape) * number() for v in made]))

    assert reductions(step) == ([3, 0], False)


@pytest.mark.feature("V04")
def test_a_step_that_only_accumulates_reduces_nothing():
    s = mirrored(2)
    made = [variable(s, jnp.ones([4, i + 1])) for i in range(3)]
    optimizer = make(s, optax.adam(0.1), *made, accumulate_steps=4)

    @unisono.function
    def step():
        s.run(lambda: optimizer.apply([jnp.ones(v.shape) * number() for v in made]))

    assert reductions(step) == ([0, 3], True)


@pytest.mark.feature("V04")
@pytest.mark.needs_devices(4)
def test_a_step_with_split_sums_holds_no_whole_sum():
    names = [f"CPU:{i}" for i in range(4)]
    s = unisono.distribute.MirroredStrategy(names, state="sharded", shard_above=8)
    v = variable(s, jnp.ones([16, 8]))
    optimizer = make(s, optax.adam(0.1), v, accumulate_steps=4)

    @unisono.function
    def step():
        s.run(lambda: optimizer.apply([jnp.ones(v.shape) * number()]))

    text = step.lowered().as_text()
    assert text.count("stablehlo.reduce_scatter") == 1
    assert "all_gather" not in text and "all_reduce" not in text
    step()
    (total,) = [x for x in optimizer.variables if "sum" in x.name]
    shards = total.state_cell.array.addressable_shards
    assert {x.data.shape for x in shards} == {(4, 8)}
    np.testing.assert_array_equal(total.numpy(), np.full([16, 8], sum(numbers(4))))


@pytest.mark.feature("V08")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_a_custom_training_loop_with_everything_in_it(how):
    """Loss, optimizer, metric and moving average, as the documentation has them."""
    s = mirrored(2)
    w, moving = variable(s, 0.0), on_read(s, 0.0, "MEAN")
    optimizer = make(s, optax.sgd(0.1), w)
    with s.scope():
        metric = unisono.metrics.Mean()
    x = np.asarray([0.5, -1.0, 1.5, 2.0, -0.5, 1.0, 0.25, -2.0], np.float32)
    batch = (per_replica(s, x[:4], x[4:]), per_replica(s, 3.0 * x[:4], 3.0 * x[4:]))

    def step(x, y):
        def loss():
            moving.assign(0.5 * moving + 0.5 * jnp.mean(x))
            return jnp.sum((x * w - y) ** 2) / 8.0

        value, gradient = unisono.value_and_grad(loss, w)()
        optimizer.apply_gradients([(gradient, w)])
        metric.update_state(value)
        return value

    losses = []
    for _ in range(3):
        result = execute(how, s, step, args=batch)
        losses.append(plain(s.reduce("SUM", result, axis=None)))
    assert losses == pytest.approx([14.4141, 6.6589, 3.0763], rel=1e-4)
    assert copies(w) == pytest.approx([2.058, 2.058], rel=1e-4)
    assert plain(metric.result()) == pytest.approx(sum(losses) / 6)
    assert local(s, moving) == pytest.approx([0.65625, -0.2734375])


@pytest.mark.parametrize("how", EXECUTIONS)
def test_minimize_takes_a_tape_or_a_function(how):
    strategy = mirrored(2)
    with strategy.scope():
        w = unisono.Variable(3.0)
        optimizer = unisono.optimizers.Optimizer(optax.sgd(0.1), [w])

    def with_tape():
        with unisono.GradientTape() as tape:
            loss = w * w
        optimizer.minimize(loss, [w], tape=tape)

    execute(how, strategy, with_tape)
    assert float(w.numpy()) == pytest.approx(3.0 - 0.1 * 12.0)
    w.assign(3.0)
    execute(how, strategy, lambda: optimizer.minimize(lambda: w * w, lambda: [w]))
    assert float(w.numpy()) == pytest.approx(3.0 - 0.1 * 12.0)


def test_minimize_needs_a_tape_for_an_array():
    w = unisono.Variable(3.0)
    optimizer = unisono.optimizers.Optimizer(optax.sgd(0.1), [w])
    with pytest.raises(ValueError, match="`tape` is required when a `Tensor` loss"):
        optimizer.minimize(w * w, [w])


@pytest.mark.parametrize("steps", [1, 5])
def test_the_gradients_of_several_threads_are_all_applied(steps):
    v = unisono.Variable(0.0)
    optimizer = unisono.optimizers.Optimizer(
        optax.sgd(1.0), [v], accumulate_steps=steps
    )
    apply = repeated(lambda: optimizer.apply_gradients([(jnp.float32(-1.0), v)]), 10)
    at_once(apply, apply)
    assert (plain(v), plain(optimizer.iterations)) == (20.0, 20 // steps)


@pytest.mark.needs_devices(2)
def test_replicas_of_several_threads_accumulate_all_gradients():
    v = variable(mirrored(2), 0.0)
    optimizer = make(mirrored(2), optax.sgd(1.0), v, accumulate_steps=2)

    def apply():
        mirrored(2).run(lambda: optimizer.apply_gradients([(jnp.float32(-1.0), v)]))

    at_once(*[repeated(apply, 3)] * 2)
    assert plain(v) == 12.0
