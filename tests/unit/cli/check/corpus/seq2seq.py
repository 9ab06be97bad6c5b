"""An encoder, and a decoder that stops at the end token."""
import tensorflow as tf

START, END, LONGEST = 1, 2, 40


class Encoder(tf.keras.Model):
    def __init__(self, words, size):
        super(Encoder, self).__init__()
        self.size = size
        self.embedding = tf.keras.layers.Embedding(words, size)
        self.gru = tf.keras.layers.GRU(size, return_sequences=True, return_state=True)

    def call(self, x):
        return self.gru(self.embedding(x), initial_state=self.first(x))

    def first(self, x):
        return tf.zeros((tf.shape(x)[0], self.size))


class Attention(tf.keras.layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.w1, self.w2 = tf.keras.layers.Dense(units), tf.keras.layers.Dense(units)
        self.v = tf.keras.layers.Dense(1)

    def call(self, query, values):
        query = tf.expand_dims(query, 1)
        score = self.v(tf.nn.tanh(self.w1(query) + self.w2(values)))
        weights = tf.nn.softmax(score, axis=1)
        return tf.reduce_sum(weights * values, axis=1), weights


class Translator(tf.Module):
    def __init__(self, encoder, decoder):
        self.encoder, self.decoder = encoder, decoder

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def translate(self, source):
        output, state = self.encoder(source)
        tokens = tf.fill([tf.shape(source)[0]], START)
        done = tf.zeros([tf.shape(source)[0]], tf.bool)
        result = tf.TensorArray(tf.int32, size=LONGEST)
        position = 0
        while position < LONGEST and not tf.reduce_all(done):
            logits, state = self.decoder(tokens, output, state)
            tokens = tf.argmax(logits, -1, output_type=tf.int32)
            tokens = tf.where(done, 0, tokens)
            result = result.write(position, tokens)
            done = done | (tokens == END)
            position += 1
        return tf.transpose(result.stack())


def loss_function(real, pred):
    mask = tf.math.logical_not(tf.math.equal(real, 0))
    loss = tf.keras.losses.sparse_categorical_crossentropy(real, pred, from_logits=True)
    return tf.reduce_mean(loss * tf.cast(mask, dtype=loss.dtype))
