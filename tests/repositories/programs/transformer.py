"""A transformer of the tutorial's kind: masks, a custom schedule, and a translator Module."""

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(7)
VOCAB, D_MODEL, HEADS, LEN = 11, 8, 2, 6


def positional_encoding(length, depth):
    depth = depth / 2
    positions = np.arange(length)[:, np.newaxis]
    depths = np.arange(depth)[np.newaxis, :] / depth
    angle_rads = positions / 10000**depths
    pos_encoding = np.concatenate([np.sin(angle_rads), np.cos(angle_rads)], axis=-1)
    return tf.cast(pos_encoding, dtype=tf.float32)


class PositionalEmbedding(tf.keras.layers.Layer):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.d_model = d_model
        self.embedding = tf.keras.layers.Embedding(vocab_size, d_model, mask_zero=True)
        self.pos_encoding = positional_encoding(length=64, depth=d_model)

    def compute_mask(self, *args, **kwargs):
        return self.embedding.compute_mask(*args, **kwargs)

    def call(self, x):
        length = tf.shape(x)[1]
        x = self.embedding(x)
        x *= tf.math.sqrt(tf.cast(self.d_model, tf.float32))
        return x + self.pos_encoding[tf.newaxis, :length, :]


class Attention(tf.keras.layers.Layer):
    def __init__(self, causal=False):
        super().__init__()
        self.causal = causal
        self.mha = tf.keras.layers.MultiHeadAttention(num_heads=HEADS, key_dim=4)
        self.layernorm = tf.keras.layers.LayerNormalization()
        self.add = tf.keras.layers.Add()

    def call(self, x, context):
        y = self.mha(query=x, value=context, key=context, use_causal_mask=self.causal)
        return self.layernorm(self.add([x, y]))


class FeedForward(tf.keras.layers.Layer):
    def __init__(self, d_model, dff):
        super().__init__()
        self.seq = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(dff, activation="relu"),
                tf.keras.layers.Dense(d_model),
                tf.keras.layers.Dropout(0.0),
            ]
        )
        self.add = tf.keras.layers.Add()
        self.layer_norm = tf.keras.layers.LayerNormalization()

    def call(self, x):
        return self.layer_norm(self.add([x, self.seq(x)]))


class Transformer(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.source = PositionalEmbedding(VOCAB, D_MODEL)
        self.target = PositionalEmbedding(VOCAB, D_MODEL)
        self.encode = [Attention(), FeedForward(D_MODEL, 16)]
        self.decode = [Attention(causal=True), Attention(), FeedForward(D_MODEL, 16)]
        self.final_layer = tf.keras.layers.Dense(VOCAB)

    def call(self, inputs):
        context, x = inputs
        context = self.source(context)
        context = self.encode[1](self.encode[0](context, context))
        x = self.target(x)
        x = self.decode[0](x, x)
        x = self.decode[1](x, context)
        logits = self.final_layer(self.decode[2](x))
        try:
            del logits._keras_mask
        except AttributeError:
            pass
        return logits


class CustomSchedule(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, d_model, warmup_steps=4000):
        super().__init__()
        self.d_model = tf.cast(d_model, tf.float32)
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        step = tf.cast(step, dtype=tf.float32)
        arg1 = tf.math.rsqrt(step)
        arg2 = step * (self.warmup_steps**-1.5)
        return tf.math.rsqrt(self.d_model) * tf.math.minimum(arg1, arg2)


def masked_loss(label, pred):
    mask = label != 0
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="none"
    )
    loss = loss_object(label, pred)
    mask = tf.cast(mask, dtype=loss.dtype)
    loss *= mask
    return tf.reduce_sum(loss) / tf.reduce_sum(mask)


def masked_accuracy(label, pred):
    pred = tf.argmax(pred, axis=2)
    label = tf.cast(label, pred.dtype)
    match = label == pred
    mask = label != 0
    match = match & mask
    match = tf.cast(match, dtype=tf.float32)
    mask = tf.cast(mask, dtype=tf.float32)
    return tf.reduce_sum(match) / tf.reduce_sum(mask)


source = rng.randint(3, VOCAB, (16, LEN))
for row in source:
    row[rng.randint(3, LEN + 1) :] = 0
target = np.concatenate([np.ones((16, 1), int), source[:, ::-1], np.full((16, 1), 2)], 1)

model = Transformer()
model((source[:2], target[:2, :-1]))
model.set_weights(
    [rng.normal(0, 0.3, w.shape) if w.ndim > 1 else w for w in model.get_weights()]
)
learning_rate = CustomSchedule(D_MODEL, warmup_steps=10)
print("rate", [float(learning_rate(tf.constant(n))) for n in (1, 5, 20)])
optimizer = tf.keras.optimizers.SGD(learning_rate, momentum=0.9)
model.compile(loss=masked_loss, optimizer=optimizer, metrics=[masked_accuracy])
dataset = tf.data.Dataset.from_tensor_slices(((source, target[:, :-1]), target[:, 1:]))
history = model.fit(dataset.batch(4), epochs=3, verbose=0)
print("loss", [float(x) for x in history.history["loss"]])


class Translator(tf.Module):
    def __init__(self, transformer):
        self.transformer = transformer

    def __call__(self, sentence, max_length=4):
        encoder_input = tf.convert_to_tensor(sentence)[tf.newaxis]
        start, end = tf.constant([1], tf.int64), tf.constant([2], tf.int64)
        output_array = tf.TensorArray(dtype=tf.int64, size=0, dynamic_size=True)
        output_array = output_array.write(0, start)
        for i in tf.range(max_length):
            output = tf.transpose(output_array.stack())
            predictions = self.transformer([encoder_input, output], training=False)
            predictions = predictions[:, -1:, :]
            predicted_id = tf.argmax(predictions, axis=-1)
            output_array = output_array.write(i + 1, predicted_id[0])
            if predicted_id == end:
                break
        return tf.transpose(output_array.stack())


translator = Translator(model)
print("translated", translator(tf.constant(source[0])).numpy().tolist())
