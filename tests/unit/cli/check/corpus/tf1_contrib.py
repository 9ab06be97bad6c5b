"""TensorFlow 1 with contrib and slim."""
import tensorflow as tf
import tensorflow.contrib.slim as slim  #: missing
from tensorflow.contrib import rnn  #: missing
from tensorflow.python.ops import array_ops  #: missing private
from tensorflow.python.keras import backend as K  #: missing private
import tf_slim  #: missing

strategy = tf.contrib.distribute.MirroredStrategy()  #: renamed
reader = tf.python_io.TFRecordWriter("x")  #: renamed
found = tf.random_uniform([3], seed=1)  #: renamed
tf.set_random_seed(1)  #: renamed
files = tf.gfile.Glob("*.txt")  #: missing
cell = rnn.BasicLSTMCell(32)  #: missing
net = slim.conv2d(None, 32, [3, 3], scope="conv1")  #: missing
value = tf.contrib.layers.xavier_initializer()  #: missing
part = tf.concat([found, found], 0)
top = tf.nn.top_k(found, k=1)
same = array_ops.identity(found)
K.set_image_data_format("channels_last")
