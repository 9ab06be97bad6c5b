"""Programs whose models have steps for replicas, run here and on TensorFlow.

Each takes TensorFlow's module or unisono, Keras, and a strategy, and returns numbers.
``python -m tests.unit.integrations.keras.replica_programs`` records those of TensorFlow
in replica_programs.json, where TensorFlow and Keras are installed; it needs no unisono.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np

FILE = pathlib.Path(__file__).with_suffix(".json")
REPLICAS = (1, 2, 4)


def examples(count=10):
    """Returns inputs and targets."""
    random = np.random.RandomState(0)
    x, y = random.rand(count, 3), random.rand(count, 1)
    return x.astype("float32"), y.astype("float32")


def weights_of(model):
    """Returns the weights of a model in one list."""
    return [float(x) for w in model.get_weights() for x in np.ravel(w)]


def scope_of(strategy):
    """Returns the scope of a strategy, or of none."""
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def is_weak(keras, strategy):
    """Returns whether this is TensorFlow on several replicas, where some fail."""
    is_single = strategy is None or strategy.num_replicas_in_sync == 1
    return keras.backend.backend() == "tensorflow" and not is_single


def make_taped(tf, keras) -> Any:
    """Returns the class of a model with a tape in its step, as tutorials write it."""

    class Taped(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(
                1,
                kernel_initializer="ones",
                kernel_regularizer=keras.regularizers.L2(0.1),
            )

        def call(self, x, training=False):
            return self.dense(x)

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                found = self(x, training=True)
                loss = self.compute_loss(x=x, y=y, y_pred=found)
            variables = self.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.optimizer.apply_gradients(zip(gradients, variables))
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, found)
            return {m.name: m.result() for m in self.metrics}

    return Taped


def fit_with_a_tape(tf, keras, strategy):
    """An uneven last batch, which leaves two of four replicas without examples."""
    with scope_of(strategy):
        model = make_taped(tf, keras)()
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    x, y = examples()
    given = {"batch_size": 4, "shuffle": False, "validation_data": (x, y)}
    history = model.fit(x, y, epochs=2, verbose=0, **given).history
    return history | {"weights": weights_of(model)}


def fit_with_callbacks(tf, keras, strategy):
    """Several steps per execution, a tracker of its own, and what callbacks see.

    TensorFlow fails on several replicas with several steps per execution. There it
    takes one, and the batches are left out that others do not see.
    """
    together = 1 if is_weak(keras, strategy) else 2
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            kernel = self.model.get_weights()[0]
            if batch in (1, 3):
                seen.append([batch, float(logs["error"]), float(kernel.sum())])

        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = epoch == 1

    class Tracked(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1, kernel_initializer="ones")
            self.error = keras.metrics.Mean(name="error")
            self.loss_object = keras.losses.MeanSquaredError()

        @property
        def metrics(self):
            return [self.error]

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                found = self(x)
                loss = self.loss_object(y, found)
            gradients = tape.gradient(loss, self.trainable_variables)
            pairs = zip(gradients, self.trainable_variables)
            self.optimizer.apply_gradients(pairs)
            self.error.update_state(tf.abs(found - y))
            return {"error": self.error.result()}

    with scope_of(strategy):
        model = Tracked()
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        model.compile(optimizer, steps_per_execution=together)
    x, y = examples(20)
    given = {"batch_size": 4, "shuffle": False, "verbose": 0, "callbacks": [Watch()]}
    history = model.fit(x, y, epochs=5, **given).history
    return history | {"seen": seen, "weights": weights_of(model)}


def fit_with_the_steps_of_keras(tf, keras, strategy):
    """All three steps are Keras' own, with something added."""

    class Extended(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(
                1, kernel_initializer="ones", activity_regularizer="l2"
            )
            self.dropped = keras.layers.Dropout(0.0)

        def call(self, x, training=False):
            return self.dropped(self.dense(x), training=training)

        def train_step(self, data):
            return super().train_step(data)

        def test_step(self, data):
            logs = super().test_step(data)
            return {**logs, "twice": 2.0 * logs["mae"]}

        def predict_step(self, data):
            return {"found": 2.0 * super().predict_step(data)}

    with scope_of(strategy):
        model = Extended()
        model.compile(keras.optimizers.Adam(0.1), "mse", metrics=["mae"])
    x, y = examples(12)
    weight = np.linspace(0.5, 1.5, 12).astype("float32")
    given = {"batch_size": 8, "shuffle": False, "sample_weight": weight}
    history = model.fit(x, y, epochs=2, verbose=0, **given).history
    tested = model.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
    found = model.predict(x, batch_size=8, verbose=0)["found"]
    return history | {
        "tested": tested,
        "predicted": [float(v) for v in np.ravel(found)],
        "weights": weights_of(model),
    }


def train_on_batches(tf, keras, strategy):
    """`train_on_batch` and `test_on_batch`, whose batch every replica gets in TF.

    So the rows are equal.
    """

    taped: Any = make_taped(tf, keras)

    class Cut(taped):
        def train_step(self, data):
            return super().train_step(data[:2])

    with scope_of(strategy):
        model = Cut()
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    x, y = np.ones((4, 3), "float32"), np.ones((4, 1), "float32")
    logs = [model.train_on_batch(x, y, return_dict=True) for _ in range(2)]
    tested = model.test_on_batch(x, y, return_dict=True)
    return {"logs": logs, "tested": tested, "weights": weights_of(model)}


def fit_two_networks(tf, keras, strategy):
    """Two networks, each with its own optimizer, in a model that is never called."""

    class Rivals(keras.Model):
        def __init__(self):
            super().__init__()
            ones = {"kernel_initializer": "ones"}
            first, second = keras.layers.Dense(2, **ones), keras.layers.Dense(1, **ones)
            self.maker = keras.Sequential([keras.Input((3,)), first])
            self.judge = keras.Sequential([keras.Input((2,)), second])
            self.loss_object = keras.losses.BinaryCrossentropy(from_logits=True)
            self.built = True

        def compile(self, maker_optimizer, judge_optimizer):
            super().compile()
            self.maker_optimizer = maker_optimizer
            self.judge_optimizer = judge_optimizer
            self.judged = keras.metrics.Mean(name="judged")

        @property
        def metrics(self):
            return [self.judged]

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.loss_object(y, self.judge(self.maker(x)))
            variables = self.judge.trainable_weights
            gradients = tape.gradient(loss, variables)
            self.judge_optimizer.apply_gradients(zip(gradients, variables))
            with tf.GradientTape() as tape:
                loss = self.loss_object(1.0 - y, self.judge(self.maker(x)))
            variables = self.maker.trainable_weights
            gradients = tape.gradient(loss, variables)
            self.maker_optimizer.apply_gradients(zip(gradients, variables))
            self.judged.update_state(loss)
            return {"judged": self.judged.result()}

    with scope_of(strategy):
        model = Rivals()
        model.compile(keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.01))
    x, y = examples(16)
    y = np.round(y)
    given = {"batch_size": 8, "shuffle": False, "verbose": 0}
    history = model.fit(x, y, epochs=3, **given).history
    return history | {"weights": weights_of(model)}


def fit_with_batch_statistics(tf, keras, strategy):
    """Keras' own step, in which each replica normalizes by its own part.

    Moving averages are left out: on TensorFlow each replica has its own.
    """
    is_tensorflow = keras.backend.backend() == "tensorflow"
    with scope_of(strategy):
        model = keras.Sequential(
            [
                keras.Input((3,)),
                keras.layers.Dense(2, kernel_initializer="ones"),
                keras.layers.BatchNormalization(momentum=0.5),
                keras.layers.Dense(1, kernel_initializer="ones"),
            ]
        )
        more = {} if is_tensorflow else {"per_replica": True}
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], **more)
    x, y = examples(16)
    given = {"batch_size": 8, "shuffle": False, "verbose": 0, "class_weight": {0: 2.0}}
    history = model.fit(x, np.round(y), epochs=2, **given).history
    trained = [float(v) for w in model.trainable_weights for v in np.ravel(w)]
    return history | {"trained": trained}


def fit_with_common_statistics(tf, keras, strategy):
    """All replicas normalize by the statistics of all of their parts."""

    class Normalized(keras.Sequential):
        def train_step(self, data):
            return super().train_step(data)

    with scope_of(strategy):
        model = Normalized(
            [
                keras.Input((3,)),
                keras.layers.Dense(2, kernel_initializer="ones"),
                keras.layers.BatchNormalization(synchronized=True, momentum=0.5),
                keras.layers.Dense(1, kernel_initializer="ones"),
            ]
        )
        model.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = examples(16)
    given = {"batch_size": 8, "shuffle": False, "verbose": 0}
    history = model.fit(x, y, epochs=2, validation_data=(x, y), **given).history
    return history | {"weights": weights_of(model)}


PROGRAMS = [
    fit_with_a_tape,
    fit_with_callbacks,
    fit_with_the_steps_of_keras,
    train_on_batches,
    fit_two_networks,
    fit_with_batch_statistics,
    fit_with_common_statistics,
]


def record(replicas):
    """Prints the numbers of TensorFlow as JSON."""
    import keras
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    virtual = [tf.config.LogicalDeviceConfiguration()] * max(REPLICAS)
    tf.config.set_logical_device_configuration(cpu, virtual)
    found = {}
    for program in PROGRAMS:
        names = [f"CPU:{i}" for i in range(replicas)]
        # Its collectives on CPUs fail for two updates in a step.
        reduce = tf.distribute.ReductionToOneDevice()
        strategy = tf.distribute.MirroredStrategy(names, cross_device_ops=reduce)
        found[program.__name__] = program(tf, keras, strategy)
    print(json.dumps(found))


def main():
    """Records all programs, each number of replicas in a process of its own."""
    if sys.argv[1:]:
        record(int(sys.argv[1]))
        return
    found = {}
    for replicas in REPLICAS:
        done = subprocess.run(
            [sys.executable, __file__, str(replicas)],
            env=os.environ | {"KERAS_BACKEND": "tensorflow"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found[replicas] = json.loads(done.stdout.splitlines()[-1])
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
