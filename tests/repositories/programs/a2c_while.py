"""Rollouts by `tf.while_loop` with TensorArrays of known size, and generalised advantages."""

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(11)
T, BATCH, OBS, ACTIONS = 6, 4, 3, 2


def dense(n, m):
    return tf.Variable(rng.normal(0, 0.5, (n, m)).astype(np.float32))


class Policy(tf.Module):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.w1 = dense(OBS, 8)
        self.pi = dense(8, ACTIONS)
        self.v = dense(8, 1)

    @tf.Module.with_name_scope
    def __call__(self, obs):
        h = tf.nn.tanh(tf.matmul(obs, self.w1))
        return tf.matmul(h, self.pi), tf.squeeze(tf.matmul(h, self.v), axis=-1)


policy = Policy(name="policy")
optimizer = tf.keras.optimizers.RMSprop(1e-2)


def env_step(obs, action):
    drift = tf.where(action == 1, 0.3, -0.2)
    nxt = 0.9 * obs + drift[:, tf.newaxis] * tf.constant([[1.0, -0.5, 0.25]])
    reward = 1.0 - tf.reduce_sum(tf.abs(nxt), axis=1)
    return nxt, reward


def rollout(obs):
    arrays = (
        tf.TensorArray(tf.float32, size=T, element_shape=(BATCH, OBS)),
        tf.TensorArray(tf.int32, size=T, element_shape=(BATCH,)),
        tf.TensorArray(tf.float32, size=T, element_shape=(BATCH,)),
    )

    def body(t, obs, observations, actions, rewards):
        logits, _ = policy(obs)
        action = tf.argmax(logits, axis=-1, output_type=tf.int32)
        observations = observations.write(t, obs)
        actions = actions.write(t, action)
        obs, reward = env_step(obs, action)
        rewards = rewards.write(t, reward)
        return t + 1, obs, observations, actions, rewards

    _, last, observations, actions, rewards = tf.while_loop(
        lambda t, *_: t < T, body, (tf.constant(0), obs) + arrays, parallel_iterations=1
    )
    return observations.stack(), actions.stack(), rewards.stack(), last


def gae(rewards, values, last_value, gamma=0.97, lam=0.9):
    advantages = tf.TensorArray(tf.float32, size=T)
    gain = tf.zeros_like(last_value)
    for t in tf.range(T - 1, -1, -1):
        following = tf.cond(t == T - 1, lambda: last_value, lambda: values[t + 1])
        delta = rewards[t] + gamma * following - values[t]
        gain = delta + gamma * lam * gain
        advantages = advantages.write(t, gain)
    return advantages.stack()


@tf.function
def update(obs):
    observations, actions, rewards, last = rollout(obs)
    _, last_value = policy(last)
    flat = tf.reshape(observations, [-1, OBS])
    _, values = policy(flat)
    values = tf.reshape(values, [T, BATCH])
    advantages = tf.stop_gradient(gae(rewards, values, last_value))
    returns = advantages + tf.stop_gradient(values)
    with tf.GradientTape() as tape:
        logits, v = policy(flat)
        xent = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.reshape(actions, [-1]), logits=logits
        )
        policy_loss = tf.reduce_mean(xent * tf.reshape(advantages, [-1]))
        value_loss = tf.reduce_mean(tf.square(v - tf.reshape(returns, [-1])))
        loss = policy_loss + 0.5 * value_loss
    grads = tape.gradient(loss, policy.trainable_variables)
    grads, norm = tf.clip_by_global_norm(grads, 0.5)
    optimizer.apply_gradients(zip(grads, policy.trainable_variables))
    return {"loss": loss, "norm": norm, "reward": tf.reduce_mean(rewards)}


start = tf.constant(rng.normal(size=(BATCH, OBS)).astype(np.float32))
for i in range(5):
    logs = update(start)
    print(i, {k: round(float(v), 5) for k, v in sorted(logs.items())})
print([v.name.split("/")[-1].split(":")[0] for v in policy.trainable_variables])
