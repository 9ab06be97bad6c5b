"""Planted bugs: programs whose numbers change with the number of replicas.

Each says the code of its cause. Those with a link are told in public reports; they are
written here anew.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax

import unisono as uni
from tests.zoo import builders
from tests.zoo.builders import (
    AGGREGATION,
    ROWS,
    Model,
    context,
    errors,
    mean_loss,
    train,
)

BUGS: list[builders.Program] = []
_GITHUB = "https://github.com/"


def bug(cause, link=None, **options):
    """Puts a program into the zoo."""

    def add(build):
        url = link and _GITHUB + link
        BUGS.append(builders.Program(build.__name__, build, cause, url, options))
        return build

    return add


# The gradient is N times too large or too small.


@bug("times-n", "google/edward2/issues/428")
def mean_of_the_part(s):
    return train(s, lambda m, x, y: jnp.mean(errors(m, x, y)))


@bug("times-n", "tensorflow/tensorflow/issues/48875")
def mean_of_the_part_under_adam(s):
    return train(s, lambda m, x, y: jnp.mean(errors(m, x, y)), tx=optax.adam(1e-2))


# Keras' losses are divided by the number of replicas, so gradients are means of means.
@bug("mean-of-means", "tensorflow/tensorflow/issues/45923")
def keras_loss_with_its_default_reduction(s):
    import keras

    with s.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)
    mean_squared_error = keras.losses.MeanSquaredError()

    def replica(x, y):
        with uni.GradientTape() as tape:
            loss = mean_squared_error(y[:, None], model(x))
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return loss

    return uni.function(
        lambda x, y: s.reduce("MEAN", s.run(replica, args=(x, y)), axis=None)
    )


@bug("times-n", "huggingface/accelerate/issues/2926")
def schedule_that_every_replica_moves_on(s):
    with s.scope():
        model = Model()
        steps = uni.Variable(0.0, aggregation=AGGREGATION.SUM, name="steps")

    def replica(x, y):
        gradients = uni.grad(lambda: mean_loss(model, x, y), model.variables)()
        totals = context().all_reduce("SUM", gradients)
        rate = 0.1 * 0.5 ** (steps.value() / 100.0)
        steps.assign_add(jnp.ones(()))
        return rate, totals

    @uni.function
    def step(x, y):
        rate, totals = s.run(replica, args=(x, y))
        rate = s.experimental_local_results(rate)[0]
        for v, g in zip(model.variables, totals):
            v.assign_sub(rate * s.experimental_local_results(g)[0])

    return step


@bug("over-n", "keras-team/keras/issues/16285")
def divided_by_the_replicas_twice(s):
    count = uni.distribute.get_strategy

    def loss(m, x, y):
        return mean_loss(m, x, y) / count().num_replicas_in_sync

    return train(s, loss)


@bug("over-n", "tensorflow/tensorflow/issues/28956")
def mean_of_losses_that_are_shares(s):
    return train(s, mean_loss, reduce="MEAN", tx=optax.adam(1e-2))


# Means of means, and metrics.


@bug("mean-of-means")
def mean_of_the_part_over_the_replicas(s):
    def loss(m, x, y):
        return jnp.mean(errors(m, x, y)) / context().num_replicas_in_sync

    return train(s, loss)


@bug("mean-of-means", "meta-pytorch/torchtune/pull/1875")
def mean_over_the_tokens_of_the_part(s):
    def loss(m, x, y):
        mask = jnp.where(x[:, 0] > 0.3, 1.0, 0.1)
        own = jnp.sum(errors(m, x, y) * mask) / jnp.sum(mask)
        return own / context().num_replicas_in_sync

    return train(s, loss)


@bug("metric-not-weighted", "google/flax/issues/262")
def metric_of_the_mean_of_a_part(s):
    with s.scope():
        mean = uni.metrics.Mean()

    def also(x, y):
        mean.update_state(jnp.mean(y))

    return train(s, mean_loss, also=also)


@bug("metric-not-weighted", "Nota-NetsPresso/netspresso-trainer/issues/360")
def accuracy_as_a_mean_over_replicas(s):
    with s.scope():
        model = Model()

    def replica(x, y):
        return jnp.mean(jnp.where(model(x) * y > 0, 1.0, 0.0))

    return uni.function(
        lambda x, y: {"accuracy": s.reduce("MEAN", s.run(replica, (x, y)), axis=None)}
    )


# Missing and doubled reductions.


@bug("missing-reduction", "keras-team/keras/issues/15509")
def loss_of_the_first_replica(s):
    with s.scope():
        model = Model()
        optimizer = uni.optimizers.Optimizer(optax.adam(0.01), model.variables)

    def replica(x, y):
        with uni.GradientTape() as tape:
            loss = mean_loss(model, x, y)
        gradients = tape.gradient(loss, model.variables)
        optimizer.apply_gradients(zip(gradients, model.variables))
        return loss

    return uni.function(
        lambda x, y: s.experimental_local_results(s.run(replica, args=(x, y)))[0]
    )


@bug("missing-reduction")
def update_by_the_gradients_of_the_first_replica(s):
    with s.scope():
        model = Model()
        optimizer = uni.optimizers.Optimizer(optax.sgd(0.1), model.variables)

    def replica(x, y):
        return uni.grad(lambda: mean_loss(model, x, y), model.variables)()

    @uni.function
    def step(x, y):
        gradients = s.run(replica, args=(x, y))
        first = [s.experimental_local_results(g)[0] for g in gradients]
        optimizer.apply_gradients(zip(first, model.variables))

    return step


@bug("doubled-reduction")
def sum_before_the_optimizer_sums(s):
    return train(s, mean_loss, change=lambda g: context().all_reduce("SUM", g))


@bug("doubled-reduction")
def flax_gradients_averaged_and_summed(s):
    from flax import nnx

    with s.scope():
        model = nnx.Linear(5, 1, rngs=nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

    def loss_of(m, x, y):
        return jnp.mean((m(x)[:, 0] - y) ** 2)

    def replica(x, y):
        loss, gradients = nnx.value_and_grad(loss_of)(model, x, y)
        gradients = jax.tree.map(lambda g: context().all_reduce("MEAN", g), gradients)
        optimizer.update(model, gradients)
        return loss

    return uni.function(
        lambda x, y: s.reduce("MEAN", s.run(replica, args=(x, y)), axis=None)
    )


# A regulariser that every replica counts.


@bug("regulariser-n-times", "tensorflow/models/pull/6195")
def weight_decay_on_every_replica(s):
    def loss(m, x, y):
        return mean_loss(m, x, y) + 0.05 * builders.squares(m)

    return train(s, loss)


@bug("regulariser-n-times", "tensorflow/tensorflow/issues/58938")
def weight_decay_on_every_replica_under_adam(s):
    def loss(m, x, y):
        return mean_loss(m, x, y) + 0.05 * builders.squares(m)

    return train(s, loss, tx=optax.adam(1e-3))


@bug("regulariser-n-times")
def keras_regularizer_on_every_replica(s):
    import keras

    with s.scope():
        keras.utils.set_random_seed(2)
        dense = keras.layers.Dense(1, kernel_regularizer=keras.regularizers.L2(0.05))
        model = keras.Sequential([keras.Input((5,)), dense])
        optimizer = keras.optimizers.Adam(0.01)

    def replica(x, y):
        with uni.GradientTape() as tape:
            errors = jnp.sum((model(x)[:, 0] - y) ** 2) / ROWS
            loss = errors + sum(model.losses)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return loss

    return uni.function(
        lambda x, y: s.reduce("SUM", s.run(replica, args=(x, y)), axis=None)
    )


# Statistics of a part.


@bug("part-statistics", "tensorflow/tensorflow/issues/7439")
def normalisation_by_the_part(s):
    def loss(m, x, y):
        x = (x - jnp.mean(x, 0)) / jnp.sqrt(jnp.var(x, 0) + 1e-3)
        return mean_loss(m, x, y)

    return train(s, loss)


@bug("part-statistics", "tensorflow/models/issues/100")
def keras_batch_normalization(s):
    import keras

    with s.scope():
        keras.utils.set_random_seed(3)
        layers = [keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((5,)), *layers])
        optimizer = keras.optimizers.SGD(0.05)

    def replica(x, y):
        with uni.GradientTape() as tape:
            loss = jnp.sum((model(x, training=True)[:, 0] - y) ** 2) / ROWS
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return loss

    return uni.function(
        lambda x, y: s.reduce("SUM", s.run(replica, args=(x, y)), axis=None)
    )


@bug("part-statistics")
def root_of_the_mean_of_a_part(s):
    def loss(m, x, y):
        root = jnp.sqrt(jnp.mean(errors(m, x, y)) + 1e-6)
        return root / context().num_replicas_in_sync

    return train(s, loss)


# One replica's value taken for all.


@bug("only-first-replica", "NVIDIA-Merlin/HugeCTR/issues/181")
def moving_mean_of_the_first_replica(s):
    with s.scope():
        moving = uni.Variable(
            np.zeros(5, "f"),
            trainable=False,
            aggregation=AGGREGATION.ONLY_FIRST_REPLICA,
            name="moving_mean",
        )

    def also(x, y):
        moving.assign(0.9 * moving.value() + 0.1 * jnp.mean(x, 0))

    return train(s, mean_loss, also=also)


@bug("only-first-replica", "keras-team/keras/pull/20541")
def weights_of_the_first_replica(s):
    with s.scope():
        w = uni.Variable(
            np.linspace(-1, 1, 5).astype("f"),
            aggregation=AGGREGATION.ONLY_FIRST_REPLICA,
            name="w",
        )

    def replica(x, y):
        gradient = uni.grad(lambda: jnp.mean((x @ w.value() - y) ** 2), w)()
        w.assign_sub(0.1 * gradient)

    return uni.function(lambda x, y: s.run(replica, args=(x, y)))


# Random numbers.


@bug("random-equal", "huggingface/transformers/issues/31412")
def noise_from_one_key(s):
    def loss(m, x, y):
        noise = jax.random.normal(jax.random.key(3), x.shape)
        return mean_loss(m, x + 0.3 * noise, y)

    return train(s, loss)


@bug("random-different", "huggingface/accelerate/issues/114")
def noise_from_a_key_of_the_replica(s):
    def loss(m, x, y):
        key = jax.random.fold_in(jax.random.key(3), context().replica_id_in_sync_group)
        return mean_loss(m, x + 0.3 * jax.random.normal(key, x.shape), y)

    return train(s, loss)


@bug("random-different")
def keras_dropout(s):
    import keras

    with s.scope():
        keras.utils.set_random_seed(4)
        layers = [keras.layers.Dropout(0.5, seed=7), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((5,)), *layers])
        optimizer = keras.optimizers.SGD(0.05)

    def replica(x, y):
        with uni.GradientTape() as tape:
            loss = jnp.sum((model(x, training=True)[:, 0] - y) ** 2) / ROWS
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return loss

    return uni.function(
        lambda x, y: s.reduce("SUM", s.run(replica, args=(x, y)), axis=None)
    )


# Clipping before the sum.


@bug("clipped-per-replica", "LeelaChessZero/lczero-training/pull/162")
def norm_clipped_per_replica(s):
    return train(s, mean_loss, change=lambda g: builders.clip_by_norm(g, 0.02))


@bug("clipped-per-replica", "tensorflow/tensorflow/issues/25806")
def values_clipped_per_replica(s):
    def clip(gradients):
        return [jnp.clip(g, -0.01, 0.01) for g in gradients]

    return train(s, mean_loss, change=clip, tx=optax.adam(1e-2))


# Accumulation.


def _accumulate(s, every, aggregation):
    """Adds up gradients, and updates when `every` says that it is time."""
    with s.scope():
        model = Model()
        made = {"aggregation": AGGREGATION.SUM, "trainable": False}
        sums = [
            uni.Variable(np.zeros(v.shape, "f"), name="sum", **made)
            for v in model.variables
        ]
        count = uni.Variable(0, trainable=False, aggregation=aggregation, name="count")

    def replica(x, y):
        gradients = uni.grad(lambda: mean_loss(model, x, y), model.variables)()
        count.assign_add(jnp.ones((), jnp.int32))
        return context().all_reduce("SUM", gradients)

    @uni.function
    def step(x, y):
        found = s.run(replica, args=(x, y))
        totals = [s.experimental_local_results(g)[0] for g in found]
        due = jnp.where(count.value() % every(s) == 0, 1.0, 0.0)
        for v, total, g in zip(model.variables, sums, totals):
            new = total.value() + g
            v.assign_sub(0.1 * due * new)
            total.assign((1.0 - due) * new)

    return step


@bug("accumulation", count=5)
def count_of_calls_summed_over_replicas(s):
    return _accumulate(s, lambda s: 4, AGGREGATION.SUM)


@bug("accumulation", count=5)
def update_every_few_calls_by_replicas(s):
    def every(s):
        return max(1, 4 // s.num_replicas_in_sync)

    return _accumulate(s, every, AGGREGATION.ONLY_FIRST_REPLICA)


# Data repeated or dropped.


def _split_by_hand(s, rows_of):
    """Cuts the global batch itself, as programs do that use no distributed dataset."""
    with s.scope():
        model = Model()
        optimizer = uni.optimizers.Optimizer(optax.sgd(0.1), model.variables)

    def replica(x, y):
        value, gradients = uni.value_and_grad(
            lambda: mean_loss(model, x, y), model.variables
        )()
        optimizer.apply_gradients(zip(gradients, model.variables))
        return value

    def step(x, y):
        def part(c):
            rows = rows_of(c.replica_id_in_sync_group, s.num_replicas_in_sync, len(x))
            return jnp.asarray(x[rows]), jnp.asarray(y[rows])

        parts = s.experimental_distribute_values_from_function(part)
        return s.reduce("SUM", s.run(uni.function(replica), args=parts), axis=None)

    return step


@bug("data-dropped", "uclnlp/jack/issues/174", distribute=False)
def rest_of_the_batch_left_out(s):
    def rows(i, n, size):
        return np.arange(i * (size // n), (i + 1) * (size // n))

    return _split_by_hand(s, rows)


@bug("data-repeated", "pytorch/pytorch/issues/25162", distribute=False)
def batch_filled_up_with_its_first_rows(s):
    def rows(i, n, size):
        each = -(-size // n)
        return np.arange(i * each, (i + 1) * each) % size

    return _split_by_hand(s, rows)


@bug("data-repeated", "tensorflow/models/issues/2903", distribute=False)
def every_replica_reads_the_whole_batch(s):
    return _split_by_hand(s, lambda i, n, size: np.arange(size))


# Python state, and half precision.


@bug("python-state")
def rate_from_a_count_in_python(s):
    calls = itertools.count(1)

    def change(gradients):
        rate = 1.0 / next(calls)
        return [g * rate for g in gradients]

    return train(s, mean_loss, change=change)


@bug("python-state")
def seed_from_a_list_that_grows(s):
    seen: list[int] = []

    def loss(m, x, y):
        seen.append(len(seen))
        noise = jax.random.normal(jax.random.key(len(seen)), (5,))
        return mean_loss(m, x + 0.1 * noise, y)

    return train(s, loss)


@bug("half-precision", "jax-ml/jax/issues/27496")
def gradients_summed_in_bfloat16(s):
    with s.scope():
        model = Model()
        optimizer = uni.optimizers.Optimizer(optax.adam(0.01), model.variables)

    def replica(x, y):
        gradients = uni.grad(lambda: mean_loss(model, x, y), model.variables)()
        halves = [g.astype(jnp.bfloat16) for g in gradients]
        return context().all_reduce("SUM", halves)

    @uni.function
    def step(x, y):
        found = s.run(replica, args=(x, y))
        totals = [s.experimental_local_results(g)[0] for g in found]
        pairs = zip([g.astype("float32") for g in totals], model.variables)
        optimizer.apply_gradients(pairs)

    return step


@bug("half-precision", "NVIDIA/Megatron-LM/issues/502")
def gradients_cast_to_half_before_the_sum(s):
    def change(gradients):
        return [g.astype(jnp.float16).astype(jnp.float32) for g in gradients]

    return train(s, mean_loss, change=change)
