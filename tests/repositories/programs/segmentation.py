"""A small U-Net trained by `fit` on two replicas, with a Dice loss and callbacks."""

import numpy as np
import tensorflow as tf
from tensorflow.keras import backend as K
from tensorflow.keras import layers, models

rng = np.random.RandomState(4)
X = rng.rand(24, 8, 8, 3).astype("float32")
Y = (X.mean(-1, keepdims=True) > 0.5).astype("float32")


def dice_coef(y_true, y_pred, smooth=1.0):
    y_true = K.cast(y_true, "float32") if hasattr(K, "cast") else y_true
    intersection = tf.reduce_sum(y_true * y_pred, axis=[1, 2, 3])
    union = tf.reduce_sum(y_true, axis=[1, 2, 3]) + tf.reduce_sum(y_pred, axis=[1, 2, 3])
    return (2.0 * intersection + smooth) / (union + smooth)


def bce_dice_loss(y_true, y_pred):
    bce = tf.keras.losses.binary_crossentropy(y_true, y_pred)
    return tf.reduce_mean(bce, axis=[1, 2]) + (1 - dice_coef(y_true, y_pred))


def conv_block(x, filters):
    for _ in range(2):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    return x


def unet():
    inputs = layers.Input((8, 8, 3))
    c1 = conv_block(inputs, 4)
    p1 = layers.MaxPooling2D()(c1)
    c2 = conv_block(p1, 8)
    u1 = layers.UpSampling2D()(c2)
    u1 = layers.Concatenate()([u1, c1])
    c3 = conv_block(u1, 4)
    return models.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(c3))


def schedule(epoch, lr):
    return lr if epoch < 1 else lr * 0.5


K.clear_session()
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    model = unet()
    model.compile(
        optimizer=tf.keras.optimizers.Adam(1e-2), loss=bce_dice_loss, metrics=["accuracy"]
    )
model.set_weights([rng.normal(0, 0.2, w.shape) for w in model.get_weights()])
history = model.fit(
    X,
    Y,
    batch_size=8,
    epochs=3,
    shuffle=False,
    validation_data=(X[:8], Y[:8]),
    verbose=0,
    callbacks=[
        tf.keras.callbacks.LearningRateScheduler(schedule),
        tf.keras.callbacks.EarlyStopping(monitor="val_loss", patience=5),
        tf.keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: print("epoch", epoch, sorted(logs))
        ),
    ],
)
for name in ("val_loss", "val_accuracy", "learning_rate"):
    print(name, [float(v) for v in history.history[name]])
print("predict", float(model.predict(X[:5], verbose=0).mean()))
