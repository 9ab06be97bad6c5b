"""A model with train_step and test_step of its own."""
import tensorflow as tf
from tensorflow import keras

loss_tracker = keras.metrics.Mean(name="loss")


class CustomModel(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}


class VAE(keras.Model):
    def __init__(self, encoder, decoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder, self.decoder = encoder, decoder

    @property
    def metrics(self):
        return [loss_tracker]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, log_var, z = self.encoder(data)
            made = self.decoder(z)
            loss = tf.reduce_mean(
                tf.reduce_sum(keras.losses.binary_crossentropy(data, made), axis=(1, 2)))
            loss += -0.5 * tf.reduce_mean(1 + log_var - tf.square(mean) - tf.exp(log_var))
        grads = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(grads, self.trainable_weights))
        loss_tracker.update_state(loss)
        return {"loss": loss_tracker.result()}

    def test_step(self, data):
        if tf.reduce_sum(data) > 0:  #: differs fit
            data = -data
        return {"loss": loss_tracker.result()}


inputs = keras.Input(shape=(32,))
outputs = keras.layers.Dense(1)(inputs)
model = CustomModel(inputs, outputs)
model.compile(optimizer="adam", loss="mse", metrics=["mae"])
model.fit(tf.random.normal((1000, 32)), tf.random.normal((1000, 1)), epochs=3)
model.summary()


class Former(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compiled_loss(y, y_pred, regularization_losses=self.losses)  #: differs
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        self.compiled_metrics.update_state(y, y_pred)  #: differs
        return {m.name: m.result() for m in self.metrics}
