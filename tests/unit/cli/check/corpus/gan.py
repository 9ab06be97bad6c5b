"""Two networks against each other."""
import os
import time

import tensorflow as tf
from tensorflow.keras import layers

NOISE = 100
(images, _), (_, _) = tf.keras.datasets.mnist.load_data()
images = (images.reshape(-1, 28, 28, 1).astype("float32") - 127.5) / 127.5
dataset = tf.data.Dataset.from_tensor_slices(images).shuffle(60000, seed=1).batch(256)  #: differs order


def make_generator():
    model = tf.keras.Sequential()
    model.add(layers.Dense(7 * 7 * 64, use_bias=False, input_shape=(NOISE,)))
    model.add(layers.BatchNormalization())
    model.add(layers.LeakyReLU())
    model.add(layers.Reshape((7, 7, 64)))
    model.add(layers.Conv2DTranspose(1, 5, strides=4, padding="same", activation="tanh"))
    assert model.output_shape == (None, 28, 28, 1)
    return model


def make_discriminator():
    model = tf.keras.Sequential()
    model.add(layers.Conv2D(64, 5, strides=2, padding="same", input_shape=[28, 28, 1]))
    model.add(layers.LeakyReLU(alpha=0.2))
    model.add(layers.Dropout(0.3))
    model.add(layers.Flatten())
    model.add(layers.Dense(1))
    return model


generator, discriminator = make_generator(), make_discriminator()
cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)
g_optimizer = tf.keras.optimizers.Adam(1e-4)
d_optimizer = tf.keras.optimizers.Adam(1e-4)
seed = tf.random.normal([16, NOISE])


@tf.function
def train_step(images):
    noise = tf.random.normal([tf.shape(images)[0], NOISE])
    with tf.GradientTape() as g_tape, tf.GradientTape() as d_tape:
        made = generator(noise, training=True)
        real, fake = discriminator(images, training=True), discriminator(made, training=True)
        g_loss = cross_entropy(tf.ones_like(fake), fake)
        d_loss = cross_entropy(tf.ones_like(real), real)
        d_loss += cross_entropy(tf.zeros_like(fake), fake)
    g = g_tape.gradient(g_loss, generator.trainable_variables)
    d = d_tape.gradient(d_loss, discriminator.trainable_variables)
    g_optimizer.apply_gradients(zip(g, generator.trainable_variables))
    d_optimizer.apply_gradients(zip(d, discriminator.trainable_variables))
    return g_loss, d_loss


for epoch in range(2):
    start = time.time()
    for batch in dataset:
        train_step(batch)
    print(epoch, time.time() - start, generator(seed, training=False).shape)
generator.save_weights(os.path.join("out", "generator.weights.h5"))
generator.save_weights("out/generator.tf")  #: differs .weights.h5
