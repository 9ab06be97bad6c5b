"""Deep Q-learning: replay memory, target network, Huber loss, one-hot actions."""

import random
from collections import deque

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

random.seed(9)
np.random.seed(9)
num_actions = 3
gamma = 0.9
batch_size = 8


def create_q_model():
    inputs = layers.Input(shape=(4,))
    layer1 = layers.Dense(12, activation="relu")(inputs)
    action = layers.Dense(num_actions, activation="linear")(layer1)
    return keras.Model(inputs=inputs, outputs=action)


model = create_q_model()
model_target = create_q_model()
model.set_weights([np.random.normal(0, 0.3, w.shape) for w in model.get_weights()])
model_target.set_weights(model.get_weights())
optimizer = keras.optimizers.Adam(learning_rate=0.01, clipnorm=1.0)
loss_function = keras.losses.Huber()
memory = deque(maxlen=64)


def environment(state, action):
    state_next = 0.8 * state + 0.1 * np.array([1.0, -1.0, action - 1.0, 0.3])
    reward = float(-np.abs(state_next[2]))
    return state_next, reward, bool(np.abs(state_next).max() > 1.5)


@tf.function
def train(state_sample, action_sample, rewards_sample, state_next_sample, done_sample):
    future_rewards = model_target(state_next_sample)
    updated_q_values = rewards_sample + gamma * tf.reduce_max(future_rewards, axis=1)
    updated_q_values = updated_q_values * (1 - done_sample) - done_sample
    masks = tf.one_hot(action_sample, num_actions)
    with tf.GradientTape() as tape:
        q_values = model(state_sample)
        q_action = tf.reduce_sum(tf.multiply(q_values, masks), axis=1)
        loss = loss_function(updated_q_values, q_action)
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss


epsilon, frame_count = 1.0, 0
for episode in range(4):
    state = np.random.normal(size=4)
    episode_reward = 0.0
    for timestep in range(12):
        frame_count += 1
        if epsilon > np.random.rand():
            action = np.random.choice(num_actions)
        else:
            state_tensor = tf.convert_to_tensor(state)
            state_tensor = tf.expand_dims(state_tensor, 0)
            action_probs = model(state_tensor, training=False)
            action = tf.argmax(action_probs[0]).numpy()
        epsilon = max(0.1, epsilon - 0.03)
        state_next, reward, done = environment(state, action)
        episode_reward += reward
        memory.append((state, action, state_next, reward, float(done)))
        state = state_next
        if frame_count % 4 == 0 and len(memory) > batch_size:
            sample = random.sample(list(memory), batch_size)
            states, actions, nexts, rewards, dones = (np.array(x) for x in zip(*sample))
            loss = train(
                tf.convert_to_tensor(states, tf.float32),
                tf.convert_to_tensor(actions),
                tf.convert_to_tensor(rewards, dtype=tf.float32),
                tf.convert_to_tensor(nexts, tf.float32),
                tf.convert_to_tensor(dones, dtype=tf.float32),
            )
            print("frame", frame_count, "loss", loss.numpy())
        if frame_count % 16 == 0:
            model_target.set_weights(model.get_weights())
        if done:
            break
    print("episode", episode, "reward", episode_reward)
