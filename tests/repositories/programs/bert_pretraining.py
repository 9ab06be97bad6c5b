"""Masked-language training as ALBERT repositories write it: schedule, warmup, steps in `tf.range`."""

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(16)
VOCAB, HIDDEN, LEN, MASKS = 13, 8, 6, 2


class WarmUp(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, initial_learning_rate, decay_schedule_fn, warmup_steps, power=1.0, name=None):
        super().__init__()
        self.initial_learning_rate = initial_learning_rate
        self.warmup_steps = warmup_steps
        self.power = power
        self.decay_schedule_fn = decay_schedule_fn
        self.name = name

    def __call__(self, step):
        with tf.name_scope(self.name or "WarmUp"):
            global_step_float = tf.cast(step, tf.float32)
            warmup_steps_float = tf.cast(self.warmup_steps, tf.float32)
            warmup_percent_done = global_step_float / warmup_steps_float
            warmup_learning_rate = self.initial_learning_rate * tf.math.pow(
                warmup_percent_done, self.power
            )
            return tf.cond(
                global_step_float < warmup_steps_float,
                lambda: warmup_learning_rate,
                lambda: self.decay_schedule_fn(step),
            )


def gelu(x):
    cdf = 0.5 * (1.0 + tf.tanh((np.sqrt(2 / np.pi) * (x + 0.044715 * tf.pow(x, 3)))))
    return x * cdf


class Bert(tf.keras.Model):
    def __init__(self):
        super().__init__()
        init = tf.keras.initializers.TruncatedNormal(stddev=0.02)
        self.tokens = tf.keras.layers.Dense(HIDDEN, use_bias=False, kernel_initializer=init)
        self.attention = tf.keras.layers.MultiHeadAttention(2, 4, kernel_initializer=init)
        self.norm = tf.keras.layers.LayerNormalization(epsilon=1e-12)
        self.inner = tf.keras.layers.Dense(16, activation=gelu)
        self.outer = tf.keras.layers.Dense(HIDDEN)
        self.logits = tf.keras.layers.Dense(VOCAB, activation=None)
        self.sentence = tf.keras.layers.Dense(2)

    def build(self, input_shape):
        self.positions = self.add_weight(
            name="positions", shape=(LEN, HIDDEN), initializer="zeros"
        )
        super().build(input_shape)

    def call(self, inputs, training=False):
        ids, mask, places = inputs
        x = self.tokens(tf.one_hot(ids, VOCAB)) + self.positions
        attention_mask = tf.cast(mask[:, tf.newaxis, :], tf.bool)
        x = self.norm(x + self.attention(x, x, attention_mask=attention_mask, training=training))
        x = x + self.outer(self.inner(x))
        masked = tf.gather(x, places, batch_dims=1)
        return self.logits(masked), self.sentence(tf.squeeze(x[:, 0:1, :], axis=1))


def make_batch(size):
    ids = rng.randint(1, VOCAB, (size, LEN)).astype(np.int32)
    mask = np.ones((size, LEN), np.int32)
    mask[:, rng.randint(4, LEN) :] = 0
    places = np.stack([rng.permutation(4)[:MASKS] for _ in range(size)]).astype(np.int32)
    labels = np.take_along_axis(ids, places, 1)
    return {
        "input_ids": ids,
        "input_mask": mask,
        "masked_lm_positions": places,
        "masked_lm_ids": labels,
        "masked_lm_weights": np.ones((size, MASKS), np.float32),
        "next_sentence_labels": rng.randint(0, 2, (size, 1)).astype(np.int32),
    }


def select_data(record):
    x = (record["input_ids"], record["input_mask"], record["masked_lm_positions"])
    y = (
        record["masked_lm_ids"],
        record["masked_lm_weights"],
        record["next_sentence_labels"],
    )
    return x, y


def get_loss(labels, outputs, replicas):
    lm_ids, lm_weights, sentence_labels = labels
    lm_logits, sentence_logits = outputs
    log_probs = tf.nn.log_softmax(tf.cast(lm_logits, tf.float32), axis=-1)
    one_hot = tf.one_hot(lm_ids, depth=VOCAB, dtype=tf.float32)
    per_example = -tf.reduce_sum(log_probs * one_hot, axis=-1)
    numerator = tf.reduce_sum(lm_weights * per_example)
    denominator = tf.reduce_sum(lm_weights) + 1e-5
    sentence = tf.keras.losses.sparse_categorical_crossentropy(
        sentence_labels, sentence_logits, from_logits=True
    )
    return (numerator / denominator + tf.reduce_mean(sentence)) / replicas


strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
data = tf.data.Dataset.from_tensor_slices(make_batch(32)).repeat(3)
data = data.map(select_data)
train_iterator = iter(strategy.experimental_distribute_dataset(data.batch(8, drop_remainder=True)))

with strategy.scope():
    model = Bert()
    model(select_data(make_batch(2))[0])
    model.set_weights([rng.normal(0, 0.2, w.shape) for w in model.get_weights()])
    decay = tf.keras.optimizers.schedules.PolynomialDecay(0.01, 20, end_learning_rate=0.0)
    learning_rate = WarmUp(0.01, decay, warmup_steps=4)
    optimizer = tf.keras.optimizers.AdamW(
        learning_rate, weight_decay=0.01, epsilon=1e-6
    )
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    optimizer.build(model.trainable_variables)
    train_loss_metric = tf.keras.metrics.Mean("training_loss", dtype=tf.float32)
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy("lm_accuracy")


def _replicated_step(inputs):
    inputs, labels = inputs
    with tf.GradientTape() as tape:
        model_outputs = model(inputs, training=True)
        loss = get_loss(labels, model_outputs, strategy.num_replicas_in_sync)
    training_vars = model.trainable_variables
    grads = tape.gradient(loss, training_vars)
    grads, _ = tf.clip_by_global_norm(grads, clip_norm=1.0)
    optimizer.apply_gradients(zip(grads, training_vars))
    train_loss_metric.update_state(loss * strategy.num_replicas_in_sync)
    accuracy.update_state(labels[0], model_outputs[0], labels[1])


@tf.function
def train_steps(iterator, steps):
    if not isinstance(steps, tf.Tensor):
        raise ValueError("steps should be an Tensor. Python object may cause retracing.")
    for _ in tf.range(steps):
        strategy.run(_replicated_step, args=(next(iterator),))


@tf.function
def train_single_step(iterator):
    strategy.run(_replicated_step, args=(next(iterator),))


def _float_metric_value(metric):
    return metric.result().numpy().astype(float)


current_step, total, steps_per_loop = 0, 10, 4
while current_step < total:
    train_loss_metric.reset_state()
    accuracy.reset_state()
    steps = min(steps_per_loop, total - current_step)
    if steps == 1:
        train_single_step(train_iterator)
    else:
        train_steps(train_iterator, tf.convert_to_tensor(steps, dtype=tf.int32))
    current_step += steps
    print(
        "Train Step: %d/%d / loss = %s accuracy = %s lr = %.8f"
        % (
            current_step,
            total,
            _float_metric_value(train_loss_metric),
            _float_metric_value(accuracy),
            float(learning_rate(tf.constant(current_step))),
        )
    )
train_single_step(train_iterator)
print("iterations", optimizer.iterations.numpy(), "loss", float(train_loss_metric.result()))
