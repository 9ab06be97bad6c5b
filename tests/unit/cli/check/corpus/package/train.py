"""The names come from other modules of the package."""
from . import common
from .common import Base, tf
from package import keras as k
import package.tools.losses as losses


class Net(Base):
    def __init__(self):
        super().__init__()
        self.dense = k.layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = losses.dice(y, self(x, training=True))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss, "rate": self.rate()}


net = Net()
net.set_up("/tmp")
net.compile(common.keras.optimizers.Adam(lr=0.1))  #: differs learning_rate
net.fit(common.tf.zeros([3, 1]), common.tf.zeros([3, 1]))
print(net.folder, net.ckpt.save("/tmp/x"), common.log.name)
common.tf.lite.TFLiteConverter.from_keras_model(net)  #: missing
net.predict_proba(None)  #: missing model.predict
