"""Records are written, read, parsed and batched."""
import tensorflow as tf


def _bytes(value):
    if isinstance(value, type(tf.constant(0))):
        value = value.numpy()
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _ints(values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def _floats(values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def write(path, examples):
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    with tf.io.TFRecordWriter(path, options) as writer:
        for image, label, box in examples:
            features = {"image": _bytes(image), "label": _ints([label]), "box": _floats(box)}
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64, default_value=0),
    "box": tf.io.VarLenFeature(tf.float32),  #: differs dense
    "words": tf.io.FixedLenSequenceFeature([], tf.string, allow_missing=True),
    "ragged": tf.io.RaggedFeature(tf.int64),  #: missing VarLenFeature
}


def parse(serialized):
    parsed = tf.io.parse_single_example(serialized, FEATURES)
    image = tf.io.decode_jpeg(parsed["image"], channels=3)
    image = tf.image.resize(tf.image.convert_image_dtype(image, tf.float32), [224, 224])
    image = tf.image.random_flip_left_right(image)
    box = tf.sparse.to_dense(parsed["box"])  #: differs
    return tf.reshape(image, [224, 224, 3]), tf.cast(parsed["label"], tf.int32), box  #: differs limit


def load(pattern, batch):
    files = tf.data.Dataset.list_files(pattern, shuffle=True)
    data = files.interleave(  #: differs NumPy
        lambda f: tf.data.TFRecordDataset(f, compression_type="GZIP"),
        cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.experimental_deterministic = False  #: differs
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = data.with_options(options).cache()
    return (
        data
        .shuffle(1024)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE)  #: differs NumPy
        .padded_batch(batch, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


print(load("gs://bucket/train-*.tfrecord", 128).element_spec)
raw = tf.data.TFRecordDataset(tf.io.gfile.glob("*.tfrecord")).take(1)
for one in raw:
    print(tf.train.Example.FromString(one.numpy()))
