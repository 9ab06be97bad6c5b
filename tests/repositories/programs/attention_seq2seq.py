"""Bahdanau attention with teacher forcing, a masked loss and an evaluation loop in Python."""

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(6)
BATCH_SIZE, VOCAB, UNITS = 4, 8, 5


class BahdanauAttention(tf.keras.layers.Layer):
    def __init__(self, units):
        super(BahdanauAttention, self).__init__()
        self.W1 = tf.keras.layers.Dense(units)
        self.W2 = tf.keras.layers.Dense(units)
        self.V = tf.keras.layers.Dense(1)

    def call(self, query, values):
        query_with_time_axis = tf.expand_dims(query, 1)
        score = self.V(tf.nn.tanh(self.W1(query_with_time_axis) + self.W2(values)))
        attention_weights = tf.nn.softmax(score, axis=1)
        context_vector = attention_weights * values
        context_vector = tf.reduce_sum(context_vector, axis=1)
        return context_vector, attention_weights


class Encoder(tf.keras.Model):
    def __init__(self, vocab_size, embedding_dim, enc_units, batch_sz):
        super(Encoder, self).__init__()
        self.batch_sz = batch_sz
        self.enc_units = enc_units
        self.embedding = tf.keras.layers.Embedding(vocab_size, embedding_dim)
        self.gru = tf.keras.layers.GRU(
            self.enc_units,
            return_sequences=True,
            return_state=True,
            recurrent_initializer="glorot_uniform",
        )

    def call(self, x, hidden):
        x = self.embedding(x)
        output, state = self.gru(x, initial_state=hidden)
        return output, state

    def initialize_hidden_state(self):
        return tf.zeros((self.batch_sz, self.enc_units))


class Decoder(tf.keras.Model):
    def __init__(self, vocab_size, embedding_dim, dec_units, batch_sz):
        super(Decoder, self).__init__()
        self.embedding = tf.keras.layers.Embedding(vocab_size, embedding_dim)
        self.gru = tf.keras.layers.GRU(dec_units, return_sequences=True, return_state=True)
        self.fc = tf.keras.layers.Dense(vocab_size)
        self.attention = BahdanauAttention(dec_units)

    def call(self, x, hidden, enc_output):
        context_vector, attention_weights = self.attention(hidden, enc_output)
        x = self.embedding(x)
        x = tf.concat([tf.expand_dims(context_vector, 1), x], axis=-1)
        output, state = self.gru(x)
        output = tf.reshape(output, (-1, output.shape[2]))
        x = self.fc(output)
        return x, state, attention_weights


def pad(rows):
    return tf.keras.preprocessing.sequence.pad_sequences(rows, padding="post", maxlen=6)


input_tensor = pad([list(rng.randint(2, VOCAB, rng.randint(2, 7))) for _ in range(12)])
target_tensor = np.concatenate(
    [np.ones((12, 1), np.int32), pad([list(row[row > 0][::-1]) for row in input_tensor])], 1
)
dataset = tf.data.Dataset.from_tensor_slices((input_tensor, target_tensor))
dataset = dataset.batch(BATCH_SIZE, drop_remainder=True)

encoder = Encoder(VOCAB, 4, UNITS, BATCH_SIZE)
decoder = Decoder(VOCAB, 4, UNITS, BATCH_SIZE)
example_input_batch, example_target_batch = next(iter(dataset))
sample_hidden = encoder.initialize_hidden_state()
sample_output, sample_hidden = encoder(example_input_batch, sample_hidden)
print("Encoder output shape: (batch size, sequence length, units) {}".format(sample_output.shape))
decoder(example_target_batch[:, :1], sample_hidden, sample_output)
for model in (encoder, decoder):
    model.set_weights([rng.normal(0, 0.4, w.shape) for w in model.get_weights()])

optimizer = tf.keras.optimizers.SGD(learning_rate=0.3, momentum=0.9)
loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


def loss_function(real, pred):
    mask = tf.math.logical_not(tf.math.equal(real, 0))
    loss_ = loss_object(real, pred)
    mask = tf.cast(mask, dtype=loss_.dtype)
    loss_ *= mask
    return tf.reduce_mean(loss_)


@tf.function
def train_step(inp, targ, enc_hidden):
    loss = 0
    with tf.GradientTape() as tape:
        enc_output, enc_hidden = encoder(inp, enc_hidden)
        dec_hidden = enc_hidden
        dec_input = tf.expand_dims([1] * BATCH_SIZE, 1)
        for t in range(1, targ.shape[1]):
            predictions, dec_hidden, _ = decoder(dec_input, dec_hidden, enc_output)
            loss += loss_function(targ[:, t], predictions)
            dec_input = tf.expand_dims(targ[:, t], 1)
    batch_loss = loss / int(targ.shape[1])
    variables = encoder.trainable_variables + decoder.trainable_variables
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables))
    return batch_loss


for epoch in range(3):
    enc_hidden = encoder.initialize_hidden_state()
    total_loss = 0
    for batch, (inp, targ) in enumerate(dataset.take(3)):
        batch_loss = train_step(inp, targ, enc_hidden)
        total_loss += batch_loss
    print("Epoch {} Loss {:.6f}".format(epoch + 1, total_loss / 3))


def evaluate(sentence, max_length=6):
    inputs = tf.convert_to_tensor(sentence[None])
    hidden = [tf.zeros((1, UNITS))]
    enc_out, enc_hidden = encoder(inputs, hidden)
    dec_hidden = enc_hidden
    dec_input = tf.expand_dims([1], 0)
    result = []
    for t in range(max_length):
        predictions, dec_hidden, attention_weights = decoder(dec_input, dec_hidden, enc_out)
        attention_weights = tf.reshape(attention_weights, (-1,))
        predicted_id = tf.argmax(predictions[0]).numpy()
        result.append(int(predicted_id))
        if predicted_id == 0:
            return result, attention_weights.numpy()
        dec_input = tf.expand_dims([predicted_id], 0)
    return result, attention_weights.numpy()


for row in input_tensor[:2]:
    words, attention = evaluate(row)
    print("evaluate", words, attention.tolist())
