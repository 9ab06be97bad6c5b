"""A research model: distillation by `train_step(self, data)` on two replicas, with sample weights."""

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(26)


class Distiller(tf.keras.Model):
    def __init__(self, student, teacher):
        super().__init__()
        self.teacher = teacher
        self.student = student
        self.kl = tf.keras.losses.KLDivergence(reduction="none")
        self.loss_tracker = tf.keras.metrics.Mean(name="distillation_loss")

    @property
    def metrics(self):
        metrics = super().metrics
        metrics.append(self.loss_tracker)
        return metrics

    def compile(self, optimizer, metrics, student_loss_fn, alpha=0.1, temperature=3):
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss_fn = student_loss_fn
        self.alpha = alpha
        self.temperature = temperature

    def call(self, inputs, training=False):
        return self.student(inputs, training=training)

    def train_step(self, data):
        if len(data) == 3:
            x, y, sample_weight = data
        else:
            sample_weight = None
            x, y = data
        teacher_predictions = self.teacher(x, training=False)
        with tf.GradientTape() as tape:
            student_predictions = self.student(x, training=True)
            student_loss = self.student_loss_fn(
                y, student_predictions, sample_weight=sample_weight
            )
            kl = self.kl(
                tf.nn.softmax(teacher_predictions / self.temperature, axis=1),
                tf.nn.softmax(student_predictions / self.temperature, axis=1),
            )
            distillation_loss = tf.nn.compute_average_loss(kl) * self.temperature**2
            loss = self.alpha * student_loss + (1 - self.alpha) * distillation_loss
        trainable_vars = self.student.trainable_variables
        gradients = tape.gradient(loss, trainable_vars)
        gradients = [
            g if g is None else tf.clip_by_norm(g, 2.0) for g in gradients
        ]
        self.optimizer.apply_gradients(zip(gradients, trainable_vars))
        self.loss_tracker.update_state(distillation_loss)
        for metric in self.metrics:
            if metric.name not in ("loss", "distillation_loss"):
                metric.update_state(y, student_predictions)
        return {m.name: m.result() for m in self.metrics if m.name != "loss"}

    def test_step(self, data):
        x, y = data
        y_prediction = self.student(x, training=False)
        student_loss = self.student_loss_fn(y, y_prediction)
        for metric in self.metrics:
            if metric.name not in ("loss", "distillation_loss"):
                metric.update_state(y, y_prediction)
        results = {m.name: m.result() for m in self.metrics if m.name != "loss"}
        results.update({"student_loss": student_loss})
        return results


def mlp(units):
    model = tf.keras.Sequential([tf.keras.layers.Input((6,))])
    for n in units:
        model.add(tf.keras.layers.Dense(n, activation="relu"))
    model.add(tf.keras.layers.Dense(3))
    model.set_weights([rng.normal(0, 0.5, w.shape) for w in model.get_weights()])
    return model


x = rng.normal(size=(40, 6)).astype("float32")
y = rng.randint(0, 3, 40)
weights = rng.uniform(0.5, 1.5, 40).astype("float32")
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    distiller = Distiller(student=mlp([5]), teacher=mlp([8, 8]))
    distiller.compile(
        optimizer=tf.keras.optimizers.SGD(0.1, momentum=0.9),
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        student_loss_fn=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
distiller.build((None, 6))
history = distiller.fit(
    x, y, sample_weight=weights, batch_size=8, epochs=3, shuffle=False, verbose=0
)
print("distillation_loss", [float(v) for v in history.history["distillation_loss"]])
print("accuracy", [float(v) for v in history.history["accuracy"]])
result = distiller.evaluate(x[:16], y[:16], batch_size=8, verbose=0, return_dict=True)
print("evaluated", sorted(result), float(result["accuracy"]))
print("student", [float(np.abs(w).sum()) for w in distiller.student.get_weights()])
