"""A training function that is given to a cluster library."""
import argparse
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
from tensorflow.keras.callbacks import Callback


class Report(Callback):
    def on_epoch_end(self, epoch, logs=None):
        print(epoch, logs, self.model.optimizer.learning_rate.numpy(), self.params)


def build_model() -> tf.keras.Model:
    model = tf.keras.Sequential(
        [tf.keras.layers.InputLayer(input_shape=(1,)), tf.keras.layers.Dense(10), tf.keras.layers.Dense(1)])
    return model


def train_func(config: dict):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = build_model()
        model.compile(
            optimizer=tf.keras.optimizers.SGD(learning_rate=config.get("lr", 1e-3)),
            loss=tf.keras.losses.mean_squared_error, metrics=[tf.keras.metrics.mean_squared_error])
    data = tf.data.Dataset.from_tensor_slices(([[0.0]] * 64, [[1.0]] * 64)).batch(config["batch"])
    results = []
    for _ in range(config.get("epochs", 3)):
        history = model.fit(data, callbacks=[Report()], verbose=0)
        results.append(history.history)
    model.save_weights("last.weights.h5")
    model.load_weights("last.weights.h5")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args, _ = parser.parse_known_args()
    tf.get_logger().setLevel("ERROR")
    tf.random.set_seed(1)
    tf.debugging.set_log_device_placement(True)  #: differs
    print(train_func({"lr": 1e-3, "batch": 32, "epochs": args.epochs}))
