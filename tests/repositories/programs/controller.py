"""An orbit-like controller: trainer and evaluator, loops inside functions, optional ends, nested results."""

import abc, os, tempfile
import numpy as np
import tensorflow as tf
from tensorflow import keras


class AbstractTrainer(tf.Module, metaclass=abc.ABCMeta):
    @abc.abstractmethod
    def train(self, num_steps):
        pass


def create_loop_fn(step_fn):
    def loop_fn(iterator, num_steps, state=None, reduce_fn=None):
        step = 0
        while num_steps == -1 or step < num_steps:
            try:
                outputs = step_fn(iterator)
            except (tf.errors.OutOfRangeError, StopIteration):
                break
            if reduce_fn is not None:
                state = reduce_fn(state, outputs)
            step += 1
        return state

    return loop_fn


def create_tf_while_loop_fn(step_fn):
    @tf.function
    def loop_fn(iterator, num_steps):
        if not isinstance(num_steps, tf.Tensor):
            raise ValueError("`num_steps` should be a `tf.Tensor`.")
        for _ in tf.range(num_steps):
            step_fn(iterator)

    return loop_fn


class StandardTrainer(AbstractTrainer):
    def __init__(self, train_dataset, strategy):
        super().__init__(name="trainer")
        self._ds = train_dataset
        self._it = None
        self._loop = None
        self.strategy = strategy

    def train(self, num_steps):
        self.train_loop_begin()
        if self._it is None:
            self._it = iter(self._ds)
        if self._loop is None:
            self._loop = create_tf_while_loop_fn(self.train_step)
        self._loop(self._it, num_steps)
        return self.train_loop_end()


rng = np.random.RandomState(0)
X = rng.randn(48, 4).astype("float32")
Y = X @ np.float32([[1.0], [-2.0], [0.5], [0.0]])


class Task(StandardTrainer):
    def __init__(self, strategy):
        with strategy.scope():
            self.model = keras.Sequential(
                [
                    keras.Input((4,)),
                    keras.layers.Dense(6, activation="tanh"),
                    keras.layers.Dense(1),
                ]
            )
            self.model.set_weights(
                [
                    np.random.RandomState(i).randn(*w.shape) * 0.3
                    for i, w in enumerate(self.model.get_weights())
                ]
            )
            self.optimizer = keras.optimizers.Adam(
                keras.optimizers.schedules.PolynomialDecay(0.05, 20, 0.001)
            )
            self.optimizer.build(self.model.trainable_variables)
            self.global_step = tf.Variable(
                0,
                dtype=tf.int64,
                trainable=False,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            self.train_loss = keras.metrics.Mean("train_loss")
            self.eval_loss = keras.metrics.Mean("eval_loss")
        ds = strategy.experimental_distribute_dataset(
            tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).repeat()
        )
        super().__init__(ds, strategy)
        self.eval_ds = strategy.experimental_distribute_dataset(
            tf.data.Dataset.from_tensor_slices((X, Y)).batch(10)
        )

    def train_loop_begin(self):
        self.train_loss.reset_state()

    def train_step(self, iterator):
        def step_fn(inputs):
            x, y = inputs
            with tf.GradientTape() as tape:
                per = tf.reduce_mean(tf.square(self.model(x, training=True) - y), -1)
                loss = tf.reduce_sum(per) / 8
            grads = tape.gradient(loss, self.model.trainable_variables)
            grads, _ = tf.clip_by_global_norm(grads, 1.0)
            self.optimizer.apply_gradients(
                list(zip(grads, self.model.trainable_variables))
            )
            self.train_loss.update_state(per)
            self.global_step.assign_add(1)

        self.strategy.run(step_fn, args=(next(iterator),))

    def train_loop_end(self):
        return {"loss": self.train_loss.result(), "lr": self.optimizer.learning_rate}

    def eval_step(self, iterator):
        def step_fn(inputs):
            x, y = inputs
            p = self.model(x, training=False)
            self.eval_loss.update_state(tf.reduce_mean(tf.square(p - y), -1))
            return {"sum": tf.reduce_sum(p), "count": tf.shape(x)[0]}

        out = self.strategy.run(step_fn, args=(next(iterator),))
        return tf.nest.map_structure(self.strategy.experimental_local_results, out)

    def evaluate(self, num_steps=-1):
        self.eval_loss.reset_state()

        def reduce(state, outs):
            s, n = state or (0.0, 0)
            return s + sum(float(v) for v in outs["sum"]), n + sum(
                int(v) for v in outs["count"]
            )

        state = create_loop_fn(tf.function(self.eval_step))(
            iter(self.eval_ds), num_steps, reduce_fn=reduce
        )
        return {
            "eval_loss": self.eval_loss.result(),
            "sum": state[0],
            "count": state[1],
        }


class Controller:
    def __init__(self, trainer, manager, steps_per_loop):
        self.t, self.m, self.n = trainer, manager, steps_per_loop

    def restore(self):
        p = self.m.restore_or_initialize()
        print(
            "restored",
            None if p is None else os.path.basename(p),
            self.t.global_step.numpy(),
        )

    def train(self, steps):
        while self.t.global_step.numpy() < steps:
            n = min(self.n, steps - self.t.global_step.numpy())
            with tf.summary.record_if(False):
                out = self.t.train(tf.convert_to_tensor(n, dtype=tf.int32))
            out = tf.nest.map_structure(
                lambda v: round(float(v.numpy() if hasattr(v, "numpy") else v), 5), out
            )
            print("step", self.t.global_step.numpy(), out)
            self.m.save(checkpoint_number=self.t.global_step.numpy())

    def evaluate(self, n=-1):
        print(
            "eval",
            {k: round(float(v), 4) for k, v in sorted(self.t.evaluate(n).items())},
        )


folder = tempfile.mkdtemp()


def make():
    s = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    t = Task(s)
    ck = tf.train.Checkpoint(
        model=t.model, optimizer=t.optimizer, global_step=t.global_step
    )
    return Controller(
        t,
        tf.train.CheckpointManager(
            ck, folder, max_to_keep=3, step_counter=t.global_step
        ),
        4,
    )


c = make()
c.restore()
c.train(10)
c.evaluate()
c.evaluate(2)
c2 = make()
c2.restore()
c2.evaluate()
c2.train(12)
print(
    [v.name for v in c.t.trainable_variables]
    if False
    else len(c.t.model.trainable_variables),
    isinstance(c.t, tf.Module),
    c.t.name,
)
