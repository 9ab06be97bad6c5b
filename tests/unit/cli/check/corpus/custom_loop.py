"""A loop of one's own on several devices."""
import numpy as np
import tensorflow as tf

BATCH = 32
strategy = tf.distribute.MirroredStrategy()
print("devices:", strategy.num_replicas_in_sync)
images = np.random.rand(256, 28, 28, 1).astype("float32")
labels = np.random.randint(0, 10, 256)
train = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(256).batch(BATCH)
train = strategy.experimental_distribute_dataset(train)

with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.layers.Conv2D(8, 3, activation="relu", input_shape=(28, 28, 1)),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10),
    ])
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=tf.keras.losses.Reduction.NONE)
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    optimizer = tf.keras.optimizers.Adam(lr=1e-3)  #: differs learning_rate
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model)


def compute_loss(labels, predictions):
    per_example = loss_object(labels, predictions)
    return tf.nn.compute_average_loss(per_example, global_batch_size=BATCH)


def train_step(inputs):
    x, y = inputs
    with tf.GradientTape() as tape:
        predictions = model(x, training=True)
        loss = compute_loss(y, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    accuracy.update_state(y, predictions)
    return loss


@tf.function
def distributed_step(inputs):
    losses = strategy.run(train_step, args=(inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


for epoch in range(3):
    total, steps = 0.0, 0
    for batch in train:
        total += distributed_step(batch)
        steps += 1
    template = "Epoch {}, loss {}, accuracy {}"
    print(template.format(epoch + 1, total / steps, accuracy.result() * 100))
    accuracy.reset_states()  #: differs reset_state
    checkpoint.save("/tmp/ckpt/model")
