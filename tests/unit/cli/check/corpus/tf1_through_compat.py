"""TensorFlow 1 through compat.v1."""
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()  #: missing


def conv(x, filters, scope):
    with tf.variable_scope(scope):  #: missing Module
        kernel = tf.get_variable("kernel", [3, 3, int(x.shape[-1]), filters])
        return tf.nn.relu(tf.nn.conv2d(x, kernel, strides=[1, 1, 1, 1], padding="SAME"))  #: missing tf.nn


config = tf.ConfigProto()
config.gpu_options.allow_growth = True  #: missing set_memory_growth


def main(_):
    graph = tf.Graph()  #: missing
    with graph.as_default():  #: (missing)
        images = tf.placeholder(tf.float32, (None, 32, 32, 3))  #: missing
        net = conv(images, 16, "first")
        net = tf.layers.dense(tf.reshape(net, [-1, 16 * 32 * 32]), 10)  #: missing
        assign = tf.assign_add(tf.train.get_global_step(), 1)  #: missing
        with tf.control_dependencies([assign]):  #: missing
            out = tf.identity(net)  #: missing
    with tf.train.MonitoredTrainingSession(checkpoint_dir="/tmp/x") as sess:  #: missing
        while not sess.should_stop():  #: (missing)
            sess.run(out)  #: (missing)


if __name__ == "__main__":
    tf.app.run(main)  #: missing absl
