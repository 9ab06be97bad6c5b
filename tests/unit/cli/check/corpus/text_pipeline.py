"""Text: lines, words, tables, padding."""
import tensorflow as tf

lines = tf.data.TextLineDataset(["a.txt", "b.txt"]).filter(lambda l: tf.strings.length(l) > 0)  #: differs NumPy
words = tf.constant(["the", "cat", "sat"])
table = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(words, tf.range(3, dtype=tf.int64)), default_value=-1)  #: differs 64
vocabulary = tf.lookup.StaticVocabularyTable(
    tf.lookup.TextFileInitializer(
        "vocab.txt", tf.string, 0, tf.int64, 1), 1)


def clean(text):
    text = tf.strings.lower(text)
    text = tf.strings.regex_replace(text, "<br />", " ")
    text = tf.strings.strip(text)
    return tf.strings.join([text, "end"], separator=" ")


def tokenize(text):
    parts = tf.strings.split(clean(text))  #: differs ragged
    return table.lookup(parts)[:128]


def label_of(text):
    first = tf.strings.substr(text, 0, 1)
    return tf.strings.to_number(first, out_type=tf.int32)


data = lines.map(lambda t: (tokenize(t), label_of(t)))  #: differs NumPy
data = data.padded_batch(32, padded_shapes=([None], []))
data = data.bucket_by_sequence_length(lambda x, y: tf.shape(x)[0], [10, 20], [8, 8, 8])
pairs = tf.data.Dataset.zip((lines, lines.skip(1))).window(2, shift=1)
csv = tf.data.experimental.make_csv_dataset("a.csv", 32, label_name="y")
rows = tf.data.experimental.CsvDataset("a.csv", [tf.float32, tf.int32], header=True)
vectorize = tf.keras.layers.TextVectorization(max_tokens=1000)  #: missing lookup
chars = tf.strings.unicode_split("héllo", "UTF-8")  #: missing
grams = tf.strings.ngrams(words, 2)  #: missing
hashed = tf.strings.to_hash_bucket_fast(words, 100)
print(tf.strings.as_string(hashed), tf.io.decode_csv("1,2", [0.0, 0.0]))
far = tf.edit_distance(hashed, hashed)  #: missing
ragged = tf.ragged.constant([[1], [2, 3]])  #: missing Pad
print(ragged.to_tensor())
