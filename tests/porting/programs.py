"""Programs of TensorFlow, and mistakes of those who port them.

A program is text that begins with ``import tensorflow as tf``; its port is the same
text with unisono. A mistake changes the port.
"""

from __future__ import annotations

import dataclasses
from typing import final

_HEAD = """
import numpy as np
import tensorflow as tf

rng = np.random.RandomState(0)
x = rng.randn(48, 3).astype("float32")
y = (x @ np.array([[1.0], [-2.0], [0.5]]) + 0.3).astype("float32")
"""
_TWO = (
    _HEAD
    + """
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
"""
)
_MODEL = """
def make_model():
    layers = tf.keras.layers
    return tf.keras.Sequential([
        tf.keras.Input((3,)),
        layers.Dense(4, activation="tanh"),
        layers.Dense(4, activation="tanh"),
        layers.Dense(1),
    ])
"""
_NORMED = _MODEL.replace(
    'layers.Dense(4, activation="tanh"),\n        layers.Dense(1)',
    "layers.BatchNormalization(),\n        layers.Dense(1)",
)
_LOOP = """
@tf.function
def train_step(x, y):
    def replica_fn(x, y):
        with tf.GradientTape() as tape:
            errors = (predict(x) - y) ** 2
            loss = tf.reduce_sum(errors) / 16
        gradients = tape.gradient(loss, weights)
        optimizer.apply_gradients(zip(gradients, weights))
        return loss

    return strategy.reduce("SUM", strategy.run(replica_fn, args=(x, y)), axis=None)


for batch in strategy.experimental_distribute_dataset(data):
    train_step(*batch)
"""
_VARIABLES = """
with strategy.scope():
    first = np.random.RandomState(1)
    a = tf.Variable(first.randn(3, 3).astype("float32"), name="a")
    b = tf.Variable(first.randn(3, 3).astype("float32"), name="b")
    c = tf.Variable(first.randn(3, 1).astype("float32"), name="c")
    weights = [a, b, c]
    optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build(weights)

def predict(x):
    return tf.tanh(tf.tanh(x @ a) @ b) @ c
"""
_FIT = """
model = make_model()
model.compile(tf.keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
"""
_FIT_TWO = """
with strategy.scope():
    model = make_model()
    model.compile(tf.keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
model.fit(data, epochs=2, verbose=0)
"""
_MODEL_LOOP = """
with strategy.scope():
    model = make_model()
    optimizer = tf.keras.optimizers.Adam(0.01)
    weights = model.trainable_variables
    optimizer.build(weights)

def predict(x):
    return model(x, training=True)
"""
_OWN_STEP = """
class Model(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = make_model()

    def call(self, x, training=False):
        return self.inner(x, training=training)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((self(x, training=True) - y) ** 2) / 16
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}

with strategy.scope():
    model = Model()
    model.compile(tf.keras.optimizers.RMSprop(0.01))
model.fit(data, epochs=1, verbose=0)
"""
_PLAIN = """
w = tf.Variable(tf.ones((3, 1)), name="w")

@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ w - y) ** 2)
    w.assign_sub(0.1 * tape.gradient(loss, w))
    return loss

for part in np.split(np.arange(48), 3):
    train_step(tf.constant(x[part]), tf.constant(y[part]))
"""
_EMBEDDED = """
ids = (np.arange(48).reshape(16, 3) * 7 % 10).astype("int32")
model = tf.keras.Sequential([
    tf.keras.Input((3,), dtype="int32"),
    tf.keras.layers.Embedding(10, 4),
    tf.keras.layers.GlobalAveragePooling1D(),
    tf.keras.layers.Dense(1),
])
optimizer = tf.keras.optimizers.SGD(0.1)
accuracy = tf.keras.metrics.BinaryAccuracy(name="accuracy")
loss_fn = tf.keras.losses.BinaryCrossentropy(from_logits=True)

@tf.function
def train_step(ids, labels):
    with tf.GradientTape() as tape:
        logits = model(ids, training=True)
        loss = loss_fn(labels, logits)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    accuracy.update_state(labels, tf.sigmoid(logits))
    return loss

for i in range(3):
    train_step(tf.constant(ids), tf.constant((y[:16] > i).astype("float32")))
"""
_IMAGES = """
images = rng.randint(0, 256, (24, 6, 6, 1)).astype("float32") / 255.0
labels = rng.randint(0, 3, 24)
model = tf.keras.Sequential([
    tf.keras.Input((6, 6, 1)),
    tf.keras.layers.Conv2D(4, 3, activation="relu"),
    tf.keras.layers.MaxPooling2D(),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(3),
])
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("rmsprop", loss, metrics=["accuracy"])
model.fit(images, labels, batch_size=8, epochs=1, shuffle=False, verbose=0)
"""
_SCHEDULED = """
model = tf.keras.Sequential([
    tf.keras.Input((3,)),
    tf.keras.layers.Dense(4, activation="relu", kernel_regularizer="l2"),
    tf.keras.layers.Dense(1),
])
rate = tf.keras.optimizers.schedules.ExponentialDecay(0.05, 1, 0.5)
optimizer = tf.keras.optimizers.AdamW(
    rate, weight_decay=0.01, epsilon=0.001, clipnorm=1.0
)

def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2) + sum(model.losses)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss

for part in np.split(np.arange(48), 3):
    train_step(tf.constant(x[part]), tf.constant(y[part]))
"""
_DROPPED = _MODEL.replace("layers.Dense(1)", "layers.Dropout(0.5), layers.Dense(1)")
_WIDE = """
w = tf.Variable(np.ones((3, 1)), name="w")

@tf.function
def train_step(times, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(((times - 1.7e9) @ w - y) ** 2)
    w.assign_sub(0.1 * tape.gradient(loss, w))
    return loss

for i in range(3):
    times = 1.7e9 + x[16 * i : 16 * i + 16].astype("float64")
    train_step(tf.constant(times), tf.constant(y[16 * i : 16 * i + 16], tf.float64))
"""
_UNEVEN = _LOOP.replace(".batch(16)", ".batch(11)").replace(
    "tf.reduce_sum(errors) / 16",
    "tf.nn.compute_average_loss(tf.reduce_sum(errors, -1), global_batch_size=11)",
)


@final
@dataclasses.dataclass(frozen=True)
class Program:
    """A program of TensorFlow.

    Attributes:
        name: its name.
        text: what it is.
        step: the function that is its step, if the recorder has to be told.
        is_old: whether it is recorded with Keras 2, of the package tf_keras.
    """

    name: str
    text: str
    step: str | None = None
    is_old: bool = False

    def port(self) -> str:
        """Returns the ported program."""
        return self.text.replace("import tensorflow as tf", "import unisono as tf")


@final
@dataclasses.dataclass(frozen=True)
class Mistake:
    """A mistake in a port.

    Attributes:
        name: its name.
        program: the name of the program.
        changes: texts of the port, and what stands there instead.
        kind: the kind of the value that differs first.
        cause: the code of its cause.
    """

    name: str
    program: str
    changes: tuple[tuple[str, str], ...]
    kind: str
    cause: str

    def port(self) -> str:
        """Returns the ported program with the mistake."""
        text = PROGRAMS[self.program].port()
        for old, new in self.changes:
            assert old in text, (self.name, old)
            text = text.replace(old, new)
        return text


_EVERY = (
    Program("custom loop", _TWO + _VARIABLES + _LOOP),
    Program(
        "uneven batches",
        _TWO.replace(".batch(16)", ".batch(11)") + _VARIABLES + _UNEVEN,
    ),
    Program("model in a loop", _TWO + _NORMED + _MODEL_LOOP + _LOOP),
    Program("no strategy", _HEAD + _PLAIN),
    Program("bare step", _HEAD + _SCHEDULED, "train_step"),
    Program("embedding", _HEAD + _EMBEDDED),
    Program("fit", _HEAD + _NORMED + _FIT),
    Program("fit on two", _TWO + _MODEL + _FIT_TWO),
    Program("own train_step", _TWO + _MODEL + _OWN_STEP),
    Program("fit of Keras 2", _HEAD + _MODEL + _FIT, is_old=True),
    Program("images", _HEAD + _IMAGES),
)
# Originals that the ports below cannot equal by the same text.
_OTHERS = (
    Program("statistics on two", _TWO + _NORMED + _FIT_TWO),
    Program(
        "dropout",
        _HEAD
        + _MODEL.replace("layers.Dense(1)", "layers.Dropout(0.5), layers.Dense(1)")
        + _FIT,
    ),
    Program("64 bits", _HEAD + _WIDE),
)
RIGHT = tuple(p.name for p in _EVERY)
PROGRAMS = {p.name: p for p in (*_EVERY, *_OTHERS)}
MISTAKES = (
    Mistake(
        "mean of the part",
        "custom loop",
        (("tf.reduce_sum(errors) / 16", "tf.reduce_mean(errors)"),),
        "gradient",
        "loss-reduction",
    ),
    Mistake(
        "other order of creation",
        "custom loop",
        (
            (
                '    a = tf.Variable(first.randn(3, 3).astype("float32"), name="a")\n',
                "",
            ),
            ('name="b")\n', 'name="v")\n    a = tf.Variable(b, name="u")\n'),
        ),
        "gradient",
        "initial-values",
    ),
    Mistake(
        "statistics of the whole batch",
        "statistics on two",
        (),
        "gradient",
        "batch-statistics",
    ),
    Mistake(
        "inference mode",
        "model in a loop",
        (("training=True", "training=False"),),
        "gradient",
        "inference-mode",
    ),
    Mistake("dropout", "dropout", (), "gradient", "dropout"),
    Mistake("32 bits", "64 bits", (), "result|variable", "64-bit"),
    Mistake("data not scaled", "images", ((" / 255.0", ""),), "batch", "data"),
    Mistake(
        "another epsilon",
        "bare step",
        ((", epsilon=0.001", ""),),
        "slot|variable",
        "optimizer-settings",
    ),
    Mistake(
        "no decay",
        "bare step",
        (("ExponentialDecay(0.05, 1, 0.5)", "ExponentialDecay(0.05, 1, 1.0)"),),
        "slot|variable",
        "optimizer-settings",
    ),
    Mistake(
        "probabilities for logits",
        "embedding",
        (("from_logits=True", "from_logits=False"),),
        "gradient",
        "unknown",
    ),
    Mistake(
        "no regulariser",
        "bare step",
        ((" + sum(model.losses)", ""),),
        "gradient",
        "unknown",
    ),
    Mistake(
        "metric of logits",
        "embedding",
        (("tf.sigmoid(logits)", "logits"),),
        "metric|state",
        "metric",
    ),
)
