"""A trainer in the style of a loop library: a class with train(num_steps)."""
import abc
from typing import Dict, Optional, Union

import orbit
import tensorflow as tf


class StandardTrainer(tf.Module, metaclass=abc.ABCMeta):
    def __init__(self, train_dataset, use_tf_while_loop=True):
        self._train_dataset = train_dataset
        self._loop_fn = None
        self._iterator = None
        self._use_loop = use_tf_while_loop
        self.strategy = tf.distribute.get_strategy()
        self.global_step = tf.Variable(0, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)  #: differs 64

    def train(self, num_steps: tf.Tensor) -> Optional[Dict[str, tf.Tensor]]:
        self.train_loop_begin()
        if self._iterator is None:
            self._iterator = iter(self._train_dataset)
        if self._loop_fn is None:
            self._loop_fn = self.create_loop()
        self._loop_fn(self._iterator, num_steps)
        return self.train_loop_end()

    def create_loop(self):
        def loop(iterator, num_steps):
            if not isinstance(num_steps, tf.Tensor):
                raise ValueError("`num_steps` should be a tensor.")
            for _ in tf.range(num_steps):
                with tf.name_scope(""):
                    self.train_step(iterator)
        return tf.function(loop)

    def train_loop_begin(self):
        pass

    @abc.abstractmethod
    def train_step(self, iterator):
        """Implements one step."""

    def train_loop_end(self):
        return None


class Trainer(StandardTrainer):
    def __init__(self, strategy, model, dataset, optimizer):
        super().__init__(strategy.experimental_distribute_dataset(dataset))
        self.model, self.optimizer = model, optimizer
        self.loss = tf.keras.metrics.Mean("loss", dtype=tf.float32)

    def train_loop_begin(self):
        self.loss.reset_state()

    def train_step(self, iterator):
        def step_fn(inputs):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self.model(inputs))
            grads = tape.gradient(loss, self.model.trainable_variables)
            self.optimizer.apply_gradients(zip(grads, self.model.trainable_variables))
            self.loss.update_state(loss)
            self.global_step.assign_add(1)
        self.strategy.run(step_fn, args=(next(iterator),))

    def train_loop_end(self):
        return {"loss": self.loss.result(), "rate": self.optimizer.learning_rate}


controller = orbit.Controller(strategy=None, trainer=None, global_step=None)
