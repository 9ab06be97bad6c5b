"""Many steps in one function: the loop is over tf.range."""
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
data = tf.data.Dataset.range(1024).map(lambda i: tf.cast(i, tf.float32))  #: differs NumPy
data = data.repeat().batch(8, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
iterator = iter(strategy.experimental_distribute_dataset(data))

with strategy.scope():
    weight = tf.Variable(1.0, aggregation=tf.VariableAggregation.MEAN)
    steps_done = tf.Variable(0, dtype=tf.int64, trainable=False)  #: differs 64
    loss_metric = tf.keras.metrics.Mean("loss", dtype=tf.float32)


def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(weight * x - 3.0))
    gradient = tape.gradient(loss, weight)
    gradient = tf.distribute.get_replica_context().all_reduce("mean", gradient)
    weight.assign_sub(0.01 * gradient)
    loss_metric.update_state(loss)


@tf.function
def train_steps(iterator, steps):
    for _ in tf.range(steps):
        strategy.run(step, args=(next(iterator),))


@tf.function
def train_until(iterator, most):
    done = tf.constant(0)
    while done < most:
        strategy.run(step, args=(iterator.get_next(),))
        done += 1
        if weight > 2.9:
            break
    return done


for _ in range(4):
    train_steps(iterator, tf.constant(100, dtype=tf.int32))
    steps_done.assign_add(100)
    print(int(steps_done), loss_metric.result().numpy())
    loss_metric.reset_state()
print(train_until(iterator, tf.convert_to_tensor(50)))
