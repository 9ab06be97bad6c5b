"""State that is split over replicas: the numbers of copies, a part of the memory."""

import copy
import gc
import itertools
import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as tf
from tests import machine
from unisono._src.execution import sharded_update
from unisono._src.machines import shard_plan

SUM = tf.VariableAggregation.SUM
WIDE = np.arange(32, dtype=np.float32).reshape(8, 4)
RNG = np.random.default_rng(1)
XS = RNG.normal(size=(2, 8, 4, 16)).astype(np.float32)
YS = RNG.normal(size=(2, 8, 4, 8)).astype(np.float32)


def make(replicas, above=8, kind="sharded"):
    names = machine.names(replicas)
    if kind == "mirrored":
        return tf.distribute.MirroredStrategy(names)
    return tf.distribute.MirroredStrategy(names, state=kind, shard_above=above)


def variable(strategy, value=WIDE, **options):
    with strategy.scope():
        return tf.Variable(value, **options)


def parts(v):
    """The shape of what each device holds."""
    return {s.data.shape for s in v.state_cell.array.addressable_shards}


def held(device):
    """Bytes of all arrays on a device."""
    gc.collect()
    shards = [s for x in jax.live_arrays() for s in x.addressable_shards]
    # Who asks an array for its shards makes arrays of the same memory.
    found = [s.data for s in shards if s.device == device]
    return sum({x.unsafe_buffer_pointer(): x.nbytes for x in found}.values())


def per_replica(strategy, values):
    return strategy.experimental_distribute_values_from_function(
        lambda context: jnp.asarray(values[context.replica_id_in_sync_group])
    )


class Training:
    """A small network, trained step by step."""

    def __init__(self, strategy, tx, **options):
        self.strategy = strategy
        rng = np.random.default_rng(0)
        with strategy.scope():
            self.weights = [
                tf.Variable(lambda: jax.random.normal(jax.random.key(0), (16, 32)) / 4),
                tf.Variable(jnp.zeros(32)),
                tf.Variable((rng.normal(size=(32, 8)) / 4).astype(np.float32)),
            ]
            self.optimizer = tf.optimizers.Optimizer(tx, self.weights, **options)
        self.compiled = tf.function(self.step)

    def loss(self, x, y):
        first, bias, second = self.weights
        hidden = jnp.tanh(x @ first + bias)
        count = len(x) * self.strategy.num_replicas_in_sync
        return jnp.sum((hidden @ second - y) ** 2) / count

    def replica(self, x, y):
        value, gradients = tf.value_and_grad(self.loss, self.weights)(x, y)
        self.optimizer.apply_gradients(zip(gradients, self.weights))
        return value

    def step(self, x, y):
        found = self.strategy.run(self.replica, args=(x, y))
        return self.strategy.reduce("SUM", found, axis=None)

    def batch(self, i=0):
        return per_replica(self.strategy, XS[i]), per_replica(self.strategy, YS[i])

    def train(self, step=None):
        losses = [(step or self.compiled)(*self.batch(i)) for i in range(len(XS))]
        state = [*self.weights, *self.optimizer.variables]
        return [np.array(losses), *(v.numpy() for v in state)]

    def text(self):
        return self.compiled.lowered(*self.batch()).compile().as_text()


def results(text, name):
    """Shapes of what the operations of a name give, also when several are combined."""
    lines = re.findall(rf"= (\(.*?\)|\S+) {name}(?:-start)?\(", text)
    return sorted(
        shape for line in lines for shape in re.findall(r"\w+\[[\d,]*\]", line)
    )


def assert_close(found, wanted, **limits):
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(
            own, other, **({"rtol": 2e-5, "atol": 2e-6} | limits)
        )


# ------------------------------------------------------------------------ where it is


@pytest.mark.feature("T01")
@pytest.mark.parametrize("replicas", [1, 2, 4, 8])
def test_memory_per_device_falls_with_the_number_of_devices(replicas):
    strategy = make(replicas)
    trained = Training(strategy, optax.adam(1e-2))
    described = strategy.describe([*trained.weights, *trained.optimizer.variables])
    # Each weight has two slots of its shape; three counters are in every copy.
    whole = 3 * 4 * (16 * 32 + 32 + 32 * 8) + 8
    assert described.bytes_per_device == (whole - 8) // replicas + 8
    placements = {r.placement for r in described.rows if r.shape}
    assert placements == {"sharded" if replicas > 1 else "mirrored"}
    assert {r.devices for r in described.rows} == {replicas}


@pytest.mark.needs_devices(8)
@pytest.mark.feature("T01")
def test_devices_hold_what_the_description_says():
    device = jax.devices("cpu")[1]
    before = held(device)
    strategy = make(8)
    trained = Training(strategy, optax.adam(1e-2))
    state = [*trained.weights, *trained.optimizer.variables]
    described = strategy.describe(state).bytes_per_device
    trained.compiled(*trained.batch())
    # Batches and losses of steps in flight may be there as well, and an earlier test
    # may have left a number of four bytes; the whole state is eight times as much.
    assert described - 64 <= held(device) - before < 2 * described
    assert strategy.describe(state).bytes_per_device == described


def test_what_is_small_or_cannot_be_cut_evenly_is_mirrored():
    strategy = make(4, above=8)
    shapes = [(2, 3), (9, 3), (8, 4), (3, 8), (5, 5, 12), (64,)]
    found = [parts(variable(strategy, np.ones(s, np.float32))) for s in shapes]
    wanted = [(2, 3), (9, 3), (2, 4), (3, 2), (5, 5, 3), (16,)]
    assert found == [{w} for w in wanted]
    assert parts(variable(make(4, above=None), np.ones((256, 255)))) == {(256, 255)}
    assert parts(variable(make(4, above=None), np.ones((256, 256)))) == {(64, 256)}
    key = variable(strategy, jax.random.split(jax.random.key(0), 8))
    on_read = tf.VariableSynchronization.ON_READ
    assert key.state_cell.split is None
    assert variable(strategy, synchronization=on_read).state_cell.split is None


def test_a_first_value_is_computed_part_by_part():
    seen = []

    def initial():
        seen.append(jax.random.normal(jax.random.key(0), (16, 4)))
        return seen[-1]

    v = variable(make(4), initial)
    assert [isinstance(x, jax.core.Tracer) for x in seen] == [True]
    assert parts(v) == {(4, 4)}
    np.testing.assert_allclose(
        v.numpy(), jax.random.normal(jax.random.key(0), (16, 4)), rtol=1e-6
    )


@pytest.mark.parametrize(
    "give",
    [
        lambda: WIDE,
        lambda: WIDE.tolist(),
        lambda: jnp.asarray(np.asarray(jnp.ones((8, 4))) * WIDE),
        lambda: WIDE.astype(np.float64),
    ],
)
@pytest.mark.parametrize("called", [True, False])
def test_any_first_value_will_do(give, called):
    v = variable(make(4), give if called else give())
    assert (v.dtype, parts(v)) == (np.float32, {(2, 4)})
    np.testing.assert_array_equal(v.numpy(), WIDE)


def test_a_numpy_array_that_was_given_may_be_changed_afterwards():
    given = WIDE.copy()
    v = variable(make(2), given)
    given[:] = 0
    np.testing.assert_array_equal(v.numpy(), WIDE)


def test_a_variable_made_in_a_function_is_cut_too():
    strategy, made = make(4), []

    @tf.function
    def step(x):
        if not made:
            made.append(tf.Variable(jnp.ones((8, 4)) * 3))
        return jnp.sum(made[0] * x)

    with strategy.scope():
        assert float(step(2.0)) == 192
    assert parts(made[0]) == {(2, 4)}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"state": "split"}, 'Expected state "mirrored" or "sharded", received'),
        (
            {"shard_above": 5},
            "shard_above=5 is about variables that are split, but with",
        ),
        ({"state": "sharded", "shard_above": 0}, "Expected shard_above >= 1, received"),
    ],
)
def test_arguments_that_say_nothing_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], **options)


# ---------------------------------------------------------------------------- numbers

# Element by element, or with sums over all of them.
BY_PARTS = {
    "sgd": optax.sgd(0.1),
    "momentum": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": optax.adam(1e-2),
    "adamw": optax.adamw(1e-2),
    "rmsprop": optax.rmsprop(1e-2),
    "adagrad": optax.adagrad(0.1),
    "lion": optax.lion(1e-2),
    "global norm": optax.chain(optax.clip_by_global_norm(0.1), optax.adam(1e-2)),
    "lamb": optax.lamb(1e-2),
    "lars": optax.lars(1e-2),
    "if finite": optax.apply_if_finite(optax.adam(1e-2), 3),
    "schedule": optax.adam(optax.cosine_decay_schedule(0.1, 5)),
}
# Those that have the number of elements, rows and columns, or random numbers in them.
WHOLE = {
    "adafactor": optax.adafactor(1e-2, min_dim_size_to_factor=4),
    "mean": optax.chain(optax.clip_by_block_rms(1e-2), optax.sgd(0.1)),
    "noise": optax.noisy_sgd(0.1, key=jax.random.key(0)),
    "centralized": optax.chain(optax.centralize(), optax.sgd(0.1)),
}


@pytest.mark.parametrize("name", [*BY_PARTS, *WHOLE])
def test_it_is_known_which_optimizers_can_update_parts(name):
    tx = (BY_PARTS | WHOLE)[name]
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in [(16, 32), (32,), (32, 8)]]
    slots = jax.eval_shape(tx.init, shapes)
    leaves, treedef = jax.tree.flatten(slots)
    every = [*shapes, *leaves, *shapes]
    topology = make(4).extended._topology
    cuts = [shard_plan.ShardPlan(8).choose(topology, x.shape).split for x in every]

    def change(inputs):
        found, new = tx.update(
            inputs[-3:], jax.tree.unflatten(treedef, inputs[3:-3]), inputs[:3]
        )
        return [*optax.apply_updates(inputs[:3], found), *jax.tree.leaves(new)]

    if name in BY_PARTS:
        sharded_update.PartwiseUpdate(change, every, cuts, cuts[:-3])
    else:
        with pytest.raises(sharded_update.NotByParts):
            sharded_update.PartwiseUpdate(change, every, cuts, cuts[:-3])


@pytest.mark.parametrize(
    "name", ["momentum", "adam", "global norm", "lamb", "if finite", *list(WHOLE)[:2]]
)
def test_every_optimizer_gives_the_numbers_of_mirrored_state(name, caplog):
    tx = (BY_PARTS | WHOLE)[name]
    wanted = Training(make(4, kind="mirrored"), tx).train()
    trained = Training(make(4), tx)
    with caplog.at_level(logging.INFO, "unisono"):
        assert_close(trained.train(), wanted)
    assert ("is gathered for an update" in caplog.text) == (name in WHOLE)
    if name in BY_PARTS:
        text = trained.text()
        # Each weight once, to compute with it; no slot, and no sum of gradients.
        assert results(text, "all-gather") == ["f32[16,32]", "f32[32,8]", "f32[32]"]
        assert results(text, "reduce-scatter") == ["f32[16,8]", "f32[8,8]", "f32[8]"]
        assert set(results(text, "all-reduce")) <= {"f32[]", "s32[]", "pred[]"}


@pytest.mark.parametrize(
    ("combine", "start"), [(jax.lax.bitwise_and, -1), (jax.lax.bitwise_or, 0)]
)
def test_bits_are_combined_on_gathered_values(combine, start):
    def last(kind):
        def change(updates, state, params):
            numbers = params[0].astype(jnp.int32) * 2 + 64
            bits = jax.lax.reduce(numbers, np.int32(start), combine, (0, 1))
            return [u * 0 + bits for u in updates], state

        strategy = make(4, kind=kind)
        v = variable(strategy)
        tx = optax.GradientTransformation(lambda params: (), change)
        with strategy.scope():
            optimizer = tf.optimizers.Optimizer(tx, [v])
        tf.function(lambda: strategy.run(lambda: optimizer.apply([v * 1.0])))()
        return v.numpy()

    np.testing.assert_array_equal(last("sharded"), last("mirrored"))


@pytest.mark.parametrize("kind", ["sharded", "mirrored"])
@pytest.mark.parametrize("rate", ["own", "number", "reduced", "read"])
def test_a_rate_that_differs_between_replicas_is_refused(rate, kind, caplog):
    strategy = make(4, kind=kind)
    v, scale = variable(strategy), variable(strategy, 0.5)
    rates = []

    def replica():
        context = tf.distribute.get_replica_context()
        own = jnp.asarray(context.replica_id_in_sync_group, jnp.float32)
        number, total = jax.lax.axis_index, context.all_reduce("SUM", own)
        rates[:] = [
            {
                "own": lambda: own,
                "number": lambda: number("replica").astype(jnp.float32),
                "reduced": lambda: total / 12,
                "read": lambda: scale * 1.0,
            }[rate]
        ]
        optimizer.apply([jnp.ones((8, 4))])

    tx = optax.stateless(lambda updates, params: [u * rates[0]() for u in updates])
    with strategy.scope():
        optimizer = tf.optimizers.Optimizer(tx, [v])
    step = tf.function(lambda: strategy.run(replica))
    if rate in ("own", "number"):
        with pytest.raises(ValueError, match="different values"):
            step()
        return
    with caplog.at_level(logging.INFO, "unisono"):
        step()
    np.testing.assert_array_equal(v.numpy(), WIDE + 2)  # 4 replicas, half of each
    assert "gathered" not in caplog.text


@pytest.mark.parametrize("replicas", [1, 3, 8])
def test_any_number_of_replicas_gives_the_numbers_of_mirrored_state(replicas):
    tx = optax.adam(1e-2)
    wanted = Training(make(replicas, kind="mirrored"), tx).train()
    assert_close(Training(make(replicas), tx).train(), wanted)


# 16, 32 and 8 are not divided by 6 but by 2, so three pairs of replicas have all parts.
@pytest.mark.feature("T01")
@pytest.mark.parametrize("name", ["momentum", "global norm", "lamb", "adafactor"])
def test_groups_of_replicas_give_the_numbers_of_mirrored_state(name):
    tx = (BY_PARTS | WHOLE)[name]
    wanted = Training(make(6, kind="mirrored"), tx).train()
    trained = Training(make(6), tx)
    assert_close(trained.train(), wanted)
    assert parts(trained.weights[0]) == {(16, 16)}
    rows = trained.strategy.describe(trained.weights).rows
    assert [r.bytes_per_device * 2 for r in rows] == [4 * 16 * 32, 4 * 32, 4 * 32 * 8]
    if name == "momentum":
        text = trained.text()
        assert results(text, "all-gather") == ["f32[16,32]", "f32[32,8]", "f32[32]"]
        wanted = ["f32[16,16]", "f32[16,8]", "f32[16]"]
        assert results(text, "reduce-scatter") == wanted
        # Between the groups goes a part of each gradient, and the loss.
        assert results(text, "all-reduce") == [*wanted, "f32[]"]
        pairs = "{{0,1},{2,3},{4,5}}"
        for line in text.splitlines():
            if " all-gather(" in line:
                assert pairs in line or "[3,2]<=[6]" in line


def test_groups_of_replicas_read_and_write_like_mirrored_state():
    def found(kind):
        strategy = make(6, kind=kind)
        v = variable(strategy, aggregation=SUM)
        kept = variable(strategy, aggregation=SUM)
        with strategy.scope():
            optimizer = tf.optimizers.Optimizer(optax.sgd(0.1), [v])

        def replica():
            index = tf.distribute.get_replica_context().replica_id_in_sync_group
            v.assign_add(jnp.full((8, 4), jnp.asarray(index, jnp.float32)))
            optimizer.apply([v * 0.5 + jnp.asarray(index, jnp.float32)])
            # What was just updated by parts is equal on all replicas.
            kept.assign(v.value() * 2)

        tf.function(lambda: strategy.run(replica))()
        strategy.run(replica)
        v.assign(v * 2)
        strategy.extended.update(v, lambda c: c.assign_add(c))
        return [v.numpy(), kept.numpy(), *(c.numpy() for c in v.values)]

    assert_close(found("sharded"), found("mirrored"))


def test_eager_steps_give_the_numbers_of_compiled_ones():
    tx = optax.sgd(1e-1)
    wanted = Training(make(2), tx).train()
    trained = Training(make(2), tx)
    assert_close(trained.train(trained.step), wanted)
    assert parts(trained.weights[0]) == {(16, 16)}


def test_uneven_batches_are_right_inside_a_function():
    def found(kind):
        trained = Training(make(2, kind=kind), optax.adam(1e-2))
        x, y = (
            tf.distribute.PerReplica((jnp.asarray(a[0, 0]), jnp.asarray(a[0, 1, :3])))
            for a in (XS, YS)
        )
        loss = trained.compiled(x, y)
        return [loss, *(v.numpy() for v in trained.weights)]

    assert_close(found("sharded"), found("mirrored"))


def test_gradients_may_be_accumulated_or_missing():
    def found(kind):
        trained = Training(make(2, kind=kind), optax.sgd(0.1), accumulate_steps=2)
        idle = Training(make(2, kind=kind), optax.adam(1e-2))

        @tf.function
        def step(x, y):
            def replica(x, y):
                first, _, second = idle.weights
                gradients = tf.grad(idle.loss, [first])(x, y)
                idle.optimizer.apply_gradients([(gradients[0], first), (None, second)])

            idle.strategy.run(replica, args=(x, y))

        step(*idle.batch())
        state = [*idle.weights, *idle.optimizer.variables]
        return [*trained.train(), *(v.numpy() for v in state)]

    assert_close(found("sharded"), found("mirrored"))


def test_a_body_that_jax_traces_by_itself_reads_the_whole():
    strategy = make(4)
    v = variable(strategy, aggregation=SUM)

    @tf.function
    def step():
        def replica():
            def body(carry, _):
                return carry + v.read_value(), None

            total, _ = jax.lax.scan(body, jnp.zeros((8, 4)), None, length=3)
            v.assign_add(total)
            return jnp.sum(v + jax.lax.cond(True, lambda: v * 1.0, lambda: v * 2.0))

        return strategy.reduce("MEAN", strategy.run(replica), axis=None)

    # 3 times itself, from each of 4 replicas, is added.
    assert float(step()) == 2 * 13 * WIDE.sum()
    np.testing.assert_allclose(v.numpy(), 13 * WIDE)
    assert parts(v) == {(2, 4)}


@pytest.mark.feature("T01", "V04")
@pytest.mark.parametrize("also_weights", [False, True])
def test_an_optimizer_made_by_replicas_of_a_function_is_cut_too(also_weights):
    def found(kind):
        strategy = make(4, kind=kind)
        made = {} if also_weights else {"v": variable(strategy)}

        def replica():
            if "v" not in made:
                made["v"] = tf.Variable(WIDE)
            v = made["v"]
            if "optimizer" not in made:
                made["optimizer"] = tf.optimizers.Optimizer(optax.adam(0.1), [v])
            made["optimizer"].apply_gradients([(v * 2.0, v)])

        step = tf.function(lambda: strategy.run(replica))
        step()
        step()
        if kind == "sharded":
            assert {(2, 4)} == parts(made["v"]) == parts(made["optimizer"]._slots[1])
        return [v.numpy() for v in (made["v"], *made["optimizer"].variables)]

    assert_close(found("sharded"), found("mirrored"))


@pytest.mark.feature("T01")
@pytest.mark.parametrize("kind", ["sharded", "mirrored"])
def test_replicas_that_go_different_ways_all_read(kind):
    strategy = make(4, kind=kind)
    v = variable(strategy)

    def replica():
        own = tf.distribute.get_replica_context().replica_id_in_sync_group
        return (
            jax.lax.cond(own > 1, lambda: v[0, 1] + 100, lambda: v[1, 0] * 1.0),
            jax.lax.while_loop(lambda c: c < v[3, 3] * own, lambda c: c + 10, 0.0),
            jax.lax.fori_loop(0, own, lambda i, c: c + v[1, i], 0.0),
            jax.vmap(lambda x: jax.jit(lambda y: y * v[1, 1])(x))(jnp.ones(2) * own),
        )

    branch, loop, count, mapped = tf.function(lambda: strategy.run(replica))()
    local = strategy.experimental_local_results
    assert [float(x) for x in local(branch)] == [4, 4, 101, 101]
    assert [float(x) for x in local(loop)] == [0, 20, 30, 50]
    assert [float(x) for x in local(count)] == [0, 4, 9, 15]
    assert [float(x[1]) for x in local(mapped)] == [0, 5, 10, 15]


def test_copies_that_would_differ_are_refused():
    strategy = make(2)
    v = variable(strategy)

    calls = itertools.count()

    def by_index(copy):
        copy.assign(WIDE + next(calls))

    with pytest.raises(ValueError, match="would get different values"):
        strategy.extended.update(v, by_index)
    np.testing.assert_array_equal(v.numpy(), WIDE)

    @tf.function
    def step():
        def replica():
            own = tf.distribute.get_replica_context().replica_id_in_sync_group
            tf.distribute.get_replica_context().merge_call(
                lambda s, x: s.extended.update(v, lambda c, d: c.assign(c + d), (x,)),
                (jnp.float32(own),),
            )

        strategy.run(replica)

    with pytest.raises(ValueError, match="would get different values"):
        step()
    np.testing.assert_array_equal(v.numpy(), WIDE)


# -------------------------------------------------------------- reading and assigning


def test_it_is_read_and_assigned_as_a_mirrored_variable_is():
    strategy = make(4)
    v = variable(strategy, name="v")
    assert isinstance(v, type(variable(make(4, kind="mirrored"))))
    np.testing.assert_array_equal(v, WIDE)
    assert v.read_value().sharding.device_set == {jax.devices("cpu")[0]}
    assert v.value() + jnp.ones(4) is not None
    np.testing.assert_array_equal(v[2:4], WIDE[2:4])
    found = v.assign(2 * WIDE)
    assert [x.shape for x in found.values] == [(8, 4)] * 4
    np.testing.assert_array_equal(found, 2 * WIDE)
    v.assign_add(jnp.asarray(WIDE))
    v.assign_sub(WIDE.astype(np.int32))
    np.testing.assert_array_equal(v.numpy(), 2 * WIDE)
    v.scatter_update(tf.IndexedSlices(jnp.zeros((1, 4)), jnp.array([3])))
    assert float(v.numpy()[3].sum()) == 0
    for i, part in enumerate(v.values):
        assert part.device.endswith(f"CPU:{i}")
        np.testing.assert_array_equal(part.numpy(), v.numpy())
    assert parts(v) == {(2, 4)}
    with pytest.raises(ValueError, match="Shape mismatch"):
        v.assign(np.zeros((4, 8), np.float32))
    assert "shape=(8, 4)" in repr(v)


def test_a_value_that_was_read_stays_when_the_variable_moves_on():
    strategy = make(4)
    v = variable(strategy, aggregation=SUM)
    read, assigned = v.read_value(), v.assign(WIDE)
    twin = copy.deepcopy(v)
    step = tf.function(lambda: strategy.run(lambda: v.assign(jnp.ones((8, 4)) * 5)))
    step()
    step()
    np.testing.assert_array_equal(v.numpy(), np.full((8, 4), 20.0))
    for kept in (read, assigned.values[3], twin.numpy()):
        np.testing.assert_array_equal(kept, WIDE)
    assert parts(twin) == {(2, 4)}


@pytest.mark.parametrize("compiled", [True, False])
def test_updates_of_all_copies_are_those_of_a_mirrored_variable(compiled):
    strategy = make(4)
    v = variable(strategy)

    def step(x):
        strategy.extended.update(v, lambda c, x: c.assign_add(c * x), args=(x,))
        strategy.extended.update(v, lambda c, x: c.assign(c + x), args=(x,))

    (tf.function(step) if compiled else step)(jnp.float32(2.0))
    np.testing.assert_array_equal(v.numpy(), 3 * WIDE + 2)
    assert parts(v) == {(2, 4)}
    assert float(tf.function(lambda: jnp.sum(v.read_value()))()) == v.numpy().sum()


def test_copies_written_one_by_one_count_when_all_agree():
    strategy = make(2)
    v = variable(strategy)
    first, second = v.values
    first.assign(WIDE + 1)
    np.testing.assert_array_equal(second.numpy(), WIDE)
    with pytest.raises(ValueError, match="would get different values"):
        v.read_value()
    with pytest.raises(ValueError, match="would get different values"):
        v.numpy()
    v.assign(WIDE + 2)
    np.testing.assert_array_equal(v.numpy(), WIDE + 2)
    for copy_ in (first, second, first):
        copy_.assign(WIDE + 3)
    assert float(tf.function(lambda: jnp.sum(v.read_value()))()) == (WIDE + 3).sum()


def test_an_optimizer_made_outside_the_scope_keeps_whole_slots():
    strategy = make(2)
    v = variable(strategy)
    optimizer = tf.optimizers.Optimizer(optax.sgd(1.0, momentum=0.5), [v])
    for _ in range(2):
        optimizer.apply_gradients([(jnp.ones((8, 4)), v)])
    np.testing.assert_allclose(v.numpy(), WIDE - 2.5)


# ------------------------------------------------------------------------ checkpoints


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((4, "sharded"), (2, "mirrored")),
        ((2, "mirrored"), (8, "sharded")),
        ((6, "sharded"), (4, "sharded")),
    ],
)
def test_checkpoints_move_between_any_placements(before, after, tmp_path):
    def training(kind):
        return Training(make(kind[0], kind=kind[1]), optax.adam(1e-2))

    source, target = training(before), training(after)
    source.compiled(*source.batch())
    saved = tf.train.Checkpoint(weights=source.weights, optimizer=source.optimizer)
    path = saved.save(tmp_path / "one")
    tf.train.Checkpoint(weights=target.weights, optimizer=target.optimizer).restore(
        path
    ).assert_consumed()
    pairs = zip(
        [*source.weights, *source.optimizer.variables],
        [*target.weights, *target.optimizer.variables],
        strict=True,
    )
    for old, new in pairs:
        np.testing.assert_array_equal(old.numpy(), new.numpy())
    count, kind = after
    wanted = (16, 32 // count) if kind == "sharded" else (16, 32)
    assert parts(target.weights[0]) == {wanted}
    target.compiled(*target.batch())


def test_each_device_reads_and_writes_its_part_only(tmp_path):
    shape = (1024, 512)
    strategy = make(8)
    v = variable(strategy, lambda: jax.random.normal(jax.random.key(0), shape))
    device = jax.devices("cpu")[1]
    before = held(device)
    path = tf.train.Checkpoint(v=v).save(tmp_path / "one")
    wanted = v.numpy()
    v.assign(np.zeros(shape, np.float32), read_value=False)
    tf.train.Checkpoint(v=v).restore(path).assert_consumed()
    # A counter of saves was added.
    assert held(device) - before < 100
    np.testing.assert_array_equal(v.numpy(), wanted)


@pytest.mark.parametrize("extreme", [jnp.max, jnp.min])
@pytest.mark.parametrize("place", range(4))
def test_an_extreme_of_all_parts_is_nan_if_a_part_has_one(extreme, place):
    def update(gradients, state, params=None):
        return jax.tree.map(lambda g: g / extreme(g), gradients), state

    transformation = optax.GradientTransformation(lambda params: (), update)
    strategy = make(2, above=1)
    with strategy.scope():
        w = tf.Variable(np.zeros(4, np.float32))
        optimizer = tf.optimizers.Optimizer(transformation, [w])
    gradient = np.ones(4, np.float32)
    gradient[place] = np.nan

    def replica(g):
        optimizer.apply_gradients([(g, w)])

    tf.function(lambda g: strategy.run(replica, args=(g,)))(gradient)
    assert np.isnan(w.numpy()).all()


@pytest.mark.parametrize("loop", ["scan", "cond"])
def test_eager_code_may_read_a_split_variable_in_a_loop_of_jax(loop):
    strategy = make(2, above=1)
    with strategy.scope():
        w = tf.Variable(np.ones(4, np.float32))

    def compute(x):
        if loop == "cond":
            return jax.lax.cond(x.sum() > 0, lambda: x * w.value(), lambda: x)
        return jax.lax.scan(lambda x, _: (x + w.value(), None), x, length=3)[0]

    def replica():
        with tf.GradientTape() as tape:
            loss = jnp.sum(compute(jnp.ones(4)))
        return loss, tape.gradient(loss, w)

    wanted = (16.0, 3.0) if loop == "scan" else (4.0, 1.0)
    losses, gradients = strategy.run(replica)
    for loss, gradient in zip(
        strategy.experimental_local_results(losses),
        strategy.experimental_local_results(gradients),
        strict=True,
    ):
        assert (float(loss), gradient.tolist()) == (wanted[0], [wanted[1]] * 4)
    assert float(jnp.sum(compute(jnp.ones(4)))) == wanted[0]
