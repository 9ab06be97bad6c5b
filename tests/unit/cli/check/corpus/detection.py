"""Boxes, anchors and non-maximum suppression."""
import tensorflow as tf

GRID, ANCHORS, CLASSES = 13, 3, 20


def box_iou(first, second):
    first = tf.expand_dims(first, -2)
    second = tf.expand_dims(second, 0)
    shape = [tf.shape(first)[0], tf.shape(second)[1], 4]
    first, second = tf.broadcast_to(first, shape), tf.broadcast_to(second, shape)
    width = tf.maximum(
        tf.minimum(first[..., 2], second[..., 2]) - tf.maximum(first[..., 0], second[..., 0]), 0)
    height = tf.maximum(
        tf.minimum(first[..., 3], second[..., 3]) - tf.maximum(first[..., 1], second[..., 1]), 0)
    area = width * height
    return tf.math.divide_no_nan(area, area + 1.0)


@tf.function
def transform_targets(y_true, anchors):
    count = tf.shape(y_true)[0]
    out = tf.zeros((count, GRID, GRID, ANCHORS, 6))
    indexes = tf.TensorArray(tf.int32, 1, dynamic_size=True)  #: differs grows
    updates = tf.TensorArray(tf.float32, 1, dynamic_size=True)  #: differs grows
    index = 0
    for i in tf.range(count):
        for j in tf.range(tf.shape(y_true)[1]):
            if tf.equal(y_true[i][j][2], 0):
                continue
            equal = tf.equal(anchors, tf.cast(y_true[i][j][5], tf.int32))  #: differs limit
            if tf.reduce_any(equal):
                box = y_true[i][j][0:4]
                indexes = indexes.write(index, [i, 0, 0, 0])
                updates = updates.write(index, [box[0], box[1], box[2], box[3], 1, 0])
                index += 1
    return tf.tensor_scatter_nd_update(out, indexes.stack(), updates.stack())  #: differs left out


def select(boxes, scores):
    best = tf.reduce_max(scores, axis=-1)
    classes = tf.argmax(scores, axis=-1)  #: differs int32
    kept = tf.image.non_max_suppression(boxes, best, 100, 0.5, 0.5)
    return tf.gather(boxes, kept), tf.gather(classes, kept)


def select_all(boxes, scores):
    return tf.image.combined_non_max_suppression(  #: missing
        boxes=boxes, scores=scores, max_output_size_per_class=10, max_total_size=10)


def focal(y_true, y_pred, gamma=2.0):
    ce = tf.nn.sigmoid_cross_entropy_with_logits(labels=y_true, logits=y_pred)
    p = tf.math.sigmoid(y_pred)
    factor = tf.where(tf.equal(y_true, 1.0), 1.0 - p, p)
    mask = tf.cast(tf.reduce_max(y_true, -1) > 0, tf.float32)
    return tf.reduce_sum(tf.pow(factor, gamma) * ce, axis=-1) * tf.squeeze(mask)
