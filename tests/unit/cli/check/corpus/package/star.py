"""Everything comes through a star."""
from .common import *
from package.tools.losses import *

x = tf.constant([1.0])
y = tf.raw_ops.MatMul(a=x, b=x)  #: missing
z = K.get_value(y)  #: missing numpy()
net = keras.Sequential([keras.layers.Dense(3)])
net.fit_generator(np.zeros(3))  #: missing model.fit
print(to_float(x).numpy(), dice(x, y), FLOAT)
