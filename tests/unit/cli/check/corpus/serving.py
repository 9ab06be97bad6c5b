"""Export and load: signatures and modules."""
import tensorflow as tf


class Adder(tf.Module):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.total = tf.Variable(0.0, trainable=False)

    @tf.function(input_signature=[tf.TensorSpec(shape=[], dtype=tf.float32)])
    def add(self, x):
        return self.total.assign_add(x)

    @tf.Module.with_name_scope
    def __call__(self, x):
        return x + self.total


adder = Adder()
concrete = adder.add.get_concrete_function()
print(concrete.structured_outputs, concrete.inputs)
tf.saved_model.save(adder, "/tmp/adder", signatures={"serving_default": adder.add})  #: differs StableHLO
loaded = tf.saved_model.load("/tmp/adder")  #: differs StableHLO
print(loaded.add(tf.constant(1.0)), [v.name for v in adder.variables])
print(list(loaded.signatures.keys()))
converter = tf.lite.TFLiteConverter.from_saved_model("/tmp/adder")  #: missing LiteRT
converter.optimizations = [tf.lite.Optimize.DEFAULT]  #: missing
checkpoint = tf.train.Checkpoint(adder=adder)
manager = tf.train.CheckpointManager(checkpoint, "/tmp/c", max_to_keep=2)
manager.save()
latest = tf.train.latest_checkpoint("/tmp/c")
checkpoint.restore(manager.latest_checkpoint).assert_consumed()  #: differs format
print(tf.train.list_variables(latest))
average = tf.train.ExponentialMovingAverage(0.99)  #: differs
graph = adder.add.get_concrete_function().graph  #: missing
