"""A siamese network with a triplet loss and a custom distance layer."""

import numpy as np
import tensorflow as tf
from tensorflow.keras import Model, layers, losses, metrics, optimizers

rng = np.random.RandomState(21)


class DistanceLayer(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)

    def call(self, anchor, positive, negative):
        ap_distance = tf.reduce_sum(tf.square(anchor - positive), -1)
        an_distance = tf.reduce_sum(tf.square(anchor - negative), -1)
        return (ap_distance, an_distance)


embedding = tf.keras.Sequential(
    [
        layers.Input((8, 8, 1)),
        layers.Conv2D(4, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(6, activation="relu"),
        layers.BatchNormalization(),
        layers.Dense(4),
    ],
    name="Embedding",
)
embedding.set_weights(
    [
        rng.normal(0, 0.4, w.shape) if w.ndim > 1 else w
        for w in embedding.get_weights()
    ]
)
inputs = [layers.Input(name=n, shape=(8, 8, 1)) for n in ("anchor", "positive", "negative")]
distances = DistanceLayer()(*(embedding(x) for x in inputs))
siamese_network = Model(inputs=inputs, outputs=distances)


class SiameseModel(Model):
    def __init__(self, siamese_network, margin=0.5):
        super().__init__()
        self.siamese_network = siamese_network
        self.margin = margin
        self.loss_tracker = metrics.Mean(name="loss")

    def call(self, inputs):
        return self.siamese_network(inputs)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self._compute_loss(data)
        gradients = tape.gradient(loss, self.siamese_network.trainable_weights)
        self.optimizer.apply_gradients(
            zip(gradients, self.siamese_network.trainable_weights)
        )
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    def test_step(self, data):
        loss = self._compute_loss(data)
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    def _compute_loss(self, data):
        ap_distance, an_distance = self.siamese_network(data)
        loss = ap_distance - an_distance
        loss = tf.maximum(loss + self.margin, 0.0)
        return loss

    @property
    def metrics(self):
        return [self.loss_tracker]


anchors = rng.rand(24, 8, 8, 1).astype("float32")
positives = (anchors + rng.normal(0, 0.05, anchors.shape)).astype("float32")
negatives = rng.rand(24, 8, 8, 1).astype("float32")


def flip(anchor, positive, negative):
    return anchor, tf.image.flip_left_right(positive), negative


dataset = tf.data.Dataset.zip(
    tuple(tf.data.Dataset.from_tensor_slices(x) for x in (anchors, positives, negatives))
)
dataset = dataset.map(flip)
train_dataset = dataset.take(16).batch(4, drop_remainder=False).prefetch(tf.data.AUTOTUNE)
val_dataset = dataset.skip(16).batch(4)

siamese_model = SiameseModel(siamese_network)
siamese_model.compile(optimizer=optimizers.Adam(0.005), weighted_metrics=[])
history = siamese_model.fit(train_dataset, epochs=3, validation_data=val_dataset, verbose=0)
print("loss", [float(x) for x in history.history["loss"]])
print("val_loss", [float(x) for x in history.history["val_loss"]])

anchor, positive, negative = next(iter(train_dataset))
cosine_similarity = metrics.CosineSimilarity()
positive_similarity = cosine_similarity(embedding(anchor), embedding(positive))
print("Positive similarity:", positive_similarity.numpy())
cosine_similarity.reset_state()
print("Negative similarity", float(cosine_similarity(embedding(anchor), embedding(negative))))


def contrastive(y_true, y_pred, margin=1.0):
    square_pred = tf.math.square(y_pred)
    margin_square = tf.math.square(tf.math.maximum(margin - (y_pred), 0))
    return tf.math.reduce_mean((1 - y_true) * square_pred + (y_true) * margin_square)


print("contrastive", float(contrastive(tf.constant([0.0, 1.0]), tf.constant([0.3, 0.4]))))
print("cosine", float(losses.CosineSimilarity()(anchors[0, 0], positives[0, 0])))
