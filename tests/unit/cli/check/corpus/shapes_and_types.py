"""Shapes, element types and methods of tensors."""
import numpy as np
import tensorflow as tf

x = tf.random.normal([4, 8, 3])
print(x.shape, x.shape[0], len(x.shape), x.shape[-1], x.ndim, x.dtype)
batch, length, depth = x.shape
print(x.get_shape().as_list(), x.get_shape()[1])
print(x.shape.as_list())  #: missing get_shape
print(x.shape.rank, x.shape.ndims)  #: missing
static = x.shape.num_elements()  #: missing
if x.shape.is_fully_defined():  #: missing
    print("known")
y = tf.cast(tf.ones([3]), x.dtype)
small = -x.dtype.max  #: missing finfo
big = tf.float32.max  #: missing finfo
kind = x.dtype.as_numpy_dtype  #: missing
print(tf.float32.as_numpy_dtype, tf.int32.min)  #: missing
print(x.device)  #: differs
print(x.name)  #: missing
x.set_shape([4, 8, 3])
v = tf.Variable(tf.zeros([2, 3]))
print(v.shape.as_list(), v.shape.rank, v.dtype, v.name, v.numpy())
v.assign(tf.ones([2, 3])).numpy()
long = tf.constant([1, 2], dtype=tf.int64)  #: differs 64
wide = tf.constant(np.pi, tf.float64)  #: differs 64
plain = tf.constant([1.0, 2.0])
added = plain + tf.constant([1.0, 2.0])
listed = plain * [1.0, 2.0]
equal = plain == [1.0, 2.0]
flat = tf.reshape(x, x.shape[:-2] + [24])  #: missing list(
total = tf.cast(x, tf.int64)  #: differs
half = tf.cast(x, tf.float16), tf.cast(x, "float32"), tf.cast(x, dtype=tf.bfloat16)
spots = tf.where(x > 0)  #: differs int32
kept = tf.where(x > 0, x, tf.zeros_like(x))
unique, _ = tf.unique(tf.constant([1, 1, 2]))
picked = tf.boolean_mask(x, x > 0)
print(isinstance(x, tf.Tensor), tf.is_tensor(x), tf.rank(x), tf.size(x))
print(x.numpy().tolist(), float(x[0, 0, 0]), x[0].numpy(), x.ref())  #: missing
print(tf.TensorShape([None, 3]).as_list(), tf.as_dtype("float32"), tf.int32)
