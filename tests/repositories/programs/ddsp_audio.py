"""Harmonic synthesis with a spectral loss, as DDSP does it: frames, spectra, oscillator bank."""

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(17)
SAMPLE_RATE, FRAMES, SAMPLES, HARMONICS = 400, 8, 128, 3


def tf_float32(x):
    if isinstance(x, tf.Tensor):
        return tf.cast(x, dtype=tf.float32)
    return tf.convert_to_tensor(x, tf.float32)


def safe_log(x, eps=1e-5):
    return tf.math.log(tf.where(x <= eps, eps, x))


def exp_sigmoid(x, exponent=10.0, max_value=2.0, threshold=1e-7):
    x = tf_float32(x)
    return max_value * tf.nn.sigmoid(x) ** tf.math.log(exponent) + threshold


def resample(inputs, n_timesteps):
    inputs = tf_float32(inputs)[:, :, tf.newaxis, :]
    outputs = tf.image.resize(inputs, [n_timesteps, 1], method=tf.image.ResizeMethod.BILINEAR)
    return outputs[:, :, 0, :]


def oscillator_bank(frequency_envelopes, amplitude_envelopes, sample_rate):
    frequency_envelopes = tf_float32(frequency_envelopes)
    amplitude_envelopes = tf.where(
        tf.greater_equal(frequency_envelopes, sample_rate / 2.0),
        tf.zeros_like(amplitude_envelopes),
        amplitude_envelopes,
    )
    omegas = frequency_envelopes * (2.0 * np.pi) / float(sample_rate)
    phases = tf.cumsum(omegas, axis=1)
    return tf.reduce_sum(tf.sin(phases) * amplitude_envelopes, axis=-1)


def compute_mag(audio, size, overlap=0.75):
    """Magnitudes by a bank of cosines and sines, as convolution."""
    size, step = int(size), int(size * (1.0 - overlap))
    angles = 2 * np.pi * np.outer(np.arange(size), np.arange(size // 2 + 1)) / size
    window = np.hanning(size)[:, None]
    bank = np.concatenate([window * np.cos(angles), window * np.sin(angles)], axis=1)
    frames = tf.nn.conv1d(
        tf_float32(audio)[:, :, tf.newaxis], tf_float32(bank)[:, tf.newaxis, :], step, "SAME"
    )
    real, imaginary = tf.split(frames, 2, axis=-1)
    return tf.sqrt(tf.maximum(real**2 + imaginary**2, 1e-10))


def mean_difference(target, value, loss_type="L1"):
    difference = target - value
    if loss_type.upper() == "L1":
        return tf.reduce_mean(tf.abs(difference))
    elif loss_type.upper() == "L2":
        return tf.reduce_mean(difference**2)
    raise ValueError("Loss type ({}), must be \"L1\", \"L2\"".format(loss_type))


class SpectralLoss(tf.keras.layers.Layer):
    def __init__(self, fft_sizes=(32, 16), loss_type="L1", **kwargs):
        super().__init__(**kwargs)
        self.fft_sizes = fft_sizes
        self.loss_type = loss_type

    def call(self, target_audio, audio):
        loss = 0.0
        for size in self.fft_sizes:
            target_mag, value_mag = compute_mag(target_audio, size), compute_mag(audio, size)
            loss += mean_difference(target_mag, value_mag, self.loss_type)
            loss += mean_difference(safe_log(target_mag), safe_log(value_mag), self.loss_type)
        return loss


class Decoder(tf.keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(8, activation="tanh")
        self.out = tf.keras.layers.Dense(1 + HARMONICS)

    def call(self, features):
        x = tf.concat([features["f0_scaled"], features["ld_scaled"]], axis=-1)
        amplitude, harmonics = tf.split(self.out(self.dense(x)), [1, HARMONICS], axis=-1)
        harmonics = exp_sigmoid(harmonics)
        harmonics /= tf.reduce_sum(harmonics, axis=-1, keepdims=True)
        return {"amps": exp_sigmoid(amplitude), "harmonic_distribution": harmonics}


class Autoencoder(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.decoder = Decoder()
        self.spectral_loss = SpectralLoss()
        self._losses_dict = {}

    def call(self, features, training=False):
        controls = self.decoder(features)
        f0 = resample(features["f0_hz"], SAMPLES)
        ratios = tf.linspace(1.0, float(HARMONICS), HARMONICS)[tf.newaxis, tf.newaxis, :]
        amps = resample(controls["amps"] * controls["harmonic_distribution"], SAMPLES)
        audio = oscillator_bank(f0 * ratios, amps, SAMPLE_RATE)
        return {"audio_synth": audio, **controls}

    def losses_of(self, features, outputs):
        return {"spectral": self.spectral_loss(features["audio"], outputs["audio_synth"])}


class Trainer:
    def __init__(self, model, strategy, learning_rate=0.01, grad_clip_norm=3.0):
        self.model, self.strategy = model, strategy
        self.grad_clip_norm = grad_clip_norm
        with self.strategy.scope():
            schedule = tf.keras.optimizers.schedules.ExponentialDecay(
                initial_learning_rate=learning_rate, decay_steps=2, decay_rate=0.98
            )
            self.optimizer = tf.keras.optimizers.Adam(schedule)

    def psum(self, x, axis=None):
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, x, axis=axis)

    def run(self, fn, *args, **kwargs):
        return self.strategy.run(fn, args=args, kwargs=kwargs)

    def build(self, batch):
        self.run(tf.function(self.model.__call__), batch)
        with self.strategy.scope():
            self.optimizer.build(self.model.trainable_variables)

    @tf.function
    def train_step(self, inputs):
        batch = next(inputs) if hasattr(inputs, "__next__") else inputs
        losses = self.run(self.step_fn, batch)
        losses = {k: self.psum(v) for k, v in losses.items()}
        return losses

    @tf.function
    def step_fn(self, batch):
        with tf.GradientTape() as tape:
            outputs = self.model(batch, training=True)
            losses = self.model.losses_of(batch, outputs)
            losses["total_loss"] = tf.reduce_sum(tf.stack(list(losses.values())))
        grads = tape.gradient(losses["total_loss"], self.model.trainable_variables)
        grads, _ = tf.clip_by_global_norm(grads, self.grad_clip_norm)
        self.optimizer.apply_gradients(zip(grads, self.model.trainable_variables))
        return losses


time = np.arange(SAMPLES) / SAMPLE_RATE
pitches = np.array([30.0, 42.0, 55.0, 25.0])
audio = np.stack([np.sin(2 * np.pi * p * time) * 0.5 for p in pitches]).astype(np.float32)
features = {
    "audio": audio,
    "f0_hz": np.repeat(pitches[:, None, None], FRAMES, 1).astype(np.float32),
    "f0_scaled": np.repeat(pitches[:, None, None] / 60, FRAMES, 1).astype(np.float32),
    "ld_scaled": rng.uniform(0, 1, (4, FRAMES, 1)).astype(np.float32),
}
dataset = tf.data.Dataset.from_tensor_slices(features).repeat().batch(4, drop_remainder=True)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    model = Autoencoder()
    trainer = Trainer(model, strategy)
dataset = strategy.experimental_distribute_dataset(dataset)
dataset_iter = iter(dataset)
trainer.build(next(dataset_iter))
for w in model.trainable_variables:
    w.assign(rng.normal(0, 0.3, w.shape))
for i in range(4):
    losses = trainer.train_step(dataset_iter)
    print("step: {}\t".format(i) + "".join("{}: {:.5f}\t".format(k, v) for k, v in losses.items()))
