"""Trains and evaluates a model function with an estimator, ported from TensorFlow.

usage: python examples/estimator.py [--replicas 4] [--steps 60] [--images 500]

What changed from tf.estimator:

| TensorFlow                                      | here                               |
| ----------------------------------------------- | ---------------------------------- |
| `tf.estimator`                                  | `uni.estimator`                    |
| `tf.compat.v1.get_variable`                     | `uni.compat.v1.get_variable`       |
| layers, `tf.nn`, `tf.math`                      | `jax.numpy`, or Keras layers       |
| `tf.compat.v1.train.AdamOptimizer(rate)`        | `optax.adam(rate)`                 |
| `optimizer.minimize(loss, global_step)`         | `minimize(optimizer, loss)`        |
| `tf.compat.v1.train.get_or_create_global_step`  | `uni.train.…`                      |
| `tf.compat.v1.metrics.accuracy(labels, found)`  | an array to average, or a metric   |
| `input_fn` batches for one replica              | the same                           |
| `RunConfig(train_distribute=strategy)`          | the same                           |
| an interrupted run reads its data again         | it resumes where it stopped        |
"""

import argparse
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
from digits import load_digits

import unisono as uni

GLOBAL_BATCH = 64
ModeKeys = uni.estimator.ModeKeys


def model_fn(features, labels, mode, params):
    """Describes a perceptron with one hidden layer.

    The estimator calls it once per replica and mode, while it compiles a step.
    """
    get_variable = uni.compat.v1.get_variable
    units = params["units"]
    w1 = get_variable("hidden/kernel", (64, units))
    b1 = get_variable("hidden/bias", (units,), initializer=jnp.zeros)
    w2 = get_variable("logits/kernel", (units, 10))
    b2 = get_variable("logits/bias", (10,), initializer=jnp.zeros)
    scores = jax.nn.relu(features["images"] @ w1 + b1) @ w2 + b2
    found = scores.argmax(-1)
    if mode == ModeKeys.PREDICT:
        predictions = {"class": found, "probability": jax.nn.softmax(scores).max(-1)}
        return uni.estimator.EstimatorSpec(mode, predictions=predictions)
    losses = optax.softmax_cross_entropy_with_integer_labels(scores, labels)
    loss = jnp.mean(losses)
    if mode == ModeKeys.EVAL:
        metrics = {"accuracy": found == labels}
        return uni.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    step = uni.train.get_or_create_global_step()
    rate = params["rate"] * 0.99 ** step.value()
    train_op = uni.estimator.minimize(optax.adam(rate), loss)
    return uni.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def make_input_fn(data, repeat):
    """Returns an input function, which makes the dataset of a worker."""

    def input_fn(input_context):
        images, labels = data
        dataset = uni.data.Dataset.from_tensor_slices(({"images": images}, labels))
        dataset = dataset.shard(
            input_context.num_input_pipelines, input_context.input_pipeline_id
        )
        if repeat:
            dataset = dataset.shuffle(len(images), seed=0).repeat()
        return dataset.batch(input_context.get_per_replica_batch_size(GLOBAL_BATCH))

    return input_fn


def run(strategy, train, test, steps, directory):
    """Trains and evaluates; returns the last metrics and the classes of ten images."""
    config = uni.estimator.RunConfig(
        train_distribute=strategy,
        eval_distribute=strategy,
        save_checkpoints_steps=max(steps // 3, 1),
    )
    estimator = uni.estimator.Estimator(
        model_fn, directory, config, params={"units": 32, "rate": 0.01}
    )
    results, _ = uni.estimator.train_and_evaluate(
        estimator,
        uni.estimator.TrainSpec(make_input_fn(train, True), max_steps=steps),
        uni.estimator.EvalSpec(make_input_fn(test, False), steps=None),
    )
    few = uni.data.Dataset.from_tensor_slices({"images": test[0][:10]}).batch(10)
    return results, [found["class"] for found in estimator.predict(lambda: few)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--images", type=int, default=500)
    given = parser.parse_args()
    uni.config.set_virtual_devices(given.replicas)
    names = [f"CPU:{i}" for i in range(given.replicas)]
    digits = load_digits()
    train = tuple(x[: given.images] for x in digits.train)
    found = []
    for strategy in (None, uni.distribute.MirroredStrategy(names)):
        with tempfile.TemporaryDirectory() as directory:
            results, classes = run(strategy, train, digits.test, given.steps, directory)
        print(f"{strategy or 'one device'}: {results}")
        print(f"  ten new images: {np.array(classes)}, labels {digits.test[1][:10]}")
        found.append(results)
    same = np.isclose(found[0]["loss"], found[1]["loss"], rtol=0.05)
    print(f"accuracy {found[1]['accuracy']:.3f}, same={same}")


if __name__ == "__main__":
    main()
