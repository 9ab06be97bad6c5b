"""A policy gradient with discounted returns."""
import collections
import tensorflow as tf

Episode = collections.namedtuple("Episode", "probs values rewards")
EPS = tf.keras.backend.epsilon()
huber = tf.keras.losses.Huber(reduction=tf.keras.losses.Reduction.SUM)


class ActorCritic(tf.keras.Model):
    def __init__(self, actions, hidden):
        super().__init__()
        self.common = tf.keras.layers.Dense(hidden, activation="relu")
        self.actor = tf.keras.layers.Dense(actions)
        self.critic = tf.keras.layers.Dense(1)

    def call(self, inputs: tf.Tensor):
        x = self.common(inputs)
        return self.actor(x), self.critic(x)


def env_step(action):
    return [0.0] * 4, 1.0, 0


def tf_env_step(action: tf.Tensor):
    return tf.numpy_function(env_step, [action], [tf.float32, tf.int32, tf.int32])


def run_episode(state, model, most):
    probs = tf.TensorArray(dtype=tf.float32, size=0, dynamic_size=True)
    rewards = tf.TensorArray(dtype=tf.int32, size=0, dynamic_size=True)
    for t in tf.range(most):
        state = tf.expand_dims(state, 0)
        logits, value = model(state)
        action = tf.random.categorical(logits, 1)[0, 0]
        probs = probs.write(t, tf.nn.softmax(logits)[0, action])
        state, reward, done = tf_env_step(action)
        rewards = rewards.write(t, reward)
        if tf.cast(done, tf.bool):
            break
    return probs.stack(), rewards.stack()


def returns_of(rewards, gamma):
    n = tf.shape(rewards)[0]
    found = tf.TensorArray(dtype=tf.float32, size=n)
    rewards = tf.cast(rewards[::-1], dtype=tf.float32)
    total = tf.constant(0.0)
    for i in tf.range(n):
        total = rewards[i] + gamma * total
        found = found.write(i, total)
    found = found.stack()[::-1]
    return (found - tf.math.reduce_mean(found)) / (tf.math.reduce_std(found) + EPS)


@tf.function(jit_compile=False)
def update(model, optimizer, states, actions, returns):
    with tf.GradientTape() as tape:
        logits, values = model(states)
        logs = tf.nn.sparse_softmax_cross_entropy_with_logits(actions, logits)  #: differs NaN
        loss = tf.reduce_sum(logs * returns) + huber(values, returns)
    grads, _ = tf.clip_by_global_norm(
        tape.gradient(loss, model.trainable_variables), 0.5)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss
