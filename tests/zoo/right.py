"""Right programs: their numbers are the same on any number of replicas.

Some are the right form of a bug in `bugs`; the others are made from random numbers.
"""

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

RIGHT: list[builders.Program] = []

OPTIMIZERS = {
    "sgd": lambda: optax.sgd(0.1),
    "momentum": lambda: optax.sgd(0.05, momentum=0.9, nesterov=True),
    "adam": lambda: optax.adam(1e-2),
    "adamw": lambda: optax.adamw(1e-2, weight_decay=0.01),
    "rmsprop": lambda: optax.rmsprop(1e-2),
    "adagrad": lambda: optax.adagrad(0.1),
    "lamb": lambda: optax.lamb(1e-2),
    "clipped": lambda: optax.chain(optax.clip_by_global_norm(0.05), optax.sgd(0.1)),
    "schedule": lambda: optax.sgd(optax.exponential_decay(0.1, 2, 0.5)),
}
ACTIVATIONS = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "sigmoid": jax.nn.sigmoid,
}


def right(build=None, **options):
    """Puts a program into the zoo."""

    def add(build):
        made = builders.Program(build.__name__, build, options=options)
        RIGHT.append(made)
        return build

    return add if build is None else add(build)


@right
def share_of_the_mean(s):
    return train(s, mean_loss)


@right
def average_loss(s):
    def loss(m, x, y):
        return uni.nn.compute_average_loss(errors(m, x, y), global_batch_size=ROWS)

    return train(s, loss, tx=optax.adam(1e-2))


@right
def scaled_regulariser(s):
    def loss(m, x, y):
        term = uni.nn.scale_regularization_loss(0.05 * builders.squares(m))
        return mean_loss(m, x, y) + term

    return train(s, loss)


@right
def tokens_of_the_whole_batch(s):
    def loss(m, x, y):
        mask = jnp.where(x[:, 0] > 0.3, 1.0, 0.0)
        total = context().all_reduce("SUM", jnp.sum(mask))
        return jnp.sum(errors(m, x, y) * mask) / total

    return train(s, loss)


@right
def weighted_metric(s):
    with s.scope():
        mean, square = uni.metrics.Mean(), uni.metrics.Mean()

    def also(x, y):
        mean.update_state(y)
        square.update_state(y**2)

    return train(s, mean_loss, also=also)


@right
def sum_and_count_returned(s):
    with s.scope():
        model = Model()

    def replica(x, y):
        hits = jnp.where(model(x) * y > 0, 1.0, 0.0)
        return jnp.sum(hits), jnp.asarray(hits.size, "float32")

    @uni.function
    def step(x, y):
        hits, count = s.run(replica, args=(x, y))
        total = s.reduce("SUM", hits, axis=None)
        return total / s.reduce("SUM", count, axis=None)

    return step


@right
def update_outside_the_replicas(s):
    with s.scope():
        model = Model()
        optimizer = uni.optimizers.Optimizer(optax.adam(0.01), model.variables)

    def replica(x, y):
        return uni.grad(lambda: mean_loss(model, x, y), model.variables)()

    @uni.function
    def step(x, y):
        gradients = s.run(replica, args=(x, y))
        totals = s.reduce("SUM", gradients, axis=None)
        optimizer.apply_gradients(zip(totals, model.variables))

    return step


@right
def update_by_hand(s):
    with s.scope():
        w = uni.Variable(np.linspace(-1, 1, 5).astype("f"), aggregation=AGGREGATION.SUM)

    def replica(x, y):
        gradient = uni.grad(lambda: jnp.sum((x @ w.value() - y) ** 2) / ROWS, w)()
        total = context().all_reduce("SUM", gradient)
        new = w.value() - 0.1 * total
        w.assign(new / context().num_replicas_in_sync)

    return uni.function(lambda x, y: s.run(replica, args=(x, y)))


@right
def normalisation_by_the_whole_batch(s):
    with s.scope():
        moving = uni.Variable(
            np.zeros(5, "f"), trainable=False, aggregation=AGGREGATION.MEAN
        )

    def loss(m, x, y):
        mean = context().all_reduce("SUM", jnp.sum(x, 0)) / ROWS
        square = context().all_reduce("SUM", jnp.sum((x - mean) ** 2, 0)) / ROWS
        moving.assign(0.9 * moving.value() + 0.1 * mean)
        return mean_loss(m, (x - mean) / jnp.sqrt(square + 1e-3), y)

    return train(s, loss)


@right
def clipped_after_the_sum(s):
    with s.scope():
        model = Model()
        optimizer = uni.optimizers.Optimizer(optax.sgd(0.1), model.variables)

    def replica(x, y):
        return uni.grad(lambda: mean_loss(model, x, y), model.variables)()

    @uni.function
    def step(x, y):
        totals = s.reduce("SUM", s.run(replica, args=(x, y)), axis=None)
        clipped = builders.clip_by_norm(totals, 0.02)
        optimizer.apply_gradients(zip(clipped, model.variables))

    return step


@right(count=4)
def accumulated_gradients(s):
    with s.scope():
        model = Model()
        optimizer = uni.optimizers.Optimizer(
            optax.adam(0.01), model.variables, accumulate_steps=2
        )

    def replica(x, y):
        gradients = uni.grad(lambda: mean_loss(model, x, y), model.variables)()
        optimizer.apply_gradients(zip(gradients, model.variables))

    return uni.function(lambda x, y: s.run(replica, args=(x, y)))


@right
def noise_of_each_example(s):
    def loss(m, x, y):
        keys = builders.row_keys(x)
        noise = jax.vmap(lambda k: jax.random.normal(k, (5,)))(keys)
        return mean_loss(m, x + 0.3 * noise, y)

    return train(s, loss)


@right
def mixed_precision(s):
    def loss(m, x, y):
        half = [k.value().astype(jnp.bfloat16) for k in m.kernels]
        hidden = jnp.tanh(x.astype(jnp.bfloat16) @ half[0])
        found = jnp.reshape((hidden @ half[1]).astype("float32"), (-1,))
        bias = sum(jnp.sum(b.value()) for b in m.biases)
        return jnp.sum((found + bias - y) ** 2) / ROWS

    return train(s, loss)


@right
def moving_average_of_the_weights(s):
    with s.scope():
        model = Model()
        optimizer = uni.optimizers.Optimizer(optax.sgd(0.1), model.variables)
        average = uni.train.ExponentialMovingAverage(0.9)

    def replica(x, y):
        gradients = uni.grad(lambda: mean_loss(model, x, y), model.variables)()
        optimizer.apply_gradients(zip(gradients, model.variables))

    @uni.function
    def step(x, y):
        s.run(replica, args=(x, y))
        average.apply(model.variables)

    return step


@right
def tape_and_minimize(s):
    with s.scope():
        model = Model()
        optimizer = uni.optimizers.Optimizer(optax.adam(0.01), model.variables)

    def replica(x, y):
        with uni.GradientTape() as tape:
            loss = mean_loss(model, x, y)
        optimizer.minimize(loss, model.variables, tape=tape)
        return loss

    return uni.function(
        lambda x, y: s.reduce("SUM", s.run(replica, args=(x, y)), axis=None)
    )


@right
def step_in_plain_python(s):
    step = train(s, mean_loss)
    return step.python_function


@right
def predictions_of_every_example(s):
    with s.scope():
        model = Model()
    return uni.function(
        lambda x, y: s.gather(s.run(lambda x, y: model(x), args=(x, y)), axis=0)
    )


@right
def python_number_that_stays(s):
    scale = {"rate": 0.5}
    return train(s, lambda m, x, y: scale["rate"] * mean_loss(m, x, y))


@right
def step_with_one_argument(s):
    inner = train(s, mean_loss)
    return uni.function(lambda batch: inner.python_function(*batch))


@right
def frozen_layer(s):
    with s.scope():
        model = Model()
        tuned = [model.kernels[1], model.biases[1]]
        optimizer = uni.optimizers.Optimizer(optax.adam(0.01), tuned)

    def replica(x, y):
        gradients = uni.grad(lambda: mean_loss(model, x, y), tuned)()
        optimizer.apply_gradients(zip(gradients, tuned))

    return uni.function(lambda x, y: s.run(replica, args=(x, y)))


def _keras(s, layers, optimizer, loss=None):
    import keras

    with s.scope():
        keras.utils.set_random_seed(5)
        model = keras.Sequential([keras.Input((5,)), *layers(keras)])
        optimizer = optimizer(keras)

    def replica(x, y):
        with uni.GradientTape() as tape:
            value = jnp.sum((model(x, training=True)[:, 0] - y) ** 2) / ROWS
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, weights), weights))
        return value

    return uni.function(
        lambda x, y: s.reduce("SUM", s.run(replica, args=(x, y)), axis=None)
    )


@right
def keras_dense(s):
    return _keras(
        s,
        lambda keras: [keras.layers.Dense(4, "gelu"), keras.layers.Dense(1)],
        lambda keras: keras.optimizers.Adam(0.01),
    )


@right
def keras_layer_normalization(s):
    return _keras(
        s,
        lambda keras: [keras.layers.LayerNormalization(), keras.layers.Dense(1)],
        lambda keras: keras.optimizers.SGD(0.05, momentum=0.9),
    )


@right
def keras_clips_after_the_sum(s):
    return _keras(
        s,
        lambda keras: [keras.layers.Dense(1)],
        lambda keras: keras.optimizers.RMSprop(0.01, global_clipnorm=0.05),
    )


def _flax(s, tx):
    from flax import nnx

    with s.scope():
        model = nnx.Linear(5, 1, rngs=nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)

    def loss_of(m, x, y):
        return jnp.sum((m(x)[:, 0] - y) ** 2) / ROWS

    def replica(x, y):
        loss, gradients = nnx.value_and_grad(loss_of)(model, x, y)
        optimizer.update(model, gradients)
        return loss

    return uni.function(
        lambda x, y: s.reduce("SUM", s.run(replica, args=(x, y)), axis=None)
    )


@right
def flax_linear(s):
    return _flax(s, optax.sgd(0.1))


@right
def flax_linear_under_adam(s):
    return _flax(s, optax.adam(0.01))


def random_program(seed):
    """A right program made from a seed: model, optimizer, activation and loss."""
    rng = np.random.RandomState(seed)
    tx = list(OPTIMIZERS)[rng.randint(len(OPTIMIZERS))]
    activation = list(ACTIVATIONS)[rng.randint(len(ACTIVATIONS))]
    depth, power = rng.randint(1, 4), int(rng.choice([1, 2, 4]))
    weight, rows = float(rng.choice([0.0, 0.01])), int(rng.choice([16, 13, 9]))

    def loss(m, x, y):
        distance = jnp.sqrt((m(x) - y) ** 2 + 0.01) ** power
        term = uni.nn.scale_regularization_loss(weight * builders.squares(m))
        return jnp.sum(distance) / rows + term

    def build(s):
        return train(
            s,
            loss,
            tx=OPTIMIZERS[tx](),
            seed=seed,
            depth=depth,
            activation=ACTIVATIONS[activation],
        )

    name = f"random_{seed}_{tx}_{activation}_{depth}_{power}_{rows}"
    return builders.Program(name, build, options={"rows": rows, "seed": seed})


RIGHT += [random_program(seed) for seed in range(40)]
