"""A program of TensorFlow 1: placeholders, a graph and a session."""
import numpy as np
import tensorflow as tf

flags = tf.app.flags  #: missing absl
flags.DEFINE_integer("steps", 100, "how many")  #: missing
tf.logging.set_verbosity(tf.logging.INFO)  #: missing logging
tf.reset_default_graph()  #: missing
x = tf.placeholder(tf.float32, [None, 784], name="x")  #: missing argument
y = tf.placeholder(tf.int64, [None])  #: missing argument
with tf.variable_scope("net", reuse=tf.AUTO_REUSE):  #: missing
    w = tf.get_variable("w", [784, 10], initializer=tf.zeros_initializer())  #: missing
    b = tf.Variable(tf.zeros([10]))
logits = tf.matmul(x, w) + b
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
global_step = tf.train.get_or_create_global_step()  #: differs model_fn
train_op = tf.train.GradientDescentOptimizer(0.5).minimize(loss, global_step=global_step)  #: missing
correct = tf.equal(tf.argmax(logits, 1), y)  #: differs
accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))
tf.summary.scalar("loss", loss)
merged = tf.summary.merge_all()  #: missing
saver = tf.train.Saver(max_to_keep=3)  #: missing Checkpoint
config = tf.ConfigProto(allow_soft_placement=True)  #: missing
config.gpu_options.allow_growth = True  #: (missing)
with tf.Session(config=config) as sess:  #: missing
    sess.run(tf.global_variables_initializer())  #: missing
    for _ in range(100):
        batch = {x: np.zeros((32, 784)), y: np.zeros(32)}
        sess.run(train_op, feed_dict=batch)  #: (missing)
    print(tf.log(tf.to_float(3)))  #: missing
    saver.save(sess, "/tmp/model")  #: (missing)
