"""Metrics, losses and constraints of one's own for Keras."""
import tensorflow as tf
import tensorflow.keras.backend as K
from tensorflow.keras import backend, losses, metrics


class F1(metrics.Metric):
    def __init__(self, name="f1", **kwargs):
        super().__init__(name=name, **kwargs)
        self.tp = self.add_weight(name="tp", initializer="zeros")
        self.fp = self.add_weight("fp", initializer="zeros")  #: differs name

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_pred = tf.cast(y_pred > 0.5, self.dtype)
        y_true = tf.cast(y_true, self.dtype)
        self.tp.assign_add(tf.reduce_sum(y_true * y_pred))
        self.fp.assign_add(tf.reduce_sum((1 - y_true) * y_pred))

    def result(self):
        return self.tp / (self.tp + self.fp + K.epsilon())

    def reset_state(self):
        self.tp.assign(0.0)
        for v in self.variables:
            v.assign(tf.zeros_like(v))


class Contrastive(losses.Loss):
    def __init__(self, margin=1.0, reduction=losses.Reduction.AUTO):
        super().__init__(reduction=reduction)
        self.margin = margin

    def call(self, y_true, y_pred):
        near = y_true * K.square(y_pred)
        far = (1 - y_true) * K.square(K.maximum(self.margin - y_pred, 0))
        return K.mean(near + far)


def dice(y_true, y_pred):
    y_true, y_pred = K.flatten(y_true), K.flatten(y_pred)  #: missing
    return 1 - 2 * K.sum(y_true * y_pred) / (K.sum(y_true) + K.sum(y_pred) + K.epsilon())


def distance(x):
    return K.sqrt(K.sum(K.square(x), axis=-1, keepdims=True)), backend.int_shape(x)  #: missing


auc = metrics.AUC(curve="PR", num_thresholds=100)
auc.update_state([0, 1], [0.2, 0.8])
print(auc.result().numpy(), auc.name, metrics.MeanIoU(num_classes=2).name)
loss = losses.CategoricalCrossentropy(label_smoothing=0.1, reduction="none")
print(loss([[0.0, 1.0]], [[0.2, 0.8]]), losses.mse([1.0], [2.0]), losses.get("mae"))
