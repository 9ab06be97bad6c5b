"""ESPCN-like super-resolution: depth_to_space, PSNR, a callback, fit with datasets."""

import math

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

rng = np.random.RandomState(22)
CROP, UPSCALE = 12, 3
BASE = tf.constant(rng.rand(10, CROP, CROP, 3).astype("float32") * 255)


def scaling(input_image):
    return input_image / 255.0


def process_input(image):
    gray = tf.image.rgb_to_grayscale(image)
    return tf.image.resize(gray, [CROP // UPSCALE, CROP // UPSCALE], method="area")


def process_target(image):
    return tf.image.rgb_to_grayscale(image)


dataset = tf.data.Dataset.from_tensor_slices(BASE).map(scaling)
train_ds = dataset.map(lambda x: (process_input(x), process_target(x))).batch(4).prefetch(2)


def get_model(upscale_factor=UPSCALE, channels=1):
    conv_args = {"activation": "relu", "padding": "same"}
    inputs = keras.Input(shape=(None, None, channels))
    x = layers.Conv2D(6, 5, **conv_args)(inputs)
    x = layers.Conv2D(4, 3, **conv_args)(x)
    x = layers.Conv2D(channels * (upscale_factor**2), 3, **conv_args)(x)
    outputs = layers.Lambda(lambda x: tf.nn.depth_to_space(x, UPSCALE))(x)
    return keras.Model(inputs, outputs)


def psnr(first, second):
    mse = tf.reduce_mean(tf.math.squared_difference(first, second), [-3, -2, -1])
    return -10.0 * tf.math.log(mse) / tf.math.log(10.0)


class ESPCNCallback(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.test_img = process_input(scaling(BASE[:1]))

    def on_epoch_begin(self, epoch, logs=None):
        self.psnr = []

    def on_epoch_end(self, epoch, logs=None):
        print("Mean PSNR for epoch: %.4f" % (np.mean(self.psnr)), self.test_img.shape)

    def on_test_batch_end(self, batch, logs=None):
        self.psnr.append(10 * math.log10(1 / logs["loss"]))


model = get_model()
model.set_weights([np.abs(rng.normal(0, 0.15, w.shape)) for w in model.get_weights()])
model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.002), loss=keras.losses.MeanSquaredError())
callback = ESPCNCallback()
history = model.fit(
    train_ds, epochs=3, callbacks=[callback], validation_data=train_ds, verbose=0
)
print("loss", [float(x) for x in history.history["loss"]])
for lowres, highres in train_ds.take(1):
    pred = tf.clip_by_value(model(lowres, training=False), 0.0, 1.0)
    bicubic = tf.image.resize(lowres, [CROP, CROP], method="bicubic")
    print("psnr", psnr(pred, highres).numpy())
    print("bicubic", float(tf.reduce_mean(psnr(bicubic, highres))))
