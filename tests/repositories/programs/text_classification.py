"""Text classification: cleaning by tf.strings, a vocabulary table, padding, a bag of words."""

import collections
import re
import string

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(32)
reviews = [
    "A great, GREAT movie!<br />Loved it.",
    "Terrible plot; bad acting...",
    "Loved the acting and the great plot",
    "bad bad bad movie",
    "It was great fun",
    "The plot was terrible<br />and the fun was bad",
]
labels = np.array([1, 0, 1, 0, 1, 0], np.float32)
MAX_LEN, DIM = 8, 4


def custom_standardization(input_data):
    lowercase = tf.strings.lower(input_data)
    stripped_html = tf.strings.regex_replace(lowercase, "<br />", " ")
    return tf.strings.regex_replace(
        stripped_html, "[%s]" % re.escape(string.punctuation), ""
    )


counts = collections.Counter()
for text in tf.data.Dataset.from_tensor_slices(reviews).map(custom_standardization):
    counts.update(text.numpy().decode("utf-8").split())
vocabulary = ["<pad>"] + [word for word, _ in sorted(counts.items(), key=lambda x: (-x[1], x[0]))][:12]
table = tf.lookup.StaticVocabularyTable(
    tf.lookup.KeyValueTensorInitializer(
        keys=tf.constant(vocabulary), values=tf.constant(list(range(len(vocabulary))), dtype=tf.int64)
    ),
    num_oov_buckets=1,
)
print("vocabulary", len(vocabulary), vocabulary[1:4], int(table.size()))


def vectorize(text, label):
    words = tf.strings.split(custom_standardization(text), sep=" ")
    ids = table.lookup(words)[:MAX_LEN]
    ids = tf.pad(ids, [[0, MAX_LEN - tf.shape(ids)[0]]])
    return tf.ensure_shape(ids, [MAX_LEN]), label


dataset = tf.data.Dataset.from_tensor_slices((reviews, labels)).map(
    vectorize, num_parallel_calls=tf.data.AUTOTUNE
)
for ids, label in dataset.take(2):
    print("ids", ids.numpy().tolist(), float(label))
dataset = dataset.cache().batch(3)

model = tf.keras.Sequential(
    [
        tf.keras.layers.Embedding(len(vocabulary) + 1, DIM),
        tf.keras.layers.GlobalAveragePooling1D(),
        tf.keras.layers.Dense(4, activation="relu"),
        tf.keras.layers.Dense(1),
    ]
)
model.build((None, MAX_LEN))
model.set_weights([rng.normal(0, 0.5, w.shape) for w in model.get_weights()])
model.compile(
    loss=tf.keras.losses.BinaryCrossentropy(from_logits=True),
    optimizer=tf.keras.optimizers.SGD(0.5),
    metrics=[tf.keras.metrics.BinaryAccuracy(threshold=0.0)],
)
history = model.fit(dataset, epochs=4, verbose=0)
print("loss", [float(x) for x in history.history["loss"]])
print("accuracy", [float(x) for x in history.history["binary_accuracy"]])
examples = tf.constant(["great movie", "a terrible bad plot"])
batch = tf.stack([vectorize(text, 0)[0] for text in examples])
print("predict", tf.sigmoid(model(batch)).numpy().ravel())
joined = tf.strings.join([tf.constant(["a", "b"]), tf.constant(["c", "d"])], separator="-")
print("joined", joined.numpy().tolist(), tf.strings.length(joined).numpy().tolist())
