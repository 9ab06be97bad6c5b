"""Names that the program defines on TensorFlow's objects."""
import tensorflow as tf


class Mixin:
    def describe(self):
        return self.title

    title = "mixin"


class Net(Mixin, tf.keras.Model):
    VERSION = 3

    def __init__(self, size: int):
        super().__init__()
        self.size = size
        self.built_by = "me"
        self.inner = tf.keras.layers.Dense(size)
        self.inner.tag = "first"

    def call(self, x):
        return self.inner(x)

    @classmethod
    def make(cls, size):
        made = cls(size)
        made.origin = cls.__name__
        return made

    @property
    def doubled(self):
        return self.size * 2


class Wide(Net):
    def describe(self):
        return super().describe() + self.built_by


net = Net.make(3)
wide = Wide(4)
wide.notes = ["a"]
print(net.describe(), net.doubled, net.VERSION, net.size, net.__class__.__name__)
print(wide.describe(), wide.built_by, wide.notes, wide.inner.tag, wide.title)
weight = tf.Variable(1.0)
weight.owner = "net"
print(weight.owner, weight.name, weight.__dict__)
data = tf.data.Dataset.range(3)
data.label = "numbers"
print(data.label, type(data).__name__, data.__len__())
step = tf.function(lambda x: x + 1)
step.calls = 0
step.calls += 1
net.compile("sgd", "mse")
history = net.fit(tf.ones([2, 3]), tf.ones([2, 3]))
print(history.history, step.__name__)


def tf_like(tf):
    return tf.anything.at.all()
