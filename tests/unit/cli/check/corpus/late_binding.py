"""TensorFlow is imported late, guarded, or by its name as a text."""
import importlib

try:
    import tensorflow as tf
except ImportError:
    tf = None

HAS_TF = tf is not None


def build():
    import tensorflow as tensor
    return tensor.zeros([2]), tensor.quantization.fake_quant_with_min_max_args([1.0])  #: missing


def build_by_name():
    module = importlib.import_module("tensorflow")
    return module.ones([2]), module.sets.size(None)  #: missing


def by_attribute(name, kind="relu"):
    f = getattr(tf.nn, name)  #: unknown
    g = getattr(tf.nn, "relu", None)
    h = getattr(tf.math, "polyval")
    return f, g, h, getattr(tf.keras.optimizers, "Adam")(0.1)


def choose(flag):
    op = tf.reduce_max if flag else tf.reduce_min
    return op([1.0, 2.0]), op.__name__, tf.nn.relu.__name__, tf.Variable.__doc__


if HAS_TF and tf.__version__ >= "2.0":  #: differs version
    print(tf.version.VERSION)  #: missing
