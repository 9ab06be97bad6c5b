"""An input pipeline of image files with augmentation."""
import os
import tensorflow as tf

AUTOTUNE = tf.data.experimental.AUTOTUNE
MEAN = tf.constant([0.485, 0.456, 0.406], shape=[1, 1, 3])


def decode(path, label):
    image = tf.io.read_file(path)
    image = tf.image.decode_jpeg(image, channels=3, dct_method="INTEGER_ACCURATE")
    return tf.image.convert_image_dtype(image, tf.float32), label


def decode_any(path):
    image = tf.image.decode_png(tf.io.read_file(path))
    image.set_shape([None, None, 3])
    return tf.cast(image, tf.float32) / 255.0


def augment(image, label):
    if tf.random.uniform(()) > 0.5:
        image = tf.image.flip_left_right(image)
    image = tf.image.random_brightness(image, max_delta=0.2)
    image = tf.image.random_crop(image, [200, 200, 3])
    image = tf.image.stateless_random_contrast(image, 0.8, 1.2, seed=(1, 2))
    image = tf.image.rot90(image, k=tf.random.uniform([], 0, 4, tf.int32))
    image = tf.image.resize_with_crop_or_pad(image, 224, 224)
    image = tf.clip_by_value(image, 0.0, 1.0)
    return (image - MEAN) / 0.225, label


def crop(image):
    shape = tf.shape(image)
    size = tf.minimum(shape[0], shape[1])
    image = tf.image.crop_to_bounding_box(image, 0, 0, size, size)
    return tf.image.per_image_standardization(tf.image.central_crop(image, 0.8))


def get_label(path):
    parts = tf.strings.split(path, os.path.sep)  #: differs ragged
    return tf.argmax(tf.cast(parts[-2] == ["cats", "dogs"], tf.int32))  #: differs


files = tf.data.Dataset.list_files("data/*/*.jpg", shuffle=False)
data = files.map(lambda p: (p, get_label(p)), num_parallel_calls=AUTOTUNE)  #: differs NumPy
data = data.map(decode, num_parallel_calls=AUTOTUNE).map(augment)  #: differs NumPy
data = data.apply(tf.data.experimental.ignore_errors())
data = data.filter(lambda x, y: tf.reduce_all(tf.math.is_finite(x)))  #: differs NumPy
train, valid = data.skip(100), data.take(100)
print(tf.data.experimental.cardinality(data), data.cardinality().numpy())
folder = tf.keras.utils.image_dataset_from_directory("data", image_size=(64, 64), batch_size=8)
print(folder.class_names)
tf.io.write_file("out.png", tf.io.encode_png(tf.zeros([4, 4, 3], tf.uint8)))
