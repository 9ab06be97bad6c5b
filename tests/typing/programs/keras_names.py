"""Keras under the names of TensorFlow."""

from typing import assert_type

import unisono as tf
from unisono import keras

model = tf.keras.Sequential([keras.layers.Dense(2), tf.keras.layers.Flatten()])
backup = tf.keras.callbacks.BackupAndRestore("backups", save_freq=3)
assert_type(backup.backup_dir, str)
board = tf.keras.callbacks.TensorBoard("logs", update_freq="batch")
assert_type(board.log_dir, str)
checkpoint = tf.keras.callbacks.ModelCheckpoint("model.keras")
reduction: str = tf.keras.losses.Reduction.NONE
loss = tf.losses.MeanSquaredError(reduction=reduction)
optimizer = tf.optimizers.Adam(1e-3)
auc = tf.metrics.AUC()

tf.keras.callbacks.TensorBoard(3)  # type: ignore[arg-type]
tf.keras.callbacks.BackupAndRestore()  # type: ignore[call-arg]
