"""A functional model with several inputs, all in Keras."""
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers, regularizers
from tensorflow.keras.applications import EfficientNetB0, ResNet50
from tensorflow.keras.applications.resnet50 import preprocess_input

strategy = tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.HierarchicalCopyAllReduce())  #: differs XLA


def residual(x, filters):
    kept = x
    x = layers.Conv2D(filters, 3, padding="same", kernel_regularizer=regularizers.l2(1e-4))(x)
    x = layers.BatchNormalization(momentum=0.9)(x)
    x = layers.Activation("relu")(x)
    return layers.add([x, kept])


with strategy.scope():
    image = keras.Input((32, 32, 3), name="image")
    extra = keras.Input((4,), name="extra")
    x = layers.Rescaling(1.0 / 255)(image)
    x = layers.RandomFlip("horizontal")(x)
    x = residual(layers.Conv2D(16, 3, padding="same")(x), 16)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.concatenate([x, extra])
    print(x.shape[-1], len(image.shape), tuple(x.shape))
    print(x.shape.as_list(), image.shape[1:].rank)  #: missing get_shape
    out = layers.Dense(10, activation="softmax", name="label")(x)
    model = keras.Model(inputs=[image, extra], outputs=out)
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 1000, 0.9, staircase=True)
    model.compile(
        optimizer=keras.optimizers.SGD(rate, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
        steps_per_execution=10)

data = {"image": np.zeros((64, 32, 32, 3)), "extra": np.zeros((64, 4))}
target = np.zeros(64)
model.fit(data, target, batch_size=16, epochs=2, validation_split=0.2, callbacks=[
    keras.callbacks.ReduceLROnPlateau(factor=0.5, patience=1),
    keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1)),
    keras.callbacks.BackupAndRestore("backup"),  #: differs
])
print(model.evaluate(data, target, return_dict=True), model.predict(data).shape)
keras.utils.plot_model(model, show_shapes=True)
base = ResNet50(weights=None, include_top=False, input_tensor=image)
base.trainable = False
for layer in base.layers[-3:]:
    layer.trainable = True
    print(layer.name, layer.__class__.__name__, [w.shape for w in layer.weights])
features = keras.utils.get_file("weights.h5", "https://example.com/weights.h5")
model.load_weights(features, by_name=True)
