"""tf comes by a star import of a module that was not given."""
from math import *
from my_library.everything import *  #: unknown

print(sqrt(2.0), tf.zeros([3]))


class Net(tf.keras.Model):
    def call(self, x):
        return tf.raw_ops.Relu(features=x)  #: missing
