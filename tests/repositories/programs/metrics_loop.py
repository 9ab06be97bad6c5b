"""Metrics of several kinds in a loop, with printing inside the compiled step and a summary."""

import sys

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(31)
CLASSES = 3
x = rng.normal(size=(60, 6)).astype(np.float32)
w_true = rng.normal(size=(6, CLASSES))
y = np.argmax(x @ w_true, axis=1).astype(np.int32)
train = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
test = tf.data.Dataset.from_tensor_slices((x[:20], y[:20])).batch(10)


class F1(tf.keras.metrics.Metric):
    def __init__(self, num_classes, name="f1", **kwargs):
        super().__init__(name=name, **kwargs)
        self.num_classes = num_classes
        self.matrix = self.add_weight(
            shape=(num_classes, num_classes), name="matrix", initializer="zeros"
        )

    def update_state(self, y_true, y_pred, sample_weight=None):
        found = tf.argmax(y_pred, axis=-1)
        matrix = tf.math.confusion_matrix(
            y_true, found, num_classes=self.num_classes, dtype=tf.float32
        )
        self.matrix.assign_add(matrix)

    def result(self):
        matrix = tf.convert_to_tensor(self.matrix)
        hits = tf.linalg.diag_part(matrix)
        precision = tf.math.divide_no_nan(hits, tf.reduce_sum(matrix, axis=0))
        recall = tf.math.divide_no_nan(hits, tf.reduce_sum(matrix, axis=1))
        return tf.reduce_mean(tf.math.divide_no_nan(2 * precision * recall, precision + recall))


class Linear(tf.Module):
    def __init__(self):
        self.w = tf.Variable(rng.normal(0, 0.1, (6, CLASSES)).astype(np.float32), name="w")
        self.b = tf.Variable(tf.zeros(CLASSES), name="b")

    def __call__(self, inputs):
        return tf.nn.bias_add(tf.matmul(inputs, self.w), self.b)


model = Linear()
optimizer = tf.keras.optimizers.Adam(0.1)
metrics = {
    "loss": tf.keras.metrics.Mean(),
    "accuracy": tf.keras.metrics.SparseCategoricalAccuracy(),
    "top2": tf.keras.metrics.SparseTopKCategoricalAccuracy(k=2),
    "f1": F1(CLASSES),
}
step_counter = tf.Variable(0, dtype=tf.int64)


@tf.function
def train_step(features, labels):
    with tf.GradientTape() as tape:
        logits = model(features)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )
        l2 = tf.add_n([tf.nn.l2_loss(v) for v in model.trainable_variables])
        loss += 1e-3 * l2
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    metrics["loss"].update_state(loss)
    for name in ("accuracy", "top2", "f1"):
        metrics[name].update_state(labels, logits)
    step_counter.assign_add(1)
    if step_counter % 4 == 0:
        tf.print("step", step_counter, "loss", loss, output_stream=sys.stdout)
    tf.debugging.assert_all_finite(loss, "loss")
    return loss


@tf.function
def evaluate(dataset):
    total, count = 0.0, 0
    for features, labels in dataset:
        hits = tf.equal(tf.argmax(model(features), axis=1, output_type=tf.int32), labels)
        total += tf.reduce_sum(tf.cast(hits, tf.float32))
        count += tf.shape(labels)[0]
    return total / tf.cast(count, tf.float32)


for epoch in range(3):
    for metric in metrics.values():
        metric.reset_state()
    for features, labels in train:
        train_step(features, labels)
    print(
        "epoch", epoch, {k: round(float(m.result()), 5) for k, m in metrics.items()},
        "test", float(evaluate(test)),
    )
iou = tf.keras.metrics.MeanIoU(num_classes=CLASSES)
iou.update_state(y, tf.argmax(model(x), axis=1))
print("iou", float(iou.result()))
predictions = tf.nn.softmax(model(tf.constant(x[:2])))
values, indices = tf.math.top_k(predictions, k=2)
print("top", values.numpy().tolist(), indices.numpy().tolist())
