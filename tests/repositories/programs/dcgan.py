"""A DCGAN in the style of the tutorial: two tapes, batch normalization, transposed convolutions."""

import time

import numpy as np
import tensorflow as tf
from tensorflow.keras import layers

np.random.seed(1)
BATCH_SIZE = 8
NOISE_DIM = 5
images = (np.random.rand(24, 8, 8, 1) * 2 - 1).astype("float32")
noises = np.random.normal(size=(24, NOISE_DIM)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((images, noises)).batch(BATCH_SIZE)


def make_generator_model():
    model = tf.keras.Sequential()
    model.add(layers.Dense(2 * 2 * 8, use_bias=False, input_shape=(NOISE_DIM,)))
    model.add(layers.BatchNormalization())
    model.add(layers.LeakyReLU())
    model.add(layers.Reshape((2, 2, 8)))
    assert model.output_shape == (None, 2, 2, 8)
    model.add(
        layers.Conv2DTranspose(4, (5, 5), strides=(2, 2), padding="same", use_bias=False)
    )
    assert model.output_shape == (None, 4, 4, 4)
    model.add(layers.BatchNormalization())
    model.add(layers.LeakyReLU())
    model.add(
        layers.Conv2DTranspose(
            1, (5, 5), strides=(2, 2), padding="same", use_bias=False, activation="tanh"
        )
    )
    return model


def make_discriminator_model():
    model = tf.keras.Sequential()
    model.add(
        layers.Conv2D(4, (5, 5), strides=(2, 2), padding="same", input_shape=[8, 8, 1])
    )
    model.add(layers.LeakyReLU())
    model.add(layers.Dropout(0.0))
    model.add(layers.Flatten())
    model.add(layers.Dense(1))
    return model


def seed(model):
    model.set_weights(
        [
            np.random.normal(0, 0.1, w.shape) if w.ndim > 1 else w
            for w in model.get_weights()
        ]
    )


generator = make_generator_model()
discriminator = make_discriminator_model()
seed(generator)
seed(discriminator)
cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)


def discriminator_loss(real_output, fake_output):
    real_loss = cross_entropy(tf.ones_like(real_output), real_output)
    fake_loss = cross_entropy(tf.zeros_like(fake_output), fake_output)
    return real_loss + fake_loss


def generator_loss(fake_output):
    return cross_entropy(tf.ones_like(fake_output), fake_output)


generator_optimizer = tf.keras.optimizers.Adam(1e-3)
discriminator_optimizer = tf.keras.optimizers.Adam(1e-3)


@tf.function
def train_step(images, noise):
    with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
        generated_images = generator(noise, training=True)
        real_output = discriminator(images, training=True)
        fake_output = discriminator(generated_images, training=True)
        gen_loss = generator_loss(fake_output)
        disc_loss = discriminator_loss(real_output, fake_output)
    gen_grads = gen_tape.gradient(gen_loss, generator.trainable_variables)
    disc_grads = disc_tape.gradient(disc_loss, discriminator.trainable_variables)
    generator_optimizer.apply_gradients(zip(gen_grads, generator.trainable_variables))
    discriminator_optimizer.apply_gradients(
        zip(disc_grads, discriminator.trainable_variables)
    )
    return gen_loss, disc_loss


def train(dataset, epochs):
    for epoch in range(epochs):
        start = time.time()
        for image_batch, noise in dataset:
            gen_loss, disc_loss = train_step(image_batch, noise)
        assert time.time() >= start
        print(
            f"epoch {epoch + 1}: gen {gen_loss.numpy():.6f} disc {disc_loss.numpy():.6f}"
        )


train(dataset, 2)
sample = generator(tf.constant(noises[:2]), training=False)
print("sample", sample.shape, tf.reduce_mean(sample).numpy(), sample[0, :2, 0, 0].numpy())
