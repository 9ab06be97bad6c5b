"""Keras 2 as it was written in 2020."""
import tensorflow as tf
from tensorflow.keras.callbacks import EarlyStopping, ModelCheckpoint, TensorBoard
from tensorflow.keras.layers import Dense, Dropout, CuDNNLSTM  #: missing layers.LSTM
from tensorflow.keras.models import Model, Sequential, load_model
from tensorflow.keras.preprocessing.image import ImageDataGenerator
from tensorflow.keras.utils import multi_gpu_model  #: missing strategy
from tensorflow.keras.optimizers import SGD, Adam


class Scale(tf.keras.layers.Layer):
    def build(self, input_shape):
        self.w = self.add_weight("w", shape=input_shape[1:])  #: differs name
        self.b = self.add_weight(shape=(1,), initializer="zeros", trainable=True)

    def call(self, x):
        self.add_metric(tf.reduce_sum(x), name="sum")  #: missing
        self.add_loss(tf.reduce_sum(self.w))
        return x * self.w + self.b


model = Sequential([Dense(64, activation="relu", input_dim=20), Scale(), Dropout(0.5)])
model.add(Dense(10, activation="softmax"))
sgd = SGD(lr=0.01, decay=1e-6, momentum=0.9, nesterov=True)  #: differs learning_rate
model.compile(loss="categorical_crossentropy", optimizer=sgd, metrics=["accuracy"])
callbacks = [
    EarlyStopping(monitor="val_loss", patience=2, restore_best_weights=True),
    ModelCheckpoint("weights.{epoch:02d}.tf", save_weights_only=True),  #: differs .weights.h5
    ModelCheckpoint("best.keras", save_best_only=True),
    TensorBoard(log_dir="logs", histogram_freq=1),  #: differs
]
generator = ImageDataGenerator(rescale=1.0 / 255, horizontal_flip=True)
flow = generator.flow_from_directory("images", target_size=(64, 64), batch_size=16)
model.fit_generator(flow, epochs=2, callbacks=callbacks)  #: missing model.fit
model.fit(flow, epochs=2, workers=4, use_multiprocessing=True)  #: missing PyDataset
classes = model.predict_classes(flow)  #: missing argmax
model.save("model", save_format="tf")  #: differs
model.save("model.h5")
loaded = load_model("model.h5", compile=False)
loaded.optimizer.lr = 0.1
print(tf.keras.backend.get_session())  #: missing
tf.keras.backend.clear_session()
optimizer = Adam(learning_rate=1e-3, clipnorm=1.0)
optimizer.get_weights()  #: missing
