"""A trainer and controller as Orbit has them: loops of steps inside one function."""

import abc
import os
import tempfile

import numpy as np
import tensorflow as tf


class StandardTrainer(tf.Module, metaclass=abc.ABCMeta):
    def __init__(self, train_dataset, use_tf_while_loop=True, use_tf_function=True):
        super().__init__()
        self._train_dataset = train_dataset
        self._train_iter = None
        self._train_loop_fn = None
        self._use_tf_while_loop = use_tf_while_loop

    def create_train_loop_fn(self):
        if self._use_tf_while_loop:
            return create_tf_while_loop_fn(self.train_step)
        return create_loop_fn(self.train_step)

    def train(self, num_steps):
        self.train_loop_begin()
        if self._train_loop_fn is None:
            self._train_loop_fn = self.create_train_loop_fn()
        if self._train_iter is None:
            self._train_iter = tf.nest.map_structure(iter, self._train_dataset)
        self._train_loop_fn(self._train_iter, num_steps)
        return self.train_loop_end()

    @abc.abstractmethod
    def train_step(self, iterator):
        pass


def create_loop_fn(step_fn):
    def loop_fn(iterator, num_steps):
        step = 0
        while num_steps == -1 or step < num_steps:
            step_fn(iterator)
            step += 1

    return loop_fn


def create_tf_while_loop_fn(step_fn):
    @tf.function
    def loop_fn(iterator, num_steps):
        if not isinstance(num_steps, tf.Tensor):
            raise ValueError("`num_steps` should be a `tf.Tensor`.")
        for _ in tf.range(num_steps):
            with tf.name_scope(""):
                step_fn(iterator)

    return loop_fn


class LinearTrainer(StandardTrainer):
    def __init__(self, strategy, dataset, **kwargs):
        self.strategy = strategy
        with self.strategy.scope():
            self.global_step = tf.Variable(
                0,
                trainable=False,
                dtype=tf.int64,
                name="global_step",
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            self.model = tf.keras.Sequential(
                [
                    tf.keras.layers.Input((5,)),
                    tf.keras.layers.Dense(4, "relu"),
                    tf.keras.layers.Dense(1),
                ]
            )
            rng = np.random.RandomState(0)
            self.model.set_weights(
                [rng.normal(0, 0.4, w.shape) for w in self.model.get_weights()]
            )
            self.optimizer = tf.keras.optimizers.SGD(
                tf.keras.optimizers.schedules.PiecewiseConstantDecay([8], [0.1, 0.02]),
                momentum=0.9,
            )
            self.optimizer.build(self.model.trainable_variables)
            self.train_loss = tf.keras.metrics.Mean("train_loss", dtype=tf.float32)
        super().__init__(strategy.experimental_distribute_dataset(dataset), **kwargs)

    def train_loop_begin(self):
        self.train_loss.reset_state()

    def train_step(self, iterator):
        def step_fn(inputs):
            x, y = inputs
            with tf.GradientTape() as tape:
                error = tf.reduce_mean(tf.square(self.model(x, training=True) - y), axis=1)
                loss = tf.reduce_sum(error) / 8.0
            grads = tape.gradient(loss, self.model.trainable_variables)
            self.optimizer.apply_gradients(zip(grads, self.model.trainable_variables))
            self.train_loss.update_state(error)
            self.global_step.assign_add(1)

        self.strategy.run(step_fn, args=(next(iterator),))

    def train_loop_end(self):
        return {"loss": self.train_loss.result()}


class Controller:
    def __init__(self, trainer, manager, steps_per_loop):
        self.trainer, self.manager = trainer, manager
        self.steps_per_loop = steps_per_loop

    def train(self, steps):
        while self.trainer.global_step.numpy() < steps:
            current = int(self.trainer.global_step.numpy())
            num_steps = min(steps - current, self.steps_per_loop)
            with tf.summary.record_if(lambda: True):
                logs = self.trainer.train(tf.convert_to_tensor(num_steps, dtype=tf.int32))
            self.manager.save(checkpoint_number=self.trainer.global_step.numpy())
            print("step", self.trainer.global_step.numpy(), "loss", float(logs["loss"]))


rng = np.random.RandomState(15)
x = rng.normal(size=(40, 5)).astype(np.float32)
y = (x @ rng.normal(size=(5, 1))).astype(np.float32)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(8, drop_remainder=True)
folder = tempfile.mkdtemp()
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
for use_tf_while_loop in (True, False):
    trainer = LinearTrainer(strategy, dataset, use_tf_while_loop=use_tf_while_loop)
    checkpoint = tf.train.Checkpoint(
        model=trainer.model, optimizer=trainer.optimizer, step=trainer.global_step
    )
    manager = tf.train.CheckpointManager(
        checkpoint, os.path.join(folder, str(use_tf_while_loop)), max_to_keep=2
    )
    Controller(trainer, manager, 5).train(12)
    print([os.path.basename(path) for path in manager.checkpoints])
