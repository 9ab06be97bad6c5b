"""TFRecord files written and read as repositories do it: features, parsing, interleave, decode."""

import os
import tempfile

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(33)
folder = tempfile.mkdtemp()


def _bytes_feature(value):
    """Returns a bytes_list from a string / byte."""
    if isinstance(value, type(tf.constant(0))):
        value = value.numpy()
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _float_feature(value):
    return tf.train.Feature(float_list=tf.train.FloatList(value=value))


def _int64_feature(value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def serialize_example(image, label, numbers):
    feature = {
        "image/encoded": _bytes_feature(tf.io.encode_png(image).numpy()),
        "image/class/label": _int64_feature(label),
        "image/numbers": _float_feature(numbers),
        "image/array": _bytes_feature(tf.io.serialize_tensor(np.float32(numbers)).numpy()),
    }
    example_proto = tf.train.Example(features=tf.train.Features(feature=feature))
    return example_proto.SerializeToString()


for shard in range(3):
    filename = os.path.join(folder, "train-%.5d-of-%.5d" % (shard, 3))
    with tf.io.TFRecordWriter(filename) as writer:
        for i in range(4):
            image = rng.randint(0, 256, (4, 4, 3)).astype(np.uint8)
            writer.write(serialize_example(image, (shard + i) % 3, rng.normal(size=i % 3)))

FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64, default_value=-1),
    "image/numbers": tf.io.VarLenFeature(tf.float32),
    "image/array": tf.io.FixedLenFeature([], tf.string),
}


def parse(serialized):
    parsed = tf.io.parse_single_example(serialized, FEATURES)
    image = tf.io.decode_png(parsed["image/encoded"], channels=3)
    image = tf.cast(image, tf.float32) / 127.5 - 1.0
    image = tf.reshape(image, [4, 4, 3])
    numbers = tf.sparse.to_dense(parsed["image/numbers"])
    array = tf.io.parse_tensor(parsed["image/array"], out_type=tf.float32)
    total = tf.reduce_sum(numbers) + tf.reduce_sum(array)
    label = tf.cast(parsed["image/class/label"], tf.int32)
    return image, tf.one_hot(label, 3), total


files = tf.data.Dataset.list_files(os.path.join(folder, "train-*"), shuffle=False)
dataset = files.interleave(
    tf.data.TFRecordDataset, cycle_length=3, block_length=1, num_parallel_calls=tf.data.AUTOTUNE,
    deterministic=True,
)
dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
dataset = dataset.batch(4, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

model = tf.keras.Sequential(
    [tf.keras.layers.Input((4, 4, 3)), tf.keras.layers.Flatten(), tf.keras.layers.Dense(3)]
)
model.set_weights([rng.normal(0, 0.1, w.shape) for w in model.get_weights()])
optimizer = tf.keras.optimizers.SGD(0.1)


@tf.function(input_signature=(tf.TensorSpec([None, 4, 4, 3]), tf.TensorSpec([None, 3])))
def train_step(images, labels):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(
            tf.nn.softmax_cross_entropy_with_logits(labels, model(images, training=True))
        )
    grads = tape.gradient(loss, model.trainable_weights)
    optimizer.apply_gradients(zip(grads, model.trainable_weights))
    return loss


for epoch in range(2):
    for images, targets, totals in dataset:
        print(epoch, float(train_step(images, targets)), tf.reduce_sum(totals).numpy())

raw_dataset = tf.data.TFRecordDataset([os.path.join(folder, "train-00001-of-00003")])
for raw_record in raw_dataset.take(1):
    example = tf.train.Example()
    example.ParseFromString(raw_record.numpy())
    print("label", example.features.feature["image/class/label"].int64_list.value[0])
print("records", sum(1 for _ in raw_dataset))
