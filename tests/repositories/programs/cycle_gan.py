"""One step of CycleGAN: two generators, two discriminators, a persistent tape."""

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(20)
LAMBDA = 10


class InstanceNormalization(tf.keras.layers.Layer):
    def __init__(self, epsilon=1e-5):
        super(InstanceNormalization, self).__init__()
        self.epsilon = epsilon

    def build(self, input_shape):
        self.scale = self.add_weight(
            name="scale", shape=input_shape[-1:], initializer="ones", trainable=True
        )
        self.offset = self.add_weight(
            name="offset", shape=input_shape[-1:], initializer="zeros", trainable=True
        )

    def call(self, x):
        mean, variance = tf.nn.moments(x, axes=[1, 2], keepdims=True)
        inv = tf.math.rsqrt(variance + self.epsilon)
        normalized = (x - mean) * inv
        return self.scale * normalized + self.offset


def downsample(filters, size):
    result = tf.keras.Sequential()
    result.add(
        tf.keras.layers.Conv2D(filters, size, strides=2, padding="same", use_bias=False)
    )
    result.add(InstanceNormalization())
    result.add(tf.keras.layers.LeakyReLU())
    return result


def upsample(filters, size):
    result = tf.keras.Sequential()
    result.add(
        tf.keras.layers.Conv2DTranspose(
            filters, size, strides=2, padding="same", use_bias=False
        )
    )
    result.add(InstanceNormalization())
    result.add(tf.keras.layers.ReLU())
    return result


def generator():
    inputs = tf.keras.layers.Input(shape=[8, 8, 3])
    skip = x = downsample(4, 4)(inputs)
    x = downsample(6, 4)(x)
    x = upsample(4, 4)(x)
    x = tf.keras.layers.Concatenate()([x, skip])
    last = tf.keras.layers.Conv2DTranspose(
        3, 4, strides=2, padding="same", activation="tanh"
    )
    return tf.keras.Model(inputs=inputs, outputs=last(x))


def discriminator():
    inp = tf.keras.layers.Input(shape=[8, 8, 3], name="input_image")
    x = downsample(4, 4)(inp)
    x = tf.keras.layers.ZeroPadding2D()(x)
    return tf.keras.Model(inputs=inp, outputs=tf.keras.layers.Conv2D(1, 4)(x))


def seeded(model):
    for w in model.trainable_weights:
        if len(w.shape) > 1:
            w.assign(rng.normal(0, 0.2, w.shape).astype("float32"))
    return model


generator_g, generator_f = seeded(generator()), seeded(generator())
discriminator_x, discriminator_y = seeded(discriminator()), seeded(discriminator())
loss_obj = tf.keras.losses.BinaryCrossentropy(from_logits=True)


def discriminator_loss(real, generated):
    real_loss = loss_obj(tf.ones_like(real), real)
    generated_loss = loss_obj(tf.zeros_like(generated), generated)
    return (real_loss + generated_loss) * 0.5


def generator_loss(generated):
    return loss_obj(tf.ones_like(generated), generated)


def calc_cycle_loss(real_image, cycled_image):
    return LAMBDA * tf.reduce_mean(tf.abs(real_image - cycled_image))


def identity_loss(real_image, same_image):
    return LAMBDA * 0.5 * tf.reduce_mean(tf.abs(real_image - same_image))


optimizers = [tf.keras.optimizers.Adam(2e-3, beta_1=0.5) for _ in range(4)]


@tf.function
def train_step(real_x, real_y):
    with tf.GradientTape(persistent=True) as tape:
        fake_y = generator_g(real_x, training=True)
        cycled_x = generator_f(fake_y, training=True)
        fake_x = generator_f(real_y, training=True)
        cycled_y = generator_g(fake_x, training=True)
        same_x = generator_f(real_x, training=True)
        same_y = generator_g(real_y, training=True)
        disc_real_x = discriminator_x(real_x, training=True)
        disc_real_y = discriminator_y(real_y, training=True)
        disc_fake_x = discriminator_x(fake_x, training=True)
        disc_fake_y = discriminator_y(fake_y, training=True)
        gen_g_loss = generator_loss(disc_fake_y)
        gen_f_loss = generator_loss(disc_fake_x)
        total_cycle_loss = calc_cycle_loss(real_x, cycled_x) + calc_cycle_loss(
            real_y, cycled_y
        )
        total_gen_g_loss = gen_g_loss + total_cycle_loss + identity_loss(real_y, same_y)
        total_gen_f_loss = gen_f_loss + total_cycle_loss + identity_loss(real_x, same_x)
        disc_x_loss = discriminator_loss(disc_real_x, disc_fake_x)
        disc_y_loss = discriminator_loss(disc_real_y, disc_fake_y)
    steps = [
        (total_gen_g_loss, generator_g),
        (total_gen_f_loss, generator_f),
        (disc_x_loss, discriminator_x),
        (disc_y_loss, discriminator_y),
    ]
    for optimizer, (loss, model) in zip(optimizers, steps):
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return total_gen_g_loss, total_gen_f_loss, disc_x_loss, disc_y_loss


horses = tf.data.Dataset.from_tensor_slices(rng.uniform(-1, 1, (4, 8, 8, 3)).astype("float32"))
zebras = tf.data.Dataset.from_tensor_slices(rng.uniform(-1, 1, (4, 8, 8, 3)).astype("float32"))
for epoch in range(2):
    n = 0
    for image_x, image_y in tf.data.Dataset.zip((horses.batch(2), zebras.batch(2))):
        losses = train_step(image_x, image_y)
        if n % 10 == 0:
            print(".", end="")
        n += 1
    print("epoch", epoch, [float(x) for x in losses])
