"""A recurrent encoder and decoder; the decoder is a `while` that writes a TensorArray."""

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(5)
VOCAB, UNITS, START, END = 9, 6, 1, 2


class Encoder(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = tf.keras.layers.Embedding(VOCAB, UNITS)
        self.gru = tf.keras.layers.GRU(UNITS, return_sequences=True, return_state=True)

    def call(self, x, hidden):
        x = self.embedding(x)
        output, state = self.gru(x, initial_state=hidden)
        return output, state

    def initialize_hidden_state(self, batch):
        return tf.zeros((batch, UNITS))


class Decoder(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = tf.keras.layers.Embedding(VOCAB, UNITS)
        self.cell = tf.keras.layers.GRUCell(UNITS)
        self.fc = tf.keras.layers.Dense(VOCAB)

    def call(self, token, state):
        output, state = self.cell(self.embedding(token), [state])
        if isinstance(state, (list, tuple)):
            state = state[0]
        return self.fc(output), state


encoder, decoder = Encoder(), Decoder()
source = rng.randint(3, VOCAB, (4, 5)).astype(np.int32)
target = np.concatenate(
    [np.full((4, 1), START), source[:, ::-1], np.full((4, 1), END)], axis=1
).astype(np.int32)
_, state = encoder(source, encoder.initialize_hidden_state(4))
decoder(tf.constant(target[:, 0]), state)
for v in encoder.trainable_variables + decoder.trainable_variables:
    v.assign(rng.normal(0, 0.5, v.shape).astype(np.float32))

loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
optimizer = tf.keras.optimizers.SGD(0.2, momentum=0.9)


@tf.function
def train_step(inp, targ):
    loss = 0.0
    with tf.GradientTape() as tape:
        _, hidden = encoder(inp, encoder.initialize_hidden_state(tf.shape(inp)[0]))
        token = targ[:, 0]
        for t in range(1, targ.shape[1]):
            logits, hidden = decoder(token, hidden)
            loss += tf.reduce_mean(loss_object(targ[:, t], logits))
            token = targ[:, t]
    variables = encoder.trainable_variables + decoder.trainable_variables
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables))
    return loss / int(targ.shape[1])


@tf.function
def translate(inp, max_length):
    batch = tf.shape(inp)[0]
    _, hidden = encoder(inp, tf.zeros((batch, UNITS)))
    token = tf.fill([batch], START)
    done = tf.zeros([batch], tf.bool)
    outputs = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
    t = tf.constant(0)
    while t < max_length and not tf.reduce_all(done):
        logits, hidden = decoder(token, hidden)
        token = tf.argmax(logits, axis=-1, output_type=tf.int32)
        token = tf.where(done, tf.zeros_like(token), token)
        done = done | (token == END)
        outputs = outputs.write(t, token)
        t += 1
    return tf.transpose(outputs.stack()), t


@tf.function
def translate_with_break(inp, max_length=12):
    batch = tf.shape(inp)[0]
    _, hidden = encoder(inp, tf.zeros((batch, UNITS)))
    token = tf.fill([batch], START)
    done = tf.zeros([batch, 1], dtype=tf.bool)
    result_tokens = tf.TensorArray(tf.int32, size=1, dynamic_size=True)
    for t in tf.range(max_length):
        logits, hidden = decoder(token, hidden)
        token = tf.argmax(logits, axis=-1, output_type=tf.int32)
        done = done | (token == END)[:, tf.newaxis]
        token = tf.where(done[:, 0], tf.constant(0), token)
        result_tokens = result_tokens.write(t, token)
        if tf.reduce_all(done):
            break
    return tf.transpose(result_tokens.stack(), [1, 0])


for step in range(25):
    batch_loss = train_step(tf.constant(source), tf.constant(target))
    if step % 6 == 0:
        print("step", step, "loss", float(batch_loss))

tokens, length = translate(tf.constant(source), tf.constant(12))
print("translated", tokens.numpy().tolist(), "after", int(length))
tokens, length = translate(tf.constant(source[:2]), tf.constant(3))
print("short", tokens.numpy().tolist(), tokens.shape, int(length))
print("break", translate_with_break(tf.constant(source)).numpy().tolist())
