"""WGAN-GP as keras.io has it: a Model with `train_step`, several critic steps, a penalty."""

import numpy as np
import tensorflow as tf
from tensorflow import keras

rng = np.random.RandomState(2)
LATENT = 4


def mlp(sizes, name):
    x = inputs = keras.Input((sizes[0],))
    for n in sizes[1:-1]:
        x = keras.layers.Dense(n)(x)
        x = keras.layers.LeakyReLU(negative_slope=0.2)(x)
    model = keras.Model(inputs, keras.layers.Dense(sizes[-1])(x), name=name)
    model.set_weights([rng.normal(0, 0.4, w.shape) for w in model.get_weights()])
    return model


class WGAN(keras.Model):
    def __init__(
        self, discriminator, generator, latent, discriminator_extra_steps=2, gp_weight=10.0
    ):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.latent = latent
        self.d_steps = discriminator_extra_steps
        self.gp_weight = gp_weight

    def compile(self, d_optimizer, g_optimizer, d_loss_fn, g_loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.d_loss_fn = d_loss_fn
        self.g_loss_fn = g_loss_fn

    def gradient_penalty(self, alpha, real_images, fake_images):
        diff = fake_images - real_images
        interpolated = real_images + alpha * diff
        with tf.GradientTape() as gp_tape:
            gp_tape.watch(interpolated)
            pred = self.discriminator(interpolated, training=True)
        grads = gp_tape.gradient(pred, [interpolated])[0]
        norm = tf.sqrt(tf.reduce_sum(tf.square(grads), axis=[1]))
        return tf.reduce_mean((norm - 1.0) ** 2)

    def train_step(self, data):
        real_images, noise, alpha = data
        if isinstance(real_images, tuple):
            real_images = real_images[0]
        for i in range(self.d_steps):
            with tf.GradientTape() as tape:
                fake_images = self.generator(noise[:, i], training=True)
                fake_logits = self.discriminator(fake_images, training=True)
                real_logits = self.discriminator(real_images, training=True)
                d_cost = self.d_loss_fn(real_img=real_logits, fake_img=fake_logits)
                gp = self.gradient_penalty(alpha, real_images, fake_images)
                d_loss = d_cost + gp * self.gp_weight
            d_gradient = tape.gradient(d_loss, self.discriminator.trainable_variables)
            self.d_optimizer.apply_gradients(
                zip(d_gradient, self.discriminator.trainable_variables)
            )
        with tf.GradientTape() as tape:
            generated_images = self.generator(noise[:, -1], training=True)
            gen_img_logits = self.discriminator(generated_images, training=True)
            g_loss = self.g_loss_fn(gen_img_logits)
        gen_gradient = tape.gradient(g_loss, self.generator.trainable_variables)
        self.g_optimizer.apply_gradients(
            zip(gen_gradient, self.generator.trainable_variables)
        )
        return {"d_loss": d_loss, "g_loss": g_loss}


def discriminator_loss(real_img, fake_img):
    return tf.reduce_mean(fake_img) - tf.reduce_mean(real_img)


def generator_loss(fake_img):
    return -tf.reduce_mean(fake_img)


wgan = WGAN(mlp([6, 8, 1], "critic"), mlp([LATENT, 8, 6], "generator"), LATENT)
wgan.compile(
    d_optimizer=keras.optimizers.Adam(learning_rate=0.002, beta_1=0.5, beta_2=0.9),
    g_optimizer=keras.optimizers.Adam(learning_rate=0.002, beta_1=0.5, beta_2=0.9),
    g_loss_fn=generator_loss,
    d_loss_fn=discriminator_loss,
)
real = rng.normal(size=(32, 6)).astype("float32")
noise = rng.normal(size=(32, 3, LATENT)).astype("float32")
alpha = rng.uniform(size=(32, 1)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((real, noise, alpha)).batch(8)


class Monitor(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        generated = self.model.generator(tf.constant(noise[:4, 0]))
        print("epoch", epoch, "mean", float(tf.reduce_mean(generated)))


history = wgan.fit(dataset, epochs=3, callbacks=[Monitor()], verbose=0)
print("d_loss", [float(x) for x in history.history["d_loss"]])
print("g_loss", [float(x) for x in history.history["g_loss"]])
