"""`fit` with the callbacks that repositories use: checkpoints, plateaus, CSV, early stopping."""

import csv
import os
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.keras.callbacks import (
    CSVLogger,
    EarlyStopping,
    LearningRateScheduler,
    ModelCheckpoint,
    ReduceLROnPlateau,
    TensorBoard,
    TerminateOnNaN,
)
from tensorflow.keras.layers import Activation, BatchNormalization, Dense, Dropout
from tensorflow.keras.models import Sequential, load_model
from tensorflow.keras.optimizers import SGD
from tensorflow.keras.utils import to_categorical

rng = np.random.RandomState(27)
x_train = rng.normal(size=(48, 8)).astype("float32")
y_train = to_categorical(rng.randint(0, 4, 48), num_classes=4)
x_val, y_val = x_train[:16], y_train[:16]
folder = tempfile.mkdtemp()

model = Sequential()
model.add(Dense(12, input_dim=8, kernel_regularizer=tf.keras.regularizers.l2(1e-3)))
model.add(BatchNormalization())
model.add(Activation("relu"))
model.add(Dropout(0.0))
model.add(Dense(4, activation="softmax"))
model.set_weights(
    [rng.normal(0, 0.4, w.shape) if w.ndim > 1 else w for w in model.get_weights()]
)
model.compile(
    loss="categorical_crossentropy",
    optimizer=SGD(learning_rate=0.1, momentum=0.9, nesterov=True),
    metrics=["accuracy", tf.keras.metrics.AUC(name="auc"), tf.keras.metrics.Precision(name="precision")],
)


class LossHistory(tf.keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs.get("loss")))


def step_decay(epoch):
    return 0.1 * (0.5 ** (epoch // 2))


losses = LossHistory()
best = os.path.join(folder, "best.keras")
callbacks = [
    losses,
    LearningRateScheduler(step_decay),
    ModelCheckpoint(best, monitor="val_loss", save_best_only=True),
    ModelCheckpoint(os.path.join(folder, "{epoch:02d}.weights.h5"), save_weights_only=True),
    EarlyStopping(monitor="val_accuracy", patience=10, restore_best_weights=False),
    ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=5),
    CSVLogger(os.path.join(folder, "log.csv")),
    TensorBoard(log_dir=os.path.join(folder, "logs")),
    TerminateOnNaN(),
]
history = model.fit(
    x_train,
    y_train,
    batch_size=16,
    epochs=5,
    shuffle=False,
    verbose=0,
    validation_data=(x_val, y_val),
    callbacks=callbacks,
    class_weight={0: 1.0, 1: 2.0, 2: 0.5, 3: 1.0},
)
for name in ("loss", "accuracy", "auc", "precision", "val_loss", "learning_rate"):
    print(name, [float(v) for v in history.history[name]])
print("batches", len(losses.losses), losses.losses[0], losses.losses[-1])
print(sorted(f for f in os.listdir(folder) if f.endswith(".h5")))
with open(os.path.join(folder, "log.csv")) as f:
    rows = list(csv.DictReader(f))
print("csv", len(rows), sorted(rows[0]))
restored = load_model(best)
print("restored", [float(v) for v in restored.evaluate(x_val, y_val, verbose=0)])
model.load_weights(os.path.join(folder, "02.weights.h5"))
print("second epoch", float(model.evaluate(x_val, y_val, verbose=0)[0]))
print("predict", np.argmax(model.predict(x_val, verbose=0), axis=1).tolist())
