"""A loop that checkpoints its model, optimizer, step and iterator, and goes on where it was."""

import os
import tempfile

import numpy as np
import tensorflow as tf


class Net(tf.keras.Model):
    """A simple linear model."""

    def __init__(self):
        super(Net, self).__init__()
        self.l1 = tf.keras.layers.Dense(5, kernel_initializer="ones")

    def call(self, x):
        return self.l1(x)


def toy_dataset():
    inputs = tf.range(10.0)[:, None]
    labels = inputs * 5.0 + tf.range(5.0)[None, :]
    return tf.data.Dataset.from_tensor_slices(dict(x=inputs, y=labels)).repeat().batch(2)


def train_step(net, example, optimizer):
    """Trains `net` on `example` using `optimizer`."""
    with tf.GradientTape() as tape:
        output = net(example["x"])
        loss = tf.reduce_mean(tf.abs(output - example["y"]))
    variables = net.trainable_variables
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables))
    return loss


def train_and_checkpoint(net, manager, ckpt, iterator, opt, steps):
    ckpt.restore(manager.latest_checkpoint)
    if manager.latest_checkpoint:
        print("Restored from {}".format(os.path.basename(manager.latest_checkpoint)))
    else:
        print("Initializing from scratch.")
    for _ in range(steps):
        example = next(iterator)
        loss = train_step(net, example, opt)
        ckpt.step.assign_add(1)
        if int(ckpt.step) % 10 == 0:
            save_path = manager.save()
            print("Saved checkpoint for step {}: {}".format(int(ckpt.step), os.path.basename(save_path)))
            print("loss {:1.4f}".format(loss.numpy()))


directory = tempfile.mkdtemp()
for run in range(2):
    opt = tf.keras.optimizers.Adam(0.1)
    dataset = toy_dataset()
    iterator = iter(dataset)
    net = Net()
    net(tf.zeros([1, 1]))
    opt.build(net.trainable_variables)
    ckpt = tf.train.Checkpoint(
        step=tf.Variable(1), optimizer=opt, net=net, iterator=iterator
    )
    manager = tf.train.CheckpointManager(ckpt, directory, max_to_keep=3)
    train_and_checkpoint(net, manager, ckpt, iterator, opt, steps=25)
    print("next", next(iterator)["x"].numpy().ravel().tolist(), "step", int(ckpt.step))

print([os.path.basename(path) for path in manager.checkpoints])
names = [name for name, shape in tf.train.list_variables(tf.train.latest_checkpoint(directory))]
print("step stored", any(name.startswith("step") for name in names))
to_restore = tf.Variable(tf.zeros([5]))
fake_layer = tf.train.Checkpoint(bias=to_restore)
fake_net = tf.train.Checkpoint(l1=fake_layer)
new_root = tf.train.Checkpoint(net=fake_net)
status = new_root.restore(tf.train.latest_checkpoint(directory))
print("bias", to_restore.numpy())
status.assert_existing_objects_matched()
