"""A star import of TensorFlow itself and of Keras."""
from tensorflow import *  #: unknown
from tensorflow.keras.layers import *  #: unknown

a = constant([1.0, 2.0])  #: unknown
b = reduce_sum(a)  #: unknown
print(len(str(b)), max(1, 2))
layer = Dense(3)  #: unknown
