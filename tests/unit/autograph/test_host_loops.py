"""Loops of steps over `tf.range` run on the host, with one compiled step."""

import logging
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from unisono._src.execution import function as function_lib


@pytest.fixture
def traces(monkeypatch):
    """Count what is traced, by the name of the function."""
    found = []
    original = function_lib.Function._trace

    def trace(self, *args):
        found.append(self.__name__)
        return original(self, *args)

    monkeypatch.setattr(function_lib.Function, "_trace", trace)
    return found


def numbers(count=100, batch=1):
    data = np.arange(count, dtype=np.float32)
    return iter(tf.data.Dataset.from_tensor_slices(data).batch(batch))


def two_replicas():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def distributed(strategy, count=400, batch=4):
    data = tf.data.Dataset.from_tensor_slices(np.arange(count, dtype=np.float32))
    return iter(strategy.experimental_distribute_dataset(data.batch(batch)))


@pytest.mark.needs_devices(2)
def test_one_step_is_compiled_whatever_the_number_of_steps(traces):
    strategy = two_replicas()
    with strategy.scope():
        total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)

    @tf.function
    def train(iterator, steps):
        def step(x):
            total.assign_add(tf.reduce_sum(x))
            return tf.reduce_sum(x)

        loss = 0.0
        for _ in tf.range(steps):
            losses = strategy.run(step, args=(next(iterator),))
            loss += strategy.reduce("SUM", losses, axis=None)
        return loss

    iterator, taken = distributed(strategy), 0
    for steps in (3, jnp.asarray(50), 7, tf.Variable(5)):
        count = int(steps)
        wanted = np.arange(4 * taken, 4 * (taken + count)).sum()
        taken += count
        assert float(train(iterator, steps)) == wanted
    assert float(total) == np.arange(4 * taken).sum()
    assert traces == ["train", "_step"]


@pytest.mark.needs_devices(2)
def test_a_model_that_builds_itself_in_the_first_step_is_made_once(traces):
    strategy = two_replicas()
    made = []

    class Model:
        weight = None

        def __call__(self, x):
            if self.weight is None:
                self.weight = tf.Variable(
                    2.0, aggregation=tf.VariableAggregation.MEAN, name="weight"
                )
                made.append(self.weight)
            self.weight.assign(self.weight * 1.5)
            return tf.reduce_sum(self.weight * x)

    model = Model()

    @tf.function
    def train(iterator, steps):
        loss = 0.0
        for _ in tf.range(steps):
            found = strategy.run(model, args=(next(iterator),))
            loss = strategy.reduce("SUM", found, axis=None)
        return loss

    iterator = distributed(strategy)
    # 2 * 1.5 in the first step, and 2 * 1.5 ** 3 in the third one.
    assert float(train(iterator, 1)) == pytest.approx(3.0 * (0 + 1 + 2 + 3))
    assert float(train(iterator, 2)) == pytest.approx(6.75 * (8 + 9 + 10 + 11))
    assert len(made) == 1
    assert set(traces) == {"train", "_step"}


def test_a_model_that_builds_itself_without_run_is_made_in_the_first_step():
    made = []

    @tf.function
    def train(steps):
        for _ in tf.range(steps):
            if not made:
                made.append(tf.Variable(1.0))
            made[0].assign_add(1.0)
        return made[0].read_value()

    assert float(train(3)) == 4.0
    assert float(train(jnp.asarray(2))) == 6.0
    assert len(made) == 1


def test_a_body_without_run_is_one_compiled_step(traces):
    weight = tf.Variable(1.0)

    @tf.function
    def train(iterator, steps, rate):
        for _ in tf.range(steps):
            x = next(iterator)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((weight * x - 3 * x) ** 2)
            weight.assign_sub(rate * tape.gradient(loss, weight))
        return loss

    iterator, wanted, x = numbers(), 1.0, 0
    for steps, rate in ((3, 0.01), (5, 0.001), (jnp.asarray(2), 0.002)):
        found = train(iterator, steps, jnp.asarray(rate))
        for _ in range(int(steps)):
            loss = (wanted * x - 3 * x) ** 2
            wanted -= rate * 2 * (wanted * x - 3 * x) * x
            x += 1
        assert float(found) == pytest.approx(loss, rel=1e-5)
    assert float(weight) == pytest.approx(wanted, rel=1e-5)
    # The rate is an argument of the step: another one does not compile it again.
    assert traces.count("_step") == 1


def test_a_value_that_the_body_reads_may_differ_at_the_next_call(traces):
    @tf.function
    def scale(iterator, factor):
        def step(x):
            return x * factor

        total = tf.zeros([1])
        for _ in tf.range(2):
            total += step(next(iterator))
        return total

    iterator = numbers()
    assert scale(iterator, tf.constant(10.0)).tolist() == [10.0]
    assert scale(iterator, tf.constant(100.0)).tolist() == [500.0]
    assert traces.count("_step") == 1


def test_a_dataset_that_ends_in_the_middle_raises_the_error_of_tensorflow():
    total = tf.Variable(0.0)

    @tf.function
    def train(iterator, steps):
        for _ in tf.range(steps):
            total.assign_add(next(iterator)[0])
        return total.read_value()

    iterator = numbers(5)
    assert float(train(iterator, 3)) == 3.0
    with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
        train(iterator, 10)
    # The steps before the end have been done.
    assert float(total) == 10.0


def test_no_turn_leaves_everything_as_it_is():
    @tf.function
    def train(iterator, steps):
        total = 5.0
        for _ in tf.range(steps):
            total += next(iterator)[0]
        return total

    iterator = numbers()
    assert float(train(iterator, 0)) == 5.0
    assert float(train(iterator, jnp.asarray(0))) == 5.0
    assert float(next(iterator)[0]) == 0.0


@pytest.mark.needs_devices(2)
def test_nested_loops_metrics_and_prints_work(capfd, traces):
    strategy = two_replicas()
    with strategy.scope():
        total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
    mean = tf.metrics.Mean()

    @tf.function
    def train(iterator, epochs, steps):
        for epoch in tf.range(epochs):
            for _ in tf.range(steps):

                def step(x):
                    total.assign_add(tf.reduce_sum(x))
                    mean.update_state(x)

                strategy.run(step, args=(next(iterator),))
            tf.print("epoch", epoch, total.read_value())
        return total.read_value()

    iterator = distributed(strategy, batch=2)
    assert float(train(iterator, 2, 3)) == 66.0
    assert float(train(iterator, jnp.asarray(3), jnp.asarray(2))) == 276.0
    assert float(mean.result()) == 11.5
    assert capfd.readouterr().err.splitlines()[1] == "epoch 1 66"
    # One step, although the inner loop ran five times.
    assert traces.count("_step") == 2


@pytest.mark.needs_devices(2)
def test_epochs_over_a_dataset_take_all_of_it():
    strategy = two_replicas()
    with strategy.scope():
        total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
    data = tf.data.Dataset.from_tensor_slices(np.arange(10, dtype=np.float32)).batch(2)
    dataset = strategy.experimental_distribute_dataset(data)

    @tf.function
    def train(epochs):
        for _ in tf.range(epochs):
            for batch in dataset:
                strategy.run(
                    lambda x: total.assign_add(tf.reduce_sum(x)), args=(batch,)
                )
        return total.read_value()

    assert float(train(2)) == 90.0
    assert float(train(1)) == 135.0


@pytest.mark.needs_devices(2)
def test_while_with_run_compiles_one_step(traces):
    strategy = two_replicas()
    with strategy.scope():
        v = tf.Variable(1.0, aggregation=tf.VariableAggregation.MEAN)

    @tf.function
    def double(limit):
        turns = 0
        while v < limit:
            strategy.run(lambda: v.assign(v * 2))
            turns += 1
        return turns

    assert int(double(jnp.asarray(30.0))) == 5
    assert int(double(jnp.asarray(30.0))) == 0
    assert int(double(jnp.asarray(100.0))) == 2
    assert float(v) == 128.0
    assert traces.count("_step") == 1


def test_an_exception_in_a_step_puts_the_element_back():
    @tf.function
    def train(iterator, steps, kind):
        total = 0.0
        for _ in tf.range(steps):
            total += next(iterator)[0]
            if kind == "bad":
                raise ValueError("This step is bad.")
        return total

    iterator = numbers()
    assert float(train(iterator, 2, "good")) == 1.0
    with pytest.raises(ValueError, match="This step is bad"):
        train(iterator, 2, "bad")
    assert float(train(iterator, 2, "good")) == 5.0


def test_two_threads_may_call_one_function():
    @tf.function
    def total(iterator, steps):
        found = 0.0
        for _ in tf.range(steps):
            found += next(iterator)[0]
        return found

    sums = {}

    def run(name):
        iterator = numbers()
        sums[name] = [float(total(iterator, 10)) for _ in range(3)]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(sums.values()) == [[45.0, 145.0, 245.0]] * 3


@pytest.mark.parametrize("is_called", [False, True])
def test_a_concrete_function_of_a_loop_of_steps_is_refused_by_name(is_called):
    @tf.function
    def train(iterator, steps):
        total = 0.0
        for _ in tf.range(steps):
            total += next(iterator)[0]
        return total

    iterator = numbers()
    if is_called:
        train(iterator, 1)
    with pytest.raises(ValueError, match=r"runs on the host.*loop over tf\.range"):
        train.get_concrete_function(iterator, 3)


def test_a_long_loop_of_python_is_told_in_the_log(caplog):
    @tf.function
    def train(iterator):
        total = 0.0
        for _ in range(20):
            total += next(iterator)[0]
        return total

    with caplog.at_level(logging.WARNING, logger="unisono"):
        assert float(train(numbers())) == 190.0
    told = [r.getMessage() for r in caplog.records]
    assert len(told) == 1
    assert "for _ in tf.range(n)" in told[0]
    assert "test_host_loops.py" in told[0]


def test_random_numbers_go_on_from_step_to_step():
    generator = tf.random.Generator.from_seed(3)
    other = tf.random.Generator.from_seed(3)

    @tf.function
    def draw(iterator, steps):
        last = 0.0
        for _ in tf.range(steps):
            last = generator.uniform([]) + 0.0 * next(iterator)[0]
        return last

    wanted = [float(other.uniform([])) for _ in range(5)]
    iterator = numbers()
    # The trace that was given up has drawn none.
    assert float(draw(iterator, 2)) == pytest.approx(wanted[1])
    assert float(draw(iterator, 3)) == pytest.approx(wanted[4])


def test_a_loop_is_noticed_in_code_that_python_has_optimised(traces):
    def train(iterator, steps):
        total = 0.0
        for _ in tf.range(steps):
            total += next(iterator)[0]
        return total

    # Python replaces instructions of code that has run some times.
    for _ in range(20):
        train(numbers(), 2)
    assert float(tf.function(train)(numbers(), 3)) == 3.0
    assert traces == ["train", "_step"]


def test_another_number_of_steps_compiles_nothing(caplog):
    total = tf.Variable(0.0)

    @tf.function
    def train(iterator, steps):
        for i in tf.range(steps):
            total.assign_add(next(iterator)[0] + tf.cast(i, tf.float32))
        return total.read_value()

    iterator = numbers()
    train(iterator, 3)
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        train(iterator, 7)
        train(iterator, 41)
    assert not [r for r in caplog.records if "Compiling" in r.getMessage()]


def test_attributes_that_a_loop_assigns_are_kept_from_call_to_call():
    class State:
        total: object = 0.0

    state = State()

    @tf.function
    def add(iterator, steps):
        for _ in tf.range(steps):
            state.total = state.total + next(iterator)[0]
        return state.total

    iterator = numbers()
    # The trace that was given up has left nothing in the attribute.
    assert float(add(iterator, 3)) == 3.0
    assert float(add(iterator, 2)) == 10.0
    assert float(state.total) == 10.0


def test_return_in_a_loop_of_steps_ends_it():
    @tf.function
    def find(iterator, steps):
        for i in tf.range(steps):
            x = next(iterator)[0]
            if x > 3:
                return i, x
        return -1, 0.0

    iterator = numbers()
    assert [float(v) for v in find(iterator, 50)] == [4.0, 4.0]
    assert [float(v) for v in find(iterator, 1)] == [0.0, 5.0]
    assert [float(v) for v in find(iterator, 0)] == [-1.0, 0.0]
    assert float(next(iterator)[0]) == 6.0


def test_optional_elements_end_a_loop_where_the_dataset_ends():
    @tf.function
    def total(iterator, steps):
        found = 0.0
        for _ in tf.range(steps):
            element = iterator.get_next_as_optional()
            if not element.has_value():
                break
            found += element.get_value()[0]
        return found

    assert float(total(numbers(4), 10)) == 6.0


@pytest.mark.needs_devices(2)
def test_a_trainer_of_methods_equals_single_steps(traces):
    class Trainer:
        def __init__(self):
            self.strategy = two_replicas()
            with self.strategy.scope():
                mean = tf.VariableAggregation.MEAN
                self.weight = tf.Variable(1.0, aggregation=mean)
            self.loss = tf.metrics.Mean()
            data = np.arange(400, dtype=np.float32) % 7
            dataset = tf.data.Dataset.from_tensor_slices(data).batch(4)
            self.iterator = iter(self.strategy.experimental_distribute_dataset(dataset))

        def train_step(self, x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.weight * x - 3 * x) ** 2) / 2
            slope = tape.gradient(loss, self.weight)
            assert slope is not None
            self.weight.assign_sub(0.002 * slope)
            self.loss.update_state(loss)

        @tf.function
        def train_loop(self, steps):
            for _ in tf.range(steps):
                self.strategy.run(self.train_step, args=(next(self.iterator),))

        @tf.function
        def one(self):
            self.strategy.run(self.train_step, args=(next(self.iterator),))

    trainer, other = Trainer(), Trainer()
    for steps in (tf.constant(3), tf.constant(5), 2):
        trainer.train_loop(steps)
    for _ in range(10):
        other.one()
    assert float(trainer.weight) == pytest.approx(float(other.weight), rel=1e-6)
    assert float(trainer.loss.result()) == pytest.approx(float(other.loss.result()))
    assert traces.count("_step") == 1


def test_entries_of_containers_are_kept_from_turn_to_turn():
    @tf.function
    def f(iterator, steps):
        named = {"a": tf.constant(1.0)}
        listed: list[Any] = [0.0, tf.constant(5.0)]
        for _ in tf.range(steps):
            named["x"] = next(iterator)[0]
            listed[0] += named["x"] + named["a"]
        return named["x"], listed[0], listed[1]

    iterator = numbers()
    assert [float(v) for v in f(iterator, 3)] == [2.0, 6.0, 5.0]
    assert [float(v) for v in f(iterator, 2)] == [4.0, 9.0, 5.0]


def test_a_list_that_would_get_the_value_of_the_first_turn_only_is_an_error():
    @tf.function
    def f(iterator, steps):
        losses = []
        for _ in tf.range(steps):
            losses.append(next(iterator)[0])
        return losses

    for _ in range(2):
        with pytest.raises(
            TypeError, match="puts values into a list that was made out"
        ):
            f(numbers(), 1)


def test_a_scheduled_loop_of_steps_is_refused_by_name():
    cluster = tf.train.ClusterSpec({"worker": ["a:1"], "ps": ["b:1"]})
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(cluster),
        carrier=tf.distribute.coordinator.ThreadCarrier(synchronous=True),
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    @tf.function
    def train(iterator, steps):
        total = 0
        for _ in tf.range(steps):
            total += next(iterator)
        return total

    iterator = iter(
        coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(9))
    )
    with pytest.raises(ValueError, match="has no program, because it runs on the host"):
        coordinator.schedule(train, args=(iterator, 3))
    strategy.shutdown()


def test_an_attribute_that_is_set_before_the_loop_may_differ_at_the_next_call(traces):
    class Trainer:
        def scaled(self, x):
            return x * self.scale

        @tf.function
        def total(self, iterator, steps, factor):
            self.scale = factor * 2
            found = 0.0
            for _ in tf.range(steps):
                found += self.scaled(next(iterator)[0])
            return found

    trainer, iterator = Trainer(), numbers()
    assert float(trainer.total(iterator, 3, tf.constant(1.0))) == 6.0
    assert float(trainer.total(iterator, 2, tf.constant(10.0))) == 140.0
    assert traces.count("_step") == 1
    assert float(trainer.scale) == 20.0
