"""Image pipelines: encode, decode, augment with stateless ops, resize, boxes, NMS, losses."""

import os, tempfile
import numpy as np
import tensorflow as tf

rng = np.random.RandomState(4)
imgs = rng.randint(0, 255, (6, 10, 12, 3)).astype("uint8")
folder = tempfile.mkdtemp()
for i, im in enumerate(imgs):
    os.makedirs(f"{folder}/c{i % 2}", exist_ok=True)
    tf.io.write_file(f"{folder}/c{i % 2}/{i}.png", tf.io.encode_png(im))
classes = np.array(sorted(os.listdir(folder)))


def get_label(path):
    parts = tf.strings.split(path, os.path.sep)
    return tf.argmax(tf.cast(parts[-2] == classes, tf.int32))


def decode_img(img):
    img = tf.io.decode_png(img, channels=3)
    return tf.image.resize(img, [8, 8])


def process_path(path):
    return decode_img(tf.io.read_file(path)), get_label(path)


list_ds = tf.data.Dataset.list_files(folder + "/*/*.png", shuffle=False)
ds = list_ds.map(process_path, num_parallel_calls=tf.data.AUTOTUNE)
for im, lab in ds.take(2):
    print(im.shape, im.dtype.name, int(lab), np.round(float(tf.reduce_mean(im)), 3))


def augment(image_label, seed):
    image, label = image_label
    image = tf.cast(image, tf.float32) / 255.0
    image = tf.image.resize_with_crop_or_pad(image, 12, 12)
    new_seed = tf.random.split(seed, num=1)[0, :]
    image = tf.image.stateless_random_crop(image, size=[8, 8, 3], seed=seed)
    image = tf.image.stateless_random_brightness(image, max_delta=0.5, seed=new_seed)
    image = tf.image.stateless_random_flip_left_right(image, seed)
    image = tf.image.stateless_random_contrast(image, 0.5, 1.5, seed)
    image = tf.image.stateless_random_saturation(image, 0.5, 1.5, seed)
    image = tf.image.stateless_random_hue(image, 0.1, seed)
    image = tf.clip_by_value(image, 0, 1)
    return image, label


counter = tf.data.Dataset.counter()
train = (
    tf.data.Dataset.zip((ds, tf.data.Dataset.zip((counter, counter))))
    .map(lambda a, s: augment(a, s))
    .batch(3)
)
for im, lab in train:
    print(im.shape, lab.numpy(), np.round(tf.reduce_mean(im, [1, 2, 3]).numpy(), 4))
x = tf.constant(imgs[0])
for name, fn in {
    "flip": lambda i: tf.image.flip_left_right(i),
    "ud": lambda i: tf.image.flip_up_down(i),
    "rot": lambda i: tf.image.rot90(i, 3),
    "crop": lambda i: tf.image.central_crop(i, 0.5),
    "gray": lambda i: tf.image.rgb_to_grayscale(i),
    "bright": lambda i: tf.image.adjust_brightness(i, 0.2),
    "contrast": lambda i: tf.image.adjust_contrast(tf.cast(i, tf.float32), 1.7),
    "sat": lambda i: tf.image.adjust_saturation(tf.cast(i, tf.float32) / 255, 2.0),
    "hue": lambda i: tf.image.adjust_hue(tf.cast(i, tf.float32) / 255, 0.2),
    "std": lambda i: tf.image.per_image_standardization(i),
    "conv": lambda i: tf.image.convert_image_dtype(i, tf.float32),
    "pad": lambda i: tf.image.pad_to_bounding_box(i, 1, 2, 14, 16),
    "near": lambda i: tf.image.resize(i, [5, 7], method="nearest"),
    "bic": lambda i: tf.image.resize(i, [5, 7], method="bicubic", antialias=True),
    "area": lambda i: tf.image.resize(i, [5, 6], method=tf.image.ResizeMethod.AREA),
    "aspect": lambda i: tf.image.resize(i, [20, 20], preserve_aspect_ratio=True),
    "rwp": lambda i: tf.image.resize_with_pad(i, 9, 9),
    "gray2rgb": lambda i: tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(i)),
}.items():
    out = fn(x)
    print(
        name,
        out.shape,
        out.dtype.name,
        np.round(float(tf.reduce_mean(tf.cast(out, tf.float32))), 3),
        np.round(float(tf.reduce_max(tf.cast(out, tf.float32))), 2),
    )


# Detection: anchors, IoU matching, focal loss, smooth L1, NMS.
def swap_xy(b):
    return tf.stack([b[:, 1], b[:, 0], b[:, 3], b[:, 2]], axis=-1)


def to_xywh(b):
    return tf.concat(
        [(b[..., :2] + b[..., 2:]) / 2.0, b[..., 2:] - b[..., :2]], axis=-1
    )


def to_corners(b):
    return tf.concat(
        [b[..., :2] - b[..., 2:] / 2.0, b[..., :2] + b[..., 2:] / 2.0], axis=-1
    )


def compute_iou(b1, b2):
    c1, c2 = to_corners(b1), to_corners(b2)
    lu = tf.maximum(c1[:, None, :2], c2[:, :2])
    rd = tf.minimum(c1[:, None, 2:], c2[:, 2:])
    inter = tf.maximum(0.0, rd - lu)
    ia = inter[:, :, 0] * inter[:, :, 1]
    union = tf.maximum(
        (b1[:, 2] * b1[:, 3])[:, None] + (b2[:, 2] * b2[:, 3]) - ia, 1e-8
    )
    return tf.clip_by_value(ia / union, 0.0, 1.0)


def anchors(h, w, stride):
    rx = tf.range(w, dtype=tf.float32) + 0.5
    ry = tf.range(h, dtype=tf.float32) + 0.5
    centers = tf.stack(tf.meshgrid(rx, ry), axis=-1) * stride
    centers = tf.tile(tf.expand_dims(centers, axis=-2), [1, 1, 2, 1])
    dims = tf.tile(tf.constant([[[[8.0, 8.0], [12.0, 6.0]]]]), [h, w, 1, 1])
    return tf.reshape(tf.concat([centers, dims], axis=-1), [h * w * 2, 4])


class LabelEncoder:
    def __init__(self):
        self._var = tf.convert_to_tensor([0.1, 0.1, 0.2, 0.2])

    def match(self, an, gt, pos=0.5, neg=0.4):
        iou = compute_iou(an, gt)
        mx = tf.reduce_max(iou, axis=1)
        idx = tf.argmax(iou, axis=1)
        p = tf.greater_equal(mx, pos)
        n = tf.less(mx, neg)
        ign = tf.logical_not(tf.logical_or(p, n))
        return idx, tf.cast(p, tf.float32), tf.cast(ign, tf.float32)

    def encode(self, gt, cls):
        an = anchors(4, 4, 8.0)
        cls = tf.cast(cls, tf.float32)
        idx, p, ign = self.match(an, gt)
        m = tf.gather(gt, idx)
        box = (
            tf.concat(
                [(m[:, :2] - an[:, :2]) / an[:, 2:], tf.math.log(m[:, 2:] / an[:, 2:])],
                -1,
            )
            / self._var
        )
        mc = tf.gather(cls, idx)
        c = tf.where(tf.not_equal(p, 1.0), -1.0, mc)
        c = tf.where(tf.equal(ign, 1.0), -2.0, c)
        return tf.concat([box, tf.expand_dims(c, -1)], axis=-1)


gt = tf.constant([[10.0, 10.0, 9.0, 8.0], [22.0, 20.0, 12.0, 7.0]])
lab = LabelEncoder().encode(gt, tf.constant([1, 0]))
print(
    lab.shape,
    np.round(float(tf.reduce_sum(lab[:, :4])), 3),
    np.unique(lab[:, 4].numpy(), return_counts=True),
)


class Focal(tf.keras.losses.Loss):
    def __init__(self, alpha, gamma):
        super().__init__(reduction="none", name="Focal")
        self._a, self._g = alpha, gamma

    def call(self, y_true, y_pred):
        ce = tf.nn.sigmoid_cross_entropy_with_logits(labels=y_true, logits=y_pred)
        p = tf.nn.sigmoid(y_pred)
        alpha = tf.where(tf.equal(y_true, 1.0), self._a, 1.0 - self._a)
        pt = tf.where(tf.equal(y_true, 1.0), p, 1 - p)
        return tf.reduce_sum(alpha * tf.pow(1.0 - pt, self._g) * ce, axis=-1)


class SmoothL1(tf.keras.losses.Loss):
    def __init__(self, delta):
        super().__init__(reduction="none")
        self._d = delta

    def call(self, y_true, y_pred):
        diff = y_true - y_pred
        a = tf.abs(diff)
        sq = diff**2
        return tf.reduce_sum(tf.where(tf.less(a, self._d), 0.5 * sq, a - 0.5), axis=-1)


pred = tf.Variable(rng.randn(32, 6).astype("float32"))
with tf.GradientTape() as tape:
    pos = tf.cast(tf.greater(lab[:, 4], -1.0), tf.float32)
    ign = tf.cast(tf.equal(lab[:, 4], -2.0), tf.float32)
    cl = Focal(0.25, 2.0)(
        tf.one_hot(tf.cast(lab[:, 4], tf.int32), depth=2), pred[:, 4:]
    )
    bl = SmoothL1(1.0)(lab[:, :4], pred[:, :4])
    cl = tf.where(tf.equal(ign, 1.0), 0.0, cl)
    bl = tf.where(tf.equal(pos, 1.0), bl, 0.0)
    nrm = tf.reduce_sum(pos)
    loss = tf.math.divide_no_nan(tf.reduce_sum(cl), nrm) + tf.math.divide_no_nan(
        tf.reduce_sum(bl), nrm
    )
print("%.5f %.5f" % (loss, tf.norm(tape.gradient(loss, pred))))
boxes = to_corners(anchors(4, 4, 8.0) + pred[:, :4])
scores = tf.nn.sigmoid(pred[:, 4])
keep = tf.image.non_max_suppression(
    boxes, scores, max_output_size=6, iou_threshold=0.4, score_threshold=0.3
)
print(keep.numpy(), np.round(tf.gather(scores, keep).numpy(), 4))
mask = scores > 0.6
print(
    np.round(tf.boolean_mask(scores, mask).numpy(), 4), tf.where(mask).numpy().ravel()
)
