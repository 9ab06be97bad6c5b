"""Keras models, optimizers, metrics and random layers in custom training loops."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as uni
from tests import machine
from tests.integration.programs import difference, examples, mirrored

keras = pytest.importorskip("keras")
layers = keras.layers

CLOSE = 2e-6


def per_replica(strategy, *values):
    """Returns one value for each replica."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: jnp.asarray(values[context.replica_id_in_sync_group])
    )


def silently(fn):
    """Returns the function without its result."""

    def call(*args):
        fn(*args)

    return call


def loop(
    strategy,
    make_optimizer,
    count=19,
    batch=8,
    compiled=True,
    built=True,
    by_tape=False,
):
    """Trains by a custom loop; returns what came out."""
    x, y = examples(count)
    with strategy.scope():
        keras.utils.set_random_seed(3)
        first = [layers.Input((5,))] if built else []
        hidden = layers.Dense(8, activation="relu")
        model = keras.Sequential([*first, hidden, layers.Dense(3)])
        optimizer = make_optimizer()
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        loss_object = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="none"
        )
        if not built:
            strategy.run(silently(model), args=(x[:1],))

    def replica_step(inputs):
        features, labels = inputs

        def loss_fn():
            logits = model(features, training=True)
            accuracy.update_state(labels, logits)
            losses = loss_object(labels, logits)
            loss = uni.nn.compute_average_loss(losses, global_batch_size=batch)
            return optimizer.scale_loss(loss), loss

        if by_tape:
            with uni.GradientTape() as tape:
                scaled, loss = loss_fn()
            gradients = tape.gradient(scaled, model.trainable_variables)
        else:
            differentiated = uni.value_and_grad(
                loss_fn, model.trainable_variables, has_aux=True
            )
            (_, loss), gradients = differentiated()
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    def step(inputs):
        return strategy.reduce(
            "SUM", strategy.run(replica_step, args=(inputs,)), axis=None
        )

    data = uni.data.Dataset.from_tensor_slices((x, y)).batch(batch)
    run = uni.function(step) if compiled else step
    distributed = strategy.experimental_distribute_dataset(data)
    return {
        "losses": [float(run(inputs)) for inputs in distributed],
        "accuracy": float(accuracy.result()),
        "weights": model.get_weights(),
        "optimizer": [np.array(v) for v in optimizer.variables],
    }


OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01),
    "accumulating": lambda: keras.optimizers.SGD(
        0.1, momentum=0.9, gradient_accumulation_steps=2
    ),
    "loss scaling": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1)
    ),
    "clipping, decay, averages": lambda: keras.optimizers.AdamW(
        0.01, global_clipnorm=0.1, use_ema=True
    ),
}


@pytest.mark.feature("V04", "V08")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_custom_loop_gives_one_device_s_numbers(name):
    one = uni.distribute.OneDeviceStrategy(machine.name(0))
    wanted = loop(one, OPTIMIZERS[name], count=11)
    for replicas in (2, 4) if name == "adam" else (4,):
        # 11 examples by 8: the last batch is uneven, and one of 4 replicas gets none.
        found = loop(mirrored(replicas), OPTIMIZERS[name], count=11)
        assert difference(wanted, found) < CLOSE


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_custom_loop_with_a_tape_gives_one_device_s_numbers(name, compiled):
    one = uni.distribute.OneDeviceStrategy(machine.name(0))
    wanted = loop(one, OPTIMIZERS[name], count=11)
    more = {"count": 11, "compiled": compiled, "by_tape": True}
    assert difference(wanted, loop(one, OPTIMIZERS[name], **more)) < CLOSE
    # The last batch is uneven, and one of 4 replicas gets none.
    assert difference(wanted, loop(mirrored(4), OPTIMIZERS[name], **more)) < CLOSE


def gradients_of_layers(strategy, compiled, by_tape):
    """The gradients and the state of layers that keep averages, draw or loop."""
    with strategy.scope():
        keras.utils.set_random_seed(3)
        model = keras.Sequential(
            [
                layers.Input((6, 4)),
                layers.LSTM(5, return_sequences=True),
                layers.BatchNormalization(),
                layers.Dropout(0.5),
                layers.GRU(3),
                layers.Dense(2),
            ]
        )
    x = np.random.default_rng(0).normal(size=(8, 6, 4)).astype("f")

    def loss_fn(x):
        return jnp.mean(jnp.square(model(x, training=True)))

    def replica_fn(x):
        if not by_tape:
            watched = model.trainable_variables
            return uni.value_and_grad(lambda: loss_fn(x), watched)()
        with uni.GradientTape() as tape:
            loss = loss_fn(x)
        return loss, tape.gradient(loss, model.trainable_variables)

    def step(x):
        return strategy.run(replica_fn, args=(x,))

    count = strategy.num_replicas_in_sync
    parts = per_replica(strategy, *np.split(x, count))
    loss, gradients = (uni.function(step) if compiled else step)(parts)
    every = [strategy.experimental_local_results(g) for g in (loss, *gradients)]
    return {
        "gradients": [np.asarray(part) for parts in every for part in parts],
        "state": [np.array(v) for v in model.non_trainable_variables],
    }


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_tape_follows_layers_that_average_draw_and_loop(replicas, compiled):
    wanted = gradients_of_layers(mirrored(replicas), compiled, by_tape=False)
    found = gradients_of_layers(mirrored(replicas), compiled, by_tape=True)
    assert difference(wanted, found) < 1e-5


@pytest.mark.feature("V08")
def test_eager_loops_and_central_storage_give_the_same_numbers():
    adam = OPTIMIZERS["adam"]
    wanted = loop(mirrored(1), adam, count=6, batch=4)
    central = uni.distribute.experimental.CentralStorageStrategy(
        machine.names_up_to(2), machine.name(0)
    )
    assert difference(wanted, loop(mirrored(2), adam, 6, 4, compiled=False)) < CLOSE
    assert difference(wanted, loop(central, adam, 6, 4)) < CLOSE


@pytest.mark.feature("V08")
def test_a_model_may_be_built_inside_run():
    adam = OPTIMIZERS["adam"]
    wanted = loop(mirrored(2), adam, count=6, batch=4)
    assert difference(wanted, loop(mirrored(2), adam, 6, 4, built=False)) < CLOSE


def test_a_model_may_be_built_inside_a_compiled_step():
    x, _ = examples(8)
    strategy = mirrored(2)
    with strategy.scope():
        keras.utils.set_random_seed(3)
        model = keras.Sequential([layers.Dense(2)])
        optimizer = keras.optimizers.SGD(0.1)

    @uni.function
    def step(inputs):
        def replica_step(features):
            model(features)
            gradients = uni.grad(
                lambda: jnp.sum(model(features)) / 8, model.trainable_variables
            )()
            optimizer.apply(gradients, model.trainable_variables)

        strategy.run(replica_step, args=(inputs,))

    data = strategy.experimental_distribute_dataset(
        uni.data.Dataset.from_tensor_slices(x).batch(8)
    )
    for _ in range(2):
        for inputs in data:
            step(inputs)
    keras.utils.set_random_seed(3)
    fresh = keras.layers.Dense(2)
    fresh.build((None, 5))
    wanted = np.array(fresh.kernel) - 0.2 * np.repeat(x.mean(0)[:, None], 2, 1)
    np.testing.assert_allclose(model.get_weights()[0], wanted, rtol=1e-5)
    assert int(optimizer.iterations.value) == 2
    assert {r.devices for r in strategy.describe(model).rows} == {2}


@pytest.mark.feature("V04")
@pytest.mark.parametrize("kind", ["unisono", "keras"])
@pytest.mark.parametrize("compiled", [False, True])
def test_apply_gradients_sums_over_replicas(kind, compiled):
    # 08-keras-optimizer-replica
    strategy = mirrored(2)
    with strategy.scope():
        make = uni.Variable if kind == "unisono" else keras.Variable
        v = make(1.0)
        optimizer = keras.optimizers.SGD(0.1)
    gradients = per_replica(strategy, 1.0, 2.0)

    def step(gradient):
        strategy.run(
            silently(lambda g: optimizer.apply_gradients([(g, v)])), args=(gradient,)
        )

    (uni.function(step) if compiled else step)(gradients)
    assert float(v.value() if kind == "unisono" else v.value) == pytest.approx(0.7)
    assert int(optimizer.iterations.value) == 1


def test_optimizer_variables_have_keras_aggregations():
    # 08-keras-optimizer-vars
    strategy = mirrored(2)
    with strategy.scope():
        v = keras.Variable(1.0)
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build([v])
    assert optimizer.iterations.aggregation == "only_first_replica"
    assert optimizer.momentums[0].aggregation == "none"
    assert {r.placement for r in strategy.describe(optimizer).rows} == {"mirrored"}


@pytest.mark.feature("V05")
@pytest.mark.parametrize("compiled", [False, True])
def test_metrics_keep_a_sum_per_replica(compiled):
    # 08-keras-metric
    strategy = mirrored(2)
    with strategy.scope():
        mean = keras.metrics.Mean()
    values = per_replica(strategy, 1.0, 2.0)

    def step(values):
        strategy.run(silently(mean.update_state), args=(values,))

    (uni.function(step) if compiled else step)(values)
    kept = [v._unisono_variable for v in mean.variables]
    assert float(mean.result()) == 1.5
    assert [[float(c.value()) for c in v.values] for v in kept] == [[1, 2], [1, 1]]
    assert {(v.synchronization.name, v.aggregation.name) for v in kept} == {
        ("ON_READ", "SUM")
    }
    mean.update_state(6.0)
    assert float(mean.result()) == 3.0
    mean.reset_state()
    assert float(mean.result()) == 0.0


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("aggregation", "wanted"),
    [("sum", 10 + 1 + 3), ("mean", 10 + 2), ("only_first_replica", 10 + 1)],
)
def test_variables_follow_their_own_aggregation(aggregation, wanted, compiled):
    strategy = mirrored(2)
    with strategy.scope():
        v = keras.Variable(10.0, trainable=False, aggregation=aggregation)

    def step(values):
        strategy.run(silently(v.assign_add), args=(values,))

    run = uni.function(step) if compiled else step
    run(per_replica(strategy, 1.0, 3.0))
    assert float(v.value) == wanted


@pytest.mark.parametrize("compiled", [False, True])
def test_moving_averages_of_replicas_are_averaged(compiled):
    strategy = mirrored(2)
    with strategy.scope():
        norm = layers.BatchNormalization(momentum=0.0)
        norm.build((None, 1))
    parts = np.array([[1.0], [3.0]]), np.array([[5.0], [5.0]])
    values = per_replica(strategy, *(p.astype("float32") for p in parts))

    def step(values):
        return strategy.run(lambda x: norm(x, training=True), args=(values,))

    result = (uni.function(step) if compiled else step)(values)
    np.testing.assert_allclose(norm.moving_mean, [3.5])
    np.testing.assert_allclose(norm.moving_variance, [0.5])
    # Each replica normalizes by its own part.
    np.testing.assert_allclose(result.values[0], [[-1], [1]], rtol=1e-2)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_weight_that_would_differ_between_replicas_is_refused(compiled):
    strategy = mirrored(2)
    with strategy.scope():
        v = keras.Variable(1.0)

    def step(values):
        strategy.run(silently(v.assign), args=(values,))

    run = uni.function(step) if compiled else step
    with pytest.raises(ValueError, match="differ"):
        run(per_replica(strategy, 1.0, 3.0))
        v.numpy()


# Random layers.


@pytest.mark.parametrize("compiled", [False, True])
def test_replicas_draw_numbers_of_their_own_and_the_same_in_every_run(compiled):
    def draw(replicas):
        strategy = mirrored(replicas)
        with strategy.scope():
            dropout = layers.Dropout(0.5, seed=7)
            seeds = keras.random.SeedGenerator(3)

        def replica_fn():
            kept = dropout(jnp.ones(64), training=True)
            return kept, keras.random.normal((3,), seed=seeds)

        run = (
            uni.function(lambda: strategy.run(replica_fn))
            if compiled
            else (lambda: strategy.run(replica_fn))
        )
        steps = [run() for _ in range(2)]
        assert np.asarray(seeds.state.value).tolist() == [3, 2]
        return [
            [np.asarray(p) for p in strategy.experimental_local_results(leaf)]
            for step in steps
            for leaf in step
        ]

    first, second = draw(2), draw(2)
    assert difference(first, second) == 0
    for one, two in first:
        assert difference(one, two) > 0
    for replica in (0, 1):
        assert difference(first[0][replica], first[2][replica]) > 0
    dropout = layers.Dropout(0.5, seed=7)
    plain = dropout(jnp.ones(64), training=True)
    assert difference(plain, draw(1)[0][0]) == 0


@pytest.mark.parametrize("compiled", [False, True])
def test_random_layers_work_where_state_is_central(compiled):
    strategy = uni.distribute.experimental.CentralStorageStrategy(
        machine.names(2), machine.name(0)
    )
    with strategy.scope():
        dropout = layers.Dropout(0.5, seed=7)
    state = dropout.seed_generator.state

    def step():
        return strategy.run(lambda: dropout(jnp.ones(64), training=True))

    run = uni.function(step) if compiled else step
    first, second = run().values
    assert difference(first, second) > 0
    assert np.asarray(state.value).tolist() == [7, 1]


def test_the_global_seed_generator_belongs_to_no_strategy():
    for replicas in (2, 4):
        strategy = mirrored(replicas)
        with strategy.scope():
            drawn = strategy.run(lambda: keras.random.normal((2,)))
        assert difference(drawn.values[0], drawn.values[1]) > 0
    assert keras.random.normal((2,)).shape == (2,)


# Layers that know of strategies.


class CentredByAll(layers.Layer):
    """Subtracts the mean over the batches of all replicas."""

    def call(self, x, training=False):
        mean = jnp.mean(x)
        if not uni.distribute.in_cross_replica_context():
            context = uni.distribute.get_replica_context()
            mean = context.all_reduce("MEAN", mean)
        return x - mean


@pytest.mark.feature("V07")
@pytest.mark.parametrize("compiled", [False, True])
def test_a_layer_may_reduce_over_replicas(compiled):
    strategy = mirrored(2)
    with strategy.scope():
        late = layers.Dropout(0.5, seed=1)
        model = keras.Sequential([layers.Input((4,)), CentredByAll(), late])
        inside = model(np.arange(8, dtype="float32").reshape(2, 4))
    assert inside.shape == (2, 4)
    np.testing.assert_allclose(np.asarray(inside).mean(), 0.0)
    values = per_replica(strategy, np.ones((1, 4), "f4"), np.full((1, 4), 3.0, "f4"))

    def step(values):
        return strategy.run(lambda x: model(x), args=(values,))

    run = uni.function(step) if compiled else step
    parts = [np.asarray(p) for p in run(values).values]
    assert [p.mean() for p in parts] == [-1.0, 1.0]

    # A replica that waits inside the model still knows that it is training.
    def train(values):
        return strategy.run(lambda x: model(x, training=True), args=(values,))

    run = uni.function(train) if compiled else train
    joined = np.concatenate([np.asarray(p) for p in run(values).values])
    assert set(np.abs(joined).ravel()) == {0.0, 2.0}


# Optax and jax.


def test_optax_updates_keras_variables():
    x, _ = examples(8)
    results = []
    for replicas in (1, 4):
        strategy = mirrored(replicas)
        with strategy.scope():
            keras.utils.set_random_seed(3)
            model = keras.Sequential([layers.Input((5,)), layers.Dense(2)])
            optimizer = uni.optimizers.Optimizer(
                optax.adam(0.1), model.trainable_variables
            )

        @uni.function
        def step(inputs, strategy=strategy, model=model, optimizer=optimizer):
            def replica_step(features):
                gradients = uni.grad(
                    lambda: jnp.sum(model(features) ** 2) / 8,
                    model.trainable_variables,
                )()
                optimizer.apply_gradients(zip(gradients, model.trainable_variables))

            strategy.run(replica_step, args=(inputs,))

        for inputs in strategy.experimental_distribute_dataset(
            uni.data.Dataset.from_tensor_slices(x).batch(8)
        ):
            step(inputs)
        results.append(model.get_weights())
    assert difference(*results) < CLOSE


def test_loops_and_fit_share_one_model():
    x, y = examples(8)
    strategy = mirrored(4)
    with strategy.scope():
        keras.utils.set_random_seed(3)
        model = keras.Sequential([layers.Input((5,)), layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss)

    @uni.function
    def double():
        for v in model.trainable_variables:
            v.assign(v * 2)

    held = [v.value for v in model.trainable_variables]
    before = [np.array(h) for h in held]
    double()
    model.fit(x, y, batch_size=8, verbose=0)
    assert difference(before, held) == 0
    weights = model.get_weights()
    double()
    assert difference([2 * w for w in weights], model.get_weights()) < CLOSE
    with pytest.raises(RuntimeError, match=r"given to jax\.jit"):
        jax.jit(lambda: model(x))()


def test_the_default_strategy_s_scope_serves_compiled_functions_and_fit():
    x, y = examples(8)
    with uni.distribute.get_strategy().scope():
        keras.utils.set_random_seed(3)
        model = keras.Sequential([layers.Input((5,)), layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss)

    @uni.function
    def double():
        for v in model.trainable_variables:
            v.assign(v * 2)

    before = model.get_weights()
    double()
    double()
    assert difference([4 * w for w in before], model.get_weights()) < CLOSE
    model.fit(x, y, batch_size=8, verbose=0)
    assert len(model.predict(x, verbose=0)) == 8
    double()


def test_a_compiled_function_follows_a_model_made_outside_every_scope():
    model = keras.Sequential([layers.Input((5,)), layers.Dense(3)])
    metric = keras.metrics.Mean()
    metric.update_state(4.0)
    x, _ = examples(2)
    call = uni.function(lambda: model(x))
    assert difference(model(x), call()) < CLOSE
    model.set_weights([2 * w + 1 for w in model.get_weights()])
    assert difference(model(x), call()) < CLOSE
    uni.function(metric.reset_state)()  # It assigns without a read.
    assert float(metric.result()) == 0
    assert len(model.predict(x, verbose=0)) == 2


def test_the_program_of_a_strategy_refuses_a_model_that_it_cannot_follow():
    model = keras.Sequential([layers.Input((5,)), layers.Dense(3)])
    x, _ = examples(2)
    strategy = mirrored(2)
    with pytest.raises(RuntimeError, match="made outside every scope"):
        uni.function(lambda: strategy.run(lambda: model(x)))()
    weights = [v.value for v in model.trainable_variables]

    @uni.function
    def functional(weights):
        return model.stateless_call(weights, [], x)[0]

    assert difference(model(x), functional(weights)) < CLOSE


def test_a_callback_may_run_replicas_while_fit_goes_on():
    x, y = examples(8)
    strategy = mirrored(2)
    with strategy.scope():
        keras.utils.set_random_seed(3)
        model = keras.Sequential([layers.Input((5,)), layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss)

    @uni.function
    def shrink():
        kernel = model.layers[-1].kernel
        kernel.assign(kernel * 0.5)

    seen = []

    class Shrink(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            before = self.model.get_weights()[0]
            shrink()
            both = strategy.run(lambda: model.layers[-1].kernel.value)
            seen.append((0.5 * before, *both.values))

    model.fit(x, y, batch_size=8, epochs=2, callbacks=[Shrink()], verbose=0)
    for wanted, *found in seen:
        for kernel in found:
            assert difference(wanted, kernel) < CLOSE
    assert len(seen) == 2


def test_keras_imported_too_late_is_reported(monkeypatch, caplog):
    from unisono._src.foundation import library_hooks

    known = dict(library_hooks.known)
    monkeypatch.setattr(library_hooks, "known", {})
    with mirrored(2).scope():
        monkeypatch.setattr(library_hooks, "known", known)
    assert "keras was imported inside a strategy's scope" in caplog.text


def test_models_can_be_copied_cloned_and_described_as_usual():
    import copy

    strategy = mirrored(2)
    with strategy.scope():
        model = keras.Sequential([layers.Input((5,)), layers.Dense(3)])
    x, _ = examples(2)
    copied, cloned = copy.deepcopy(model), keras.models.clone_model(model)
    assert difference(model(x), copied(x)) == 0
    cloned.set_weights(model.get_weights())
    assert difference(model(x), cloned(x)) == 0
    assert not hasattr(cloned, "distribute_strategy")
    lines = []
    model.summary(print_fn=lines.append)
    assert "18" in "".join(lines)
    assert keras.models.model_from_json(model.to_json()).count_params() == 18
