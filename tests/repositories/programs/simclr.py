"""SimCLR: contrastive learning whose negatives come from all replicas."""

import numpy as np
import tensorflow as tf
from tensorflow import keras

LARGE_NUM = 1e9
rng = np.random.RandomState(0)


def tpu_cross_replica_concat(tensor, strategy):
    num_replicas = strategy.num_replicas_in_sync
    replica_context = tf.distribute.get_replica_context()
    with tf.name_scope("tpu_cross_replica_concat"):
        ext_tensor = tf.scatter_nd(
            indices=[[replica_context.replica_id_in_sync_group]],
            updates=[tensor],
            shape=tf.concat([[num_replicas], tf.shape(tensor)], axis=0),
        )
        ext_tensor = replica_context.merge_call(
            lambda st, v: st.reduce("SUM", v, axis=None), args=(ext_tensor,)
        )
        return tf.reshape(ext_tensor, [-1] + ext_tensor.get_shape().as_list()[2:])


def add_contrastive_loss(hidden, hidden_norm=True, temperature=0.5, strategy=None):
    if hidden_norm:
        hidden = tf.math.l2_normalize(hidden, -1)
    hidden1, hidden2 = tf.split(hidden, 2, 0)
    batch_size = tf.shape(hidden1)[0]
    if strategy is not None:
        hidden1_large = tf.stop_gradient(tpu_cross_replica_concat(hidden1, strategy))
        hidden2_large = tf.stop_gradient(tpu_cross_replica_concat(hidden2, strategy))
        enlarged = tf.shape(hidden1_large)[0]
        replica_id = tf.cast(
            tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32
        )
        labels_idx = tf.range(batch_size) + replica_id * batch_size
        labels = tf.one_hot(labels_idx, enlarged * 2)
        masks = tf.one_hot(labels_idx, enlarged)
    else:
        hidden1_large, hidden2_large = hidden1, hidden2
        labels = tf.one_hot(tf.range(batch_size), batch_size * 2)
        masks = tf.one_hot(tf.range(batch_size), batch_size)
    logits_aa = tf.matmul(hidden1, hidden1_large, transpose_b=True) / temperature
    logits_aa = logits_aa - masks * LARGE_NUM
    logits_bb = tf.matmul(hidden2, hidden2_large, transpose_b=True) / temperature
    logits_bb = logits_bb - masks * LARGE_NUM
    logits_ab = tf.matmul(hidden1, hidden2_large, transpose_b=True) / temperature
    logits_ba = tf.matmul(hidden2, hidden1_large, transpose_b=True) / temperature
    loss_a = tf.nn.softmax_cross_entropy_with_logits(
        labels, tf.concat([logits_ab, logits_aa], 1)
    )
    loss_b = tf.nn.softmax_cross_entropy_with_logits(
        labels, tf.concat([logits_ba, logits_bb], 1)
    )
    loss = tf.reduce_mean(loss_a + loss_b)
    return loss, logits_ab, labels


class ProjectionHead(keras.layers.Layer):
    def __init__(self, out_dim=6, num_layers=2, **kwargs):
        self.num_layers = num_layers
        self.linear_layers = []
        super().__init__(**kwargs)
        for j in range(num_layers):
            self.linear_layers.append(
                keras.layers.Dense(
                    out_dim, use_bias=j == num_layers - 1, name="nl_%d" % j
                )
            )

    def call(self, inputs, training=None):
        hiddens_list = [tf.identity(inputs, "proj_head_input")]
        for j in range(self.num_layers):
            hiddens = self.linear_layers[j](hiddens_list[-1])
            if j != self.num_layers - 1:
                hiddens = tf.nn.relu(hiddens)
            hiddens_list.append(hiddens)
        return tf.identity(hiddens_list[-1], "proj_head_output"), hiddens_list[1]


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.base = keras.layers.Dense(8, activation="tanh")
        self.head = ProjectionHead()

    def call(self, x, training=False):
        feats = tf.split(x, num_or_size_splits=2, axis=-1)
        x = tf.concat(feats, 0)
        return self.head(self.base(x), training=training)[0]


class WarmUpAndCosineDecay(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, base, steps):
        super().__init__()
        self.base, self.steps = base, steps

    def __call__(self, step):
        warm = 2
        step = tf.cast(step, tf.float32)
        lr = step / float(warm) * self.base
        decay = keras.optimizers.schedules.CosineDecay(self.base, self.steps - warm)
        return tf.where(step < warm, lr, decay(step - warm))

    def get_config(self):
        return {"base": self.base, "steps": self.steps}


strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    model = Model()
    model(tf.zeros([2, 10]))
    model.set_weights(
        [rng.randn(*w.shape).astype("float32") * 0.4 for w in model.get_weights()]
    )
    schedule = WarmUpAndCosineDecay(0.5, 8)
    optimizer = keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True)
    optimizer.build(model.trainable_variables)
    loss_metric = keras.metrics.Mean("train/total_loss")
    acc = keras.metrics.Mean("train/contrast_acc")
data = rng.randn(24, 10).astype("float32")
ds = strategy.experimental_distribute_dataset(
    tf.data.Dataset.from_tensor_slices(data).batch(8).repeat()
)


def single_step(features):
    with tf.GradientTape() as tape:
        out = model(features, training=True)
        con_loss, logits, labels = add_contrastive_loss(out, strategy=strategy)
        acc.update_state(
            tf.cast(
                tf.equal(
                    tf.argmax(labels, 1), tf.argmax(tf.concat([logits, logits], 1), 1)
                ),
                tf.float32,
            )
        )
        reg = 1e-3 * tf.add_n(
            [
                tf.nn.l2_loss(v)
                for v in model.trainable_variables
                if "bias" not in v.name
            ]
        )
        loss = (con_loss + reg) / strategy.num_replicas_in_sync
    loss_metric.update_state(con_loss)
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))


@tf.function
def train_multiple_steps(iterator):
    strategy.run(single_step, (next(iterator),))


it = iter(ds)
for _ in range(8):
    train_multiple_steps(it)
    print(
        "step",
        int(optimizer.iterations.numpy()),
        "loss %.5f acc %.4f lr %.5f"
        % (
            loss_metric.result().numpy(),
            acc.result().numpy(),
            float(schedule(optimizer.iterations.numpy())),
        ),
    )
    loss_metric.reset_state()
    acc.reset_state()
print([round(float(tf.reduce_sum(tf.abs(v))), 4) for v in model.trainable_variables])
single, _, _ = add_contrastive_loss(model(data[:4]))
print("%.5f" % float(single))
