"""REINFORCE on a made-up environment: an episode in Python, an update with a tape."""

import numpy as np
import tensorflow as tf
from tensorflow.keras import Sequential
from tensorflow.keras.layers import Dense
from tensorflow.keras.optimizers import Adam

gamma = 0.95


class Corridor:
    """Walk right to the end; the state is the position and the last action."""

    def __init__(self, n=5):
        self.n = n

    def reset(self):
        self.position, self.last = 0, 0
        return self._state()

    def _state(self):
        return np.array([self.position / self.n, self.last], np.float32)

    def step(self, action):
        self.position = max(0, self.position + (1 if action == 1 else -1))
        self.last = action
        done = self.position == self.n
        return self._state(), 1.0 if done else -0.1, done, {}


class Agent:
    def __init__(self, rng):
        self.rng = rng
        self.model = Sequential([Dense(8, activation="tanh"), Dense(2)])
        self.model(np.zeros((1, 2), np.float32))
        for w in self.model.trainable_variables:
            w.assign(rng.normal(0, 0.5, w.shape))
        self.optimizer = Adam(0.02)

    def act(self, state):
        prob = tf.nn.softmax(self.model(tf.expand_dims(state, 0))).numpy()[0]
        return int(self.rng.rand() < prob[1])

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2], tf.float32),
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None], tf.float32),
        ]
    )
    def update(self, states, actions, returns):
        returns = (returns - tf.math.reduce_mean(returns)) / (
            tf.math.reduce_std(returns) + 1e-6
        )
        with tf.GradientTape() as tape:
            logits = self.model(states)
            neg_logprob = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=actions, logits=logits
            )
            probs = tf.nn.softmax(logits)
            entropy = -tf.reduce_sum(probs * tf.math.log(probs + 1e-8), axis=1)
            loss = tf.reduce_mean(neg_logprob * returns) - 0.01 * tf.reduce_mean(entropy)
        grads = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.model.trainable_variables))
        return loss


def discount(rewards):
    total, out = 0.0, []
    for r in reversed(rewards):
        total = r + gamma * total
        out.append(total)
    return np.array(out[::-1], np.float32)


env, agent = Corridor(), Agent(np.random.RandomState(8))
for episode in range(6):
    state, done = env.reset(), False
    states, actions, rewards = [], [], []
    while not done and len(states) < 30:
        action = agent.act(state)
        states.append(state)
        actions.append(action)
        state, reward, done, _ = env.step(action)
        rewards.append(reward)
    loss = agent.update(
        tf.convert_to_tensor(np.stack(states)),
        tf.convert_to_tensor(actions, dtype=tf.int32),
        tf.convert_to_tensor(discount(rewards)),
    )
    print("Episode {}: steps {}, loss {:.6f}".format(episode, len(rewards), loss))
print("probability", tf.nn.softmax(agent.model(np.zeros((1, 2), np.float32))).numpy())
