"""Skip-gram with negative sampling, as a subclassed model and as an NCE loop."""

import numpy as np
import tensorflow as tf
from tensorflow.keras.layers import Embedding

SEED = 42
rng = np.random.RandomState(SEED)
sentences = [
    "the wide road shimmered in the hot sun",
    "the quick brown fox jumps over the lazy dog",
    "the dog sleeps in the sun near the road",
]
vocab, index = {}, 1
vocab["<pad>"] = 0
for sentence in sentences:
    for token in sentence.lower().split():
        if token not in vocab:
            vocab[token] = index
            index += 1
vocab_size = len(vocab)
sequences = [[vocab[t] for t in s.split()] for s in sentences]
NUM_NS = 3
targets, contexts, labels = [], [], []
for sequence in sequences:
    for i, word in enumerate(sequence):
        for j in range(max(0, i - 2), min(len(sequence), i + 3)):
            if i == j:
                continue
            negatives = rng.randint(1, vocab_size, NUM_NS)
            context = tf.concat([[sequence[j]], tf.constant(negatives, tf.int32)], 0)
            targets.append(word)
            contexts.append(context)
            labels.append(tf.constant([1] + [0] * NUM_NS, dtype="int64"))
targets = np.array(targets)
contexts = np.array(contexts)
labels = np.array(labels)
print("targets", targets.shape, "contexts", contexts.shape, "labels", labels.shape)

dataset = tf.data.Dataset.from_tensor_slices(((targets, contexts), labels))
dataset = dataset.batch(16, drop_remainder=True)
dataset = dataset.cache().prefetch(buffer_size=tf.data.AUTOTUNE)


class Word2Vec(tf.keras.Model):
    def __init__(self, vocab_size, embedding_dim):
        super().__init__()
        self.target_embedding = Embedding(vocab_size, embedding_dim, name="w2v_embedding")
        self.context_embedding = Embedding(vocab_size, embedding_dim)

    def call(self, pair):
        target, context = pair
        if len(target.shape) == 2:
            target = tf.squeeze(target, axis=1)
        word_emb = self.target_embedding(target)
        context_emb = self.context_embedding(context)
        dots = tf.einsum("be,bce->bc", word_emb, context_emb)
        return dots


def custom_loss(x_logit, y_true):
    return tf.nn.sigmoid_cross_entropy_with_logits(logits=x_logit, labels=y_true)


word2vec = Word2Vec(vocab_size, 6)
word2vec((targets[:2], contexts[:2]))
word2vec.set_weights([rng.uniform(-0.5, 0.5, w.shape) for w in word2vec.get_weights()])
word2vec.compile(
    optimizer=tf.keras.optimizers.SGD(0.5),
    loss=tf.keras.losses.CategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = word2vec.fit(dataset, epochs=3, verbose=0)
print("fit", [float(x) for x in history.history["loss"]])

optimizer = tf.keras.optimizers.SGD(0.5)


@tf.function
def train_step(target, context, label):
    with tf.GradientTape() as tape:
        logits = word2vec((target, context))
        loss = tf.reduce_mean(custom_loss(logits, tf.cast(label, tf.float32)))
    grads = tape.gradient(loss, word2vec.trainable_variables)
    optimizer.apply_gradients(zip(grads, word2vec.trainable_variables))
    return loss


for (target, context), label in dataset.take(4):
    print("step", train_step(target, context, label).numpy())
weights = word2vec.get_layer("w2v_embedding").get_weights()[0]
normed = tf.math.l2_normalize(weights, axis=1)
scores, nearest = tf.math.top_k(tf.linalg.matvec(normed, normed[vocab["sun"]]), k=4)
print("near sun", scores.numpy(), nearest.numpy())
