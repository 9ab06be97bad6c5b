"""Trains a wide and deep model asynchronously, with tables on parameter servers.

As in TensorFlow's `ParameterServerStrategy` tutorial, a coordinator schedules steps on
workers, and each worker has its own dataset. These things differ from TensorFlow: with
`carrier="threads"` workers and servers are threads of this process; the optimizer is
one of Optax; gradients come from `value_and_grad`. The gradient of a table is an
`IndexedSlices` with the rows that the batch uses.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import unisono as uni

USERS, ITEMS, WIDTH, BATCH = 2000, 500, 8, 64


def make_examples(seed, count=4096):
    """Returns users, items, and whether the user likes the item."""
    taste = np.random.default_rng(0).normal(size=(USERS + ITEMS, 4))
    rng = np.random.default_rng(seed)
    users, items = rng.integers(0, USERS, count), rng.integers(0, ITEMS, count)
    score = (taste[users] * taste[USERS + items]).sum(1) + taste[USERS + items, 0]
    return users.astype(np.int32), items.astype(np.int32), (score > 0).astype("float32")


def dataset_fn():
    """Returns the dataset of one worker, shuffled by the worker's own seed."""
    index = uni.distribute.coordinator.experimental_get_current_worker_index()
    rows = uni.data.Dataset.from_tensor_slices(make_examples(seed=1 + index))
    return rows.shuffle(4096, seed=index).batch(BATCH, drop_remainder=True).repeat()


def make_weights(rng, scale, shape, name):
    values = scale * rng.normal(size=shape)
    return uni.Variable(values.astype(np.float32), name=name)


def main(steps=400):
    cluster = {"worker": ["w0:1", "w1:1"], "ps": ["p0:1", "p1:1", "p2:1"]}
    resolver = uni.distribute.cluster_resolver.SimpleClusterResolver(
        uni.train.ClusterSpec(cluster)
    )
    strategy = uni.distribute.ParameterServerStrategy(
        resolver,
        uni.distribute.experimental.partitioners.MinSizePartitioner(
            min_shard_bytes=4 << 10, max_shards=3
        ),
        carrier="threads",
    )
    coordinator = uni.distribute.coordinator.ClusterCoordinator(strategy)
    rng = np.random.default_rng(7)
    with strategy.scope():
        users = make_weights(rng, 0.1, (USERS, WIDTH), "users")
        items = make_weights(rng, 0.1, (ITEMS, WIDTH), "items")
        wide = make_weights(rng, 0.0, (ITEMS, 1), "wide")
        deep = make_weights(rng, 0.3, (3 * WIDTH, 16), "deep")
        top = make_weights(rng, 0.3, (16, 1), "top")
        weights = [users, items, wide, deep, top]
        optimizer = uni.optimizers.Optimizer(optax.adagrad(0.3), weights)
        mean = uni.metrics.Mean()
    print(strategy.describe([users, items, wide, deep, top]))

    def predict(user, item):
        lookup = uni.nn.embedding_lookup
        u, i = lookup(users, user), lookup(items, item)
        hidden = jax.nn.relu(jnp.concatenate([u, i, u * i], axis=1) @ deep)
        return (hidden @ top + lookup(wide, item))[:, 0]

    @uni.function
    def train(iterator):
        user, item, label = next(iterator)

        def loss_fn():
            scores = predict(user, item)
            return jnp.mean(optax.sigmoid_binary_cross_entropy(scores, label))

        loss, gradients = uni.value_and_grad(loss_fn, weights)()
        optimizer.apply_gradients(zip(gradients, weights))
        mean.update_state(loss)

    iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))
    losses = []
    for _ in range(4):
        for _ in range(steps // 4):
            coordinator.schedule(train, args=(iterator,))
        coordinator.join()
        losses.append(float(mean.result()))
        mean.reset_state()
        print(f"mean loss of {steps // 4} steps: {losses[-1]:.3f}")
    user, item, label = make_examples(seed=1)
    test = uni.function(predict)
    right = float(np.mean((np.asarray(test(user, item)) > 0) == (label > 0)))
    print(f"accuracy {right:.3f} after {int(optimizer.iterations.numpy())} updates")
    strategy.shutdown()
    return losses, right


if __name__ == "__main__":
    main()
