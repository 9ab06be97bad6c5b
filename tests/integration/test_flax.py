"""Flax NNX modules, optimizers, metrics and random streams under strategies."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as uni
from tests.integration.programs import difference, examples, mirrored, scope

nnx = pytest.importorskip("flax.nnx")

CLOSE = 2e-6


def per_replica(strategy, *values):
    return strategy.experimental_distribute_values_from_function(
        lambda context: jnp.asarray(values[context.replica_id_in_sync_group])
    )


class Net(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(5, 8, rngs=rngs)
        self.outer = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        return self.outer(nnx.relu(self.inner(x)))


def loop(strategy, compiled=True, by_argument=False, count=19, batch=8):
    """Trains by a custom loop; returns what came out."""
    x, y = examples(count)
    with strategy.scope():
        model = Net(nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.adam(0.01), wrt=nnx.Param)
        average = nnx.metrics.Average("loss")

    def replica_step(model, inputs):
        features, labels = inputs

        def loss_fn(model):
            losses = optax.softmax_cross_entropy_with_integer_labels(
                model(features), labels
            )
            average.update(loss=losses)
            return uni.nn.compute_average_loss(losses, global_batch_size=batch)

        loss, gradients = nnx.value_and_grad(loss_fn)(model)
        optimizer.update(model, gradients)
        return loss

    def step(inputs):
        if by_argument:
            losses = strategy.run(replica_step, args=(model, inputs))
        else:
            losses = strategy.run(lambda i: replica_step(model, i), args=(inputs,))
        return strategy.reduce("SUM", losses, axis=None)

    run = uni.function(step) if compiled else step
    data = strategy.experimental_distribute_dataset(
        uni.data.Dataset.from_tensor_slices((x, y)).batch(batch)
    )
    return {
        "losses": [float(run(inputs)) for inputs in data],
        "average": float(average.compute()),
        "weights": [np.asarray(v) for v in jax.tree.leaves(nnx.state(model))],
        "steps": int(optimizer.step[...]),
        "slots": [np.asarray(v) for v in jax.tree.leaves(nnx.state(optimizer))],
    }


def reference(count=19, batch=8):
    """The same loop without unisono."""
    x, y = examples(count)
    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(0.01), wrt=nnx.Param)
    average, found = nnx.metrics.Average("loss"), []
    for start in range(0, count, batch):
        features, labels = x[start : start + batch], y[start : start + batch]

        def loss_fn(model, features=features, labels=labels):
            losses = optax.softmax_cross_entropy_with_integer_labels(
                model(features), labels
            )
            return losses.sum() / batch, losses

        (loss, losses), gradients = nnx.value_and_grad(loss_fn, has_aux=True)(model)
        average.update(loss=losses)
        optimizer.update(model, gradients)
        found.append(float(loss))
    return {
        "losses": found,
        "average": float(average.compute()),
        "weights": [np.asarray(v) for v in jax.tree.leaves(nnx.state(model))],
        "steps": int(optimizer.step[...]),
        "slots": [np.asarray(v) for v in jax.tree.leaves(nnx.state(optimizer))],
    }


@pytest.mark.feature("V08")
@pytest.mark.parametrize(
    ("replicas", "compiled", "by_argument"),
    [(2, True, False), (4, True, True), (2, False, True)],
)
def test_a_module_trains_as_on_one_device(replicas, compiled, by_argument):
    found = loop(mirrored(replicas), compiled, by_argument, count=11)
    assert difference(reference(count=11), found) < CLOSE


def test_a_module_may_be_an_argument_of_the_compiled_function():
    strategy = mirrored(2)
    with strategy.scope():
        model = Net(nnx.Rngs(0))

    @uni.function
    def double(model):
        model.inner.kernel[...] = model.inner.kernel * 2

    before = np.asarray(model.inner.kernel[...])
    double(model)
    double(model)
    np.testing.assert_allclose(model.inner.kernel[...], 4 * before, rtol=1e-6)
    assert double.experimental_get_tracing_count() == 1


def test_gradients_by_our_own_function():
    strategy = mirrored(2)
    with strategy.scope():
        w = nnx.Param(jnp.array([1.0, 2.0]))
        optimizer = uni.optimizers.Optimizer(optax.sgd(0.1), [w])

    @uni.function
    def step(values):
        def replica_step(x):
            (gradient,) = uni.grad(lambda: jnp.sum(w * x), [w])()
            optimizer.apply_gradients([(gradient, w)])

        strategy.run(replica_step, args=(values,))

    step(per_replica(strategy, 1.0, 2.0))
    np.testing.assert_allclose(w[...], [0.7, 1.7], rtol=1e-6)


@pytest.mark.feature("V05")
@pytest.mark.parametrize("compiled", [False, True])
def test_metrics_add_up_over_replicas(compiled):
    strategy = mirrored(2)
    with strategy.scope():
        metrics = nnx.MultiMetric(
            loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy()
        )

    def step(values):
        def replica_step(v):
            logits = jnp.stack([v, 1 - v])[None]
            metrics.update(loss=v[None], logits=logits, labels=jnp.array([0]))

        strategy.run(replica_step, args=(values,))

    run = uni.function(step) if compiled else step
    run(per_replica(strategy, 1.0, 0.0))
    run(per_replica(strategy, 3.0, 4.0))
    found = {k: float(v) for k, v in metrics.compute().items()}
    assert found == {"loss": 2.0, "accuracy": 0.75}
    metrics.reset()
    run(per_replica(strategy, 5.0, 7.0))
    assert float(metrics.compute()["loss"]) == 6.0


def test_a_metric_that_cannot_be_added_up_is_refused():
    with mirrored(2).scope(), pytest.raises(ValueError, match="Welford"):
        nnx.metrics.Welford("x")
    nnx.metrics.Welford("x")


@pytest.mark.parametrize("compiled", [False, True])
def test_streams_differ_between_replicas_and_steps_but_not_between_runs(compiled):
    def draw(replicas):
        strategy = mirrored(replicas)
        with strategy.scope():
            rngs = nnx.Rngs(dropout=3)
            dropout = nnx.Dropout(0.5, rngs=rngs)

        def step():
            return strategy.run(lambda: dropout(jnp.ones(64)))

        run = uni.function(step) if compiled else step
        drawn = [run() for _ in range(2)]
        return [
            [np.asarray(p) for p in strategy.experimental_local_results(d)]
            for d in drawn
        ]

    first = draw(2)
    assert difference(first, draw(2)) == 0
    assert difference(*first[0]) > 0
    assert difference(first[0][0], first[1][0]) > 0
    plain = nnx.Dropout(0.5, rngs=nnx.Rngs(dropout=3))
    assert difference(plain(jnp.ones(64)), draw(1)[0][0]) == 0


@pytest.mark.parametrize("compiled", [False, True])
def test_batch_statistics_of_replicas_are_averaged(compiled):
    strategy = mirrored(2)
    with strategy.scope():
        norm = nnx.BatchNorm(1, momentum=0.0, rngs=nnx.Rngs(0))

    def step(values):
        strategy.run(lambda x: norm(x) is None, args=(values,))

    values = per_replica(
        strategy,
        np.array([[1.0], [3.0]], "float32"),
        np.array([[5.0], [5.0]], "float32"),
    )
    (uni.function(step) if compiled else step)(values)
    np.testing.assert_allclose(norm.mean[...], [3.5])
    np.testing.assert_allclose(norm.var[...], [0.5])


def test_replicas_that_take_turns_train_a_module_with_statistics():
    """NNX takes modules apart to put values back; no replica may see them so."""

    class Normed(nnx.Module):
        def __init__(self, rngs):
            self.inner = nnx.Linear(5, 3, rngs=rngs)
            self.norm = nnx.BatchNorm(3, rngs=rngs)

    def train(compiled):
        strategy = mirrored(2)
        with strategy.scope():
            model = Normed(nnx.Rngs(0))
            optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

        def replica_step(x):
            def loss_fn(model):
                return jnp.mean((model.norm(model.inner(x)) - 1.0) ** 2)

            loss, gradients = nnx.value_and_grad(loss_fn)(model)
            optimizer.update(model, gradients)
            return loss

        def step(x):
            return strategy.run(replica_step, args=(x,))

        run = uni.function(step) if compiled else step
        rng = np.random.default_rng(0)
        parts = [rng.normal(size=(4, 5)).astype(np.float32) for _ in range(2)]
        for _ in range(3):
            losses = run(per_replica(strategy, *parts))
        found = strategy.experimental_local_results(losses)
        state = jax.tree.leaves(nnx.state(model))
        return [np.asarray(v) for v in [*found, *state]]

    for eager, compiled in zip(train(False), train(True), strict=True):
        np.testing.assert_allclose(eager, compiled, rtol=1e-5, atol=CLOSE)


def test_what_nnx_takes_apart_is_plain_and_goes_back_in():
    strategy = mirrored(2)
    with strategy.scope():
        model = Net(nnx.Rngs(0))
    graph, state = nnx.split(model)
    doubled = jax.tree.map(lambda x: 2 * x, state)
    copy = nnx.merge(graph, doubled)
    before = np.asarray(model.inner.kernel[...])
    np.testing.assert_allclose(copy.inner.kernel[...], 2 * before)
    np.testing.assert_allclose(model.inner.kernel[...], before)
    nnx.update(model, doubled)
    np.testing.assert_allclose(model.inner.kernel[...], 2 * before)
    rows = strategy.describe(model).rows
    assert [(r.name, r.placement, r.devices) for r in rows] == [
        (f"{layer}.{name}", "mirrored", 2)
        for layer in ("inner", "outer")
        for name in ("bias", "kernel")
    ]
    assert (
        "<td>inner.kernel</td><td>(5, 8)</td>" in strategy.describe(model)._repr_html_()
    )


def test_a_scope_leaves_flax_as_it_was():
    before = [vars(nnx.Optimizer)["update"], vars(type(nnx.Variable)).copy()]
    with mirrored(2).scope():
        inside = nnx.Param(jnp.ones(2))
        assert vars(nnx.Optimizer)["update"] is not before[0]
    outside = nnx.Param(jnp.ones(2))
    assert vars(nnx.Optimizer)["update"] is before[0]
    assert vars(type(nnx.Variable)) == before[1]
    assert type(outside) is nnx.Param
    assert isinstance(inside, nnx.Param)
    assert not hasattr(outside, "_unisono_variable")


# Layers that are stacked, for a scan over them.


class Block(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(5, 5, rngs=rngs)
        self.norm = nnx.BatchNorm(5, rngs=rngs)

    def __call__(self, x, rngs):
        x = self.norm(x + nnx.relu(self.linear(x)))
        return nnx.Dropout(0.2)(x, rngs=rngs)


class Stack(nnx.Module):
    """Blocks made by `nnx.vmap` and called by `nnx.scan`, with keys for each block."""

    def __init__(self, rngs, count=3):
        @nnx.split_rngs(splits=count)
        @nnx.vmap(in_axes=0, out_axes=0)
        def make(rngs):
            return Block(rngs)

        self.count = count
        self.blocks = make(rngs)
        self.rngs = rngs

    def __call__(self, x):
        @nnx.split_rngs(splits=self.count)
        @nnx.scan(in_axes=(nnx.Carry, 0, 0), out_axes=nnx.Carry)
        def forward(x, block, rngs):
            return block(x, rngs)

        return forward(x, self.blocks, self.rngs)


class StackProgram:
    """A stack, its optimizer, and a step that changes all of their state."""

    def __init__(self, strategy, compiled=True, seed=0, model=Stack):
        self.strategy = strategy
        with scope(strategy):
            self.model = model(nnx.Rngs(seed, dropout=seed + 1))
            self.optimizer = nnx.Optimizer(self.model, optax.adam(0.01), wrt=nnx.Param)
        is_function = compiled and strategy is not None
        self.step = uni.function(self.one_step) if is_function else self.one_step

    def one_step(self, x):
        def one(x):
            def loss_fn(model):
                return jnp.mean(model(x) ** 2)

            loss, gradients = nnx.value_and_grad(loss_fn)(self.model)
            self.optimizer.update(self.model, gradients)
            return loss

        if self.strategy is None:
            return one(x)
        losses = self.strategy.run(one, args=(x,))
        return self.strategy.experimental_local_results(losses)

    def train(self, steps=3, x=None):
        x = examples(8)[0] if x is None else x
        losses = [self.step(x) for _ in range(steps)]
        state = nnx.state((self.model, self.optimizer))
        plain = nnx.filter_state(state, nnx.Not(nnx.RngKey))
        return [np.asarray(v) for v in jax.tree.leaves((losses, plain))]


def test_a_scan_over_layers_trains_as_without_a_strategy():
    wanted = StackProgram(None).train()
    for compiled in (True, False):
        program = StackProgram(mirrored(1), compiled)
        assert difference(wanted, program.train()) < 1e-5
        kernel = program.model.blocks.linear.kernel
        assert (kernel.shape, hasattr(kernel, "_unisono_variable")) == ((3, 5, 5), True)


def test_a_scan_over_layers_is_the_same_compiled_and_eager_on_two_replicas():
    compiled, eager = (StackProgram(mirrored(2), c) for c in (True, False))
    assert difference(compiled.train(2), eager.train(2)) < 1e-5
    rows = mirrored(2).describe(eager.model).rows
    assert {(r.placement, r.devices) for r in rows} == {("mirrored", 2)}
    key = eager.model.rngs.dropout.key
    assert (key.shape, key.get_raw_value().shape) == ((), ())


def test_a_scan_over_layers_trains_on_uneven_batches():
    # The stream that is an attribute counts in the scan, layer by layer.
    class OwnDropout(nnx.Module):
        def __init__(self, rngs):
            self.linear = nnx.Linear(5, 5, rngs=rngs)
            self.dropout = nnx.Dropout(0.2, rngs=rngs)

        def __call__(self, x):
            return self.dropout(nnx.relu(self.linear(x)))

    class Model(nnx.Module):
        def __init__(self, rngs):
            make = nnx.vmap(OwnDropout, in_axes=0, out_axes=0)
            self.blocks = nnx.split_rngs(splits=3)(make)(rngs)
            self.stack = Stack(rngs)

        def __call__(self, x):
            scan = nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
            return self.stack(scan(lambda x, block: block(x))(x, self.blocks))

    strategy, (x, _) = mirrored(2), examples(5)
    uneven, found = per_replica(strategy, x[:3], x[3:]), []
    for compiled in (True, False):
        program = StackProgram(strategy, compiled, model=Model)
        found.append(program.train(2, uneven))
        count = program.model.blocks.dropout.rngs.count
        assert count.get_raw_value().tolist() == [2, 2, 2]
        origin = count._unisono_variable.state_cell.origin
        assert origin.startswith(f"{__file__}:")
    assert difference(*found) < 1e-5


def test_a_scan_over_layers_goes_on_from_a_checkpoint(tmp_path):
    first = StackProgram(mirrored(2))
    first.train(2)
    path = uni.train.Checkpoint(m=first.model, o=first.optimizer).save(tmp_path / "c")
    second = StackProgram(mirrored(2), seed=5)
    uni.train.Checkpoint(m=second.model, o=second.optimizer).restore(
        path
    ).assert_consumed()
    assert difference(first.train(1), second.train(1)) < 1e-6


def test_a_module_made_by_jit_or_from_shapes_belongs_to_the_strategy():
    with mirrored(2).scope():
        made = nnx.jit(lambda: Block(nnx.Rngs(0)))()
        graph, shapes = nnx.split(nnx.eval_shape(lambda: Block(nnx.Rngs(0))))
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        merged = nnx.merge(graph, zeros)
    for module in (made, merged):
        rows = mirrored(2).describe(module).rows
        assert {(r.placement, r.devices) for r in rows} == {("mirrored", 2)}
        assert {r.name for r in rows} >= {"linear.kernel", "norm.mean"}
    plain = Block(nnx.Rngs(0)).linear.kernel[...]
    np.testing.assert_allclose(made.linear.kernel[...], plain, rtol=1e-6)


def test_streams_that_stay_split_are_refused_where_they_would_be_lost(tmp_path):
    strategy = mirrored(2)
    with strategy.scope():
        rngs = nnx.Rngs(dropout=3)
    before = jax.random.key_data(rngs.dropout.key[...])
    backups = nnx.split_rngs(rngs, splits=4)
    assert rngs.dropout.key.shape == (4,)
    with pytest.raises(RuntimeError, match=r"split into \(4,\).*restore_rngs"):
        strategy.run(lambda: jax.random.uniform(rngs.dropout()))
    with pytest.raises(RuntimeError, match=r"split into \(4,\).*restore_rngs"):
        uni.train.Checkpoint(rngs=rngs).save(tmp_path / "c")
    nnx.restore_rngs(backups)
    np.testing.assert_array_equal(jax.random.key_data(rngs.dropout.key[...]), before)
    assert int(rngs.dropout.count[...]) == 1
    uni.train.Checkpoint(rngs=rngs).save(tmp_path / "c")


@pytest.mark.parametrize("compiled", [False, True])
def test_an_optimizer_made_outside_the_scope_is_refused_by_name(compiled):
    strategy = mirrored(2)
    model = Net(nnx.Rngs(0))
    with strategy.scope():
        own = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(own, optax.sgd(0.1), wrt=nnx.Param)
    with strategy.scope():
        other = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

    def step(model, optimizer):
        def replica_step():
            gradients = nnx.grad(lambda m: jnp.sum(m(jnp.ones((1, 5)))))(model)
            optimizer.update(model, gradients)

        strategy.run(replica_step)

    for net, made, what in [
        (own, optimizer, "'step' of the optimizer"),
        (model, other, "'inner.bias' of the model"),
    ]:
        run = uni.function(lambda n=net, m=made: step(n, m))
        with pytest.raises(ValueError, match=f"{what} was not created in the.*scope"):
            run() if compiled else step(net, made)


# Plain pytrees.


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Linear:
    """A class of parameters, as Equinox has them."""

    w: jax.Array
    b: jax.Array

    def __call__(self, x):
        return x @ self.w + self.b


def functional_loop(strategy, compiled):
    x, _ = examples(19)
    tx = optax.adam(0.1)
    model = Linear(jnp.ones((5, 2)), jnp.zeros(2))
    slots = tx.init(model)

    def step(model, slots, inputs):
        def replica_fn(model, features):
            return jax.grad(lambda m: jnp.sum(m(features) ** 2) / 8)(model)

        gradients = strategy.run(replica_fn, args=(model, inputs))
        gradients = strategy.reduce("SUM", gradients, axis=None)
        updates, slots = tx.update(gradients, slots, model)
        return optax.apply_updates(model, updates), slots

    run = uni.function(step) if compiled else step
    for inputs in strategy.experimental_distribute_dataset(
        uni.data.Dataset.from_tensor_slices(x).batch(8)
    ):
        model, slots = run(model, slots, inputs)
    return [np.asarray(model.w), np.asarray(model.b)]


@pytest.mark.parametrize("compiled", [False, True])
def test_plain_pytrees_are_mirrored_values(compiled):
    wanted = functional_loop(mirrored(1), False)
    for replicas in (2, 4) if compiled else (2,):
        assert difference(wanted, functional_loop(mirrored(replicas), compiled)) < CLOSE


@pytest.mark.parametrize("compiled", [False, True])
def test_replicas_reduce_plain_pytrees(compiled):
    strategy = mirrored(2)

    def step(values):
        def replica_fn(v):
            context = uni.distribute.get_replica_context()
            return context.all_reduce("SUM", Linear(v, 2 * v))

        return strategy.run(replica_fn, args=(values,))

    run = uni.function(step) if compiled else step
    for part in run(per_replica(strategy, 1.0, 3.0)).values:
        assert (float(part.w), float(part.b)) == (4.0, 8.0)


class Averaging(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(5, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.outer = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        return self.outer(self.drop(nnx.relu(self.norm(self.inner(x)))))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_tape_follows_parameters(replicas, compiled):
    strategy = mirrored(replicas)
    x, y = examples(8)
    parts = [per_replica(strategy, *np.split(np.asarray(a), replicas)) for a in (x, y)]

    def train(by_tape):
        with strategy.scope():
            model = Averaging(nnx.Rngs(0))
            found = [v for _, v in nnx.iter_graph(model) if isinstance(v, nnx.Param)]
            optimizer = uni.optimizers.Optimizer(optax.sgd(0.1), found)

        def loss_fn(x, y):
            each = optax.softmax_cross_entropy_with_integer_labels(model(x), y)
            return uni.nn.compute_average_loss(each, global_batch_size=8)

        def replica_fn(x, y):
            if by_tape:
                with uni.GradientTape() as tape:
                    loss = loss_fn(x, y)
                gradients = tape.gradient(loss, found)
            else:
                loss, gradients = uni.value_and_grad(lambda: loss_fn(x, y), found)()
            optimizer.apply_gradients(zip(gradients, found, strict=True))
            return loss

        def step(*parts):
            losses = strategy.run(replica_fn, args=parts)
            return strategy.reduce("SUM", losses, axis=None)

        run = uni.function(step) if compiled else step
        losses = [float(run(*parts)) for _ in range(3)]
        return {"losses": losses, "weights": [np.asarray(v[...]) for v in found]}

    assert difference(train(by_tape=False), train(by_tape=True)) < CLOSE
