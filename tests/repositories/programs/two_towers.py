"""A recommender with a query tower and an item tower, trained with in-batch negatives."""

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(13)
USERS, ITEMS, DIM = 12, 20, 4
users = np.array([f"user_{i}" for i in range(USERS)])
items = np.array([f"item_{i}" for i in range(ITEMS)])
pairs = {
    "user_id": users[rng.randint(USERS, size=64)],
    "item_id": items[rng.randint(ITEMS, size=64)],
}


def make_lookup(words):
    initializer = tf.lookup.KeyValueTensorInitializer(
        list(words), list(range(1, len(words) + 1)), key_dtype=tf.string, value_dtype=tf.int64
    )
    return tf.lookup.StaticHashTable(initializer, default_value=0)


user_lookup, item_lookup = make_lookup(users), make_lookup(items)
ratings = tf.data.Dataset.from_tensor_slices(pairs)
ratings = ratings.map(
    lambda x: {"user": user_lookup.lookup(x["user_id"]), "item": item_lookup.lookup(x["item_id"])}
)
train = ratings.take(48).batch(16)
test = ratings.skip(48).batch(16)


class TwoTowerModel(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.query_tower = tf.keras.Sequential(
            [tf.keras.layers.Embedding(USERS + 1, DIM), tf.keras.layers.Dense(DIM)]
        )
        self.candidate_tower = tf.keras.Sequential(
            [tf.keras.layers.Embedding(ITEMS + 1, DIM), tf.keras.layers.Dense(DIM)]
        )
        self.accuracy = tf.keras.metrics.SparseTopKCategoricalAccuracy(k=5, name="top_5")

    def call(self, features):
        return self.query_tower(features["user"]), self.candidate_tower(features["item"])

    def compute_scores(self, features):
        query, candidate = self(features)
        scores = tf.linalg.matmul(query, candidate, transpose_b=True)
        labels = tf.range(tf.shape(scores)[0])
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        return tf.reduce_sum(loss), labels, scores

    def train_step(self, features):
        with tf.GradientTape() as tape:
            loss, labels, scores = self.compute_scores(features)
            regularization_loss = sum(self.losses)
            total_loss = loss + regularization_loss
        gradients = tape.gradient(total_loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.accuracy.update_state(labels, scores)
        metrics = {metric.name: metric.result() for metric in self.metrics}
        metrics["loss"] = loss
        metrics["total_loss"] = total_loss
        return metrics

    def test_step(self, features):
        loss, labels, scores = self.compute_scores(features)
        self.accuracy.update_state(labels, scores)
        metrics = {metric.name: metric.result() for metric in self.metrics}
        metrics["total_loss"] = loss
        return metrics


model = TwoTowerModel()
model.compile(optimizer=tf.keras.optimizers.SGD(0.05))
model({"user": np.zeros(2, np.int64), "item": np.zeros(2, np.int64)})
model.set_weights([rng.normal(0, 0.5, w.shape) for w in model.get_weights()])
history = model.fit(train, epochs=3, verbose=0)
print("top_5", [float(x) for x in history.history["top_5"]])
print("total_loss", [float(x) for x in history.history["total_loss"]])
result = model.evaluate(test, return_dict=True, verbose=0)
print("test", float(result["total_loss"]), float(result["top_5"]))

query = model.query_tower(user_lookup.lookup(tf.constant(["user_3"])))
every = model.candidate_tower(tf.range(1, ITEMS + 1))
scores, best = tf.math.top_k(tf.matmul(query, every, transpose_b=True), k=3)
print("best", scores.numpy().tolist(), [items[i] for i in best.numpy()[0]])
