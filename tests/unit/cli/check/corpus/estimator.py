"""A model function for the estimator."""
import argparse
import tensorflow as tf


def input_fn(folder, batch):
    data = tf.data.Dataset.from_tensor_slices(({"x": [[1.0], [2.0]]}, [[1.0], [2.0]]))
    return data.repeat().batch(batch)


def model_fn(features, labels, mode, params):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    predictions = model(features["x"], training=mode == tf.estimator.ModeKeys.TRAIN)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"y": predictions})  #: differs
    loss = tf.reduce_mean(tf.square(predictions - labels))
    optimizer = tf.compat.v1.train.AdamOptimizer(params["rate"])  #: missing
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_or_create_global_step())  #: differs model_fn
    return tf.estimator.EstimatorSpec(mode=mode, loss=loss, train_op=train_op)  #: differs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir", default="/tmp/m")
    args = parser.parse_args()
    strategy = tf.distribute.MirroredStrategy()
    config = tf.estimator.RunConfig(train_distribute=strategy, save_checkpoints_steps=100)
    estimator = tf.estimator.Estimator(
        model_fn, model_dir=args.model_dir, config=config, params={"rate": 0.1})
    train = tf.estimator.TrainSpec(lambda: input_fn("a", 8), max_steps=100)
    valid = tf.estimator.EvalSpec(lambda: input_fn("b", 8), steps=10)
    tf.estimator.train_and_evaluate(estimator, train, valid)
    canned = tf.estimator.DNNClassifier([10], [])  #: missing
    column = tf.feature_column.numeric_column("x")  #: missing
    print(canned, column)
