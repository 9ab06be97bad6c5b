"""Keras is imported before TensorFlow: the lines must change places."""
import numpy as np
from keras.models import Sequential  #: missing import unisono
from keras.layers import Dense, LSTM
import tensorflow as tf

model = Sequential()
model.add(LSTM(8, return_sequences=False, input_shape=(10, 1)))
model.add(Dense(1))
model.compile(loss="mse", optimizer=tf.keras.optimizers.RMSprop(rho=0.9))
model.fit(np.zeros((32, 10, 1)), np.zeros(32), epochs=1, batch_size=8)
