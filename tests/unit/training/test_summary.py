"""Scalars for TensorBoard, read back from the files that were written."""

import threading
import time
from concurrent import futures

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni
from unisono._src.input.sources import files
from unisono._src.workers import process_group

summary = uni.summary

# What TensorBoard's files hold, as far as scalars need it: (name, number, type).
MESSAGES = {
    "Value": [("tag", 1, "STRING"), ("simple_value", 2, "FLOAT")],
    "Summary": [("value", 1, "Value")],
    "Event": [
        ("wall_time", 1, "DOUBLE"),
        ("step", 2, "INT64"),
        ("file_version", 3, "STRING"),
        ("summary", 5, "Summary"),
    ],
}


@pytest.fixture(autouse=True)
def no_step():
    """Leaves no step behind, also of a test that ended early."""
    yield
    summary.experimental.set_step(None)


def event_class():
    """Returns the class of events, made by Google's protocol buffers."""
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    descriptor_pool = pytest.importorskip("google.protobuf.descriptor_pool")
    message_factory = pytest.importorskip("google.protobuf.message_factory")
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="test")
    for message, fields in MESSAGES.items():
        made = file.message_type.add(name=message)
        for name, number, kind in fields:
            field = made.field.add(name=name, number=number)
            field.label = (
                kinds.LABEL_REPEATED if name == "value" else kinds.LABEL_OPTIONAL
            )
            if kind in MESSAGES:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".test.{kind}"
            else:
                field.type = getattr(kinds, f"TYPE_{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.Event"))


def scalars(directory):
    """Returns (name, step, value) of every scalar that was written."""
    event, found = event_class(), []
    for path in sorted(directory.glob("events.out.tfevents*")):
        # It checks the checksums of every record.
        records = list(uni.data.TFRecordDataset(str(path)).as_numpy_iterator())
        assert event.FromString(records[0]).file_version == "brain.Event:2"
        for read in map(event.FromString, records[1:]):
            assert abs(read.wall_time - time.time()) < 600
            found += [(v.tag, read.step, v.simple_value) for v in read.summary.value]
    return found


def test_the_first_replica_alone_writes(tmp_path):
    strategy = uni.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    context = uni.distribute.get_replica_context
    writer = summary.create_file_writer(tmp_path)
    told = []

    def merged(strategy, x):
        summary.scalar("total", strategy.reduce("SUM", x, axis=None))

    def replica():
        number = 10.0 + context().replica_id_in_sync_group
        told.append(summary.should_record_summaries())
        told.append(summary.scalar("own", number))
        context().merge_call(merged, args=(number,))

    with writer.as_default(step=3):
        strategy.run(replica)
        assert summary.should_record_summaries()
    writer.close()
    assert told == [True, True, False, False]
    assert scalars(tmp_path) == [("own", 3, 10.0), ("total", 3, 21.0)]


def test_scalars_go_to_the_default_writer(tmp_path):
    writer = summary.create_file_writer(tmp_path)
    assert not summary.should_record_summaries()
    assert summary.scalar("loss", 1.0, step=0) is False
    with writer.as_default():
        assert summary.scalar("loss", jnp.float32(0.5), step=1)
        summary.experimental.set_step(uni.Variable(2))
        assert summary.scalar("loss", uni.Variable(0.25))
        with summary.record_if(False):
            assert not summary.scalar("loss", 9.0)
    summary.experimental.set_step(None)
    with writer.as_default(step=7):
        assert summary.experimental.get_step() == 7
        summary.scalar("accuracy", [0.75])
    assert summary.experimental.get_step() is None
    writer.close()
    assert scalars(tmp_path) == [
        ("loss", 1, 0.5),
        ("loss", 2, 0.25),
        ("accuracy", 7, 0.75),
    ]


def test_a_writer_can_be_the_default_for_good(tmp_path):
    writer = summary.create_file_writer(tmp_path, max_queue=1, flush_millis=10)
    writer.set_as_default(step=3)
    summary.scalar("x", 1)
    summary.flush()
    assert scalars(tmp_path) == [("x", 3, 1.0)]
    writer.close()
    assert not summary.should_record_summaries()
    summary.experimental.set_step(None)


def test_what_is_no_scalar_is_refused(tmp_path):
    writer = summary.create_file_writer(tmp_path)
    with writer.as_default():
        with pytest.raises(ValueError, match="No step set"):
            summary.scalar("x", 1.0)
        with pytest.raises(ValueError, match="shape"):
            summary.scalar("x", [1.0, 2.0], step=1)
        with pytest.raises(ValueError, match="shape"):
            uni.function(lambda x: summary.scalar("x", x, step=1))([1.0, 2.0])
    writer.close()


def test_only_the_first_worker_writes_unless_told(tmp_path, monkeypatch):
    group = process_group.ProcessGroup((("worker", 0), ("worker", 1)), ("", ""), 1)
    monkeypatch.setattr(process_group, "current", lambda: group)
    with summary.create_file_writer(tmp_path / "a").as_default():
        assert not summary.scalar("x", 1.0, step=0)
    assert not (tmp_path / "a").exists()
    writer = summary.create_file_writer(tmp_path / "b", every_worker=True)
    writer.close()
    assert (tmp_path / "b").exists()


def test_a_writer_of_nothing_writes_nothing():
    with summary.create_noop_writer().as_default():
        assert not summary.scalar("x", 1.0, step=0)


@pytest.mark.feature("V06")
def test_estimators_write_loss_and_metrics(tmp_path):
    optax = pytest.importorskip("optax")
    estimator = uni.estimator

    def model_fn(features, mode):
        w = uni.Variable(1.0, name="w")
        loss = w * jnp.mean(features)
        train_op = estimator.minimize(optax.sgd(0.0), loss)
        return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn():
        return uni.data.Dataset.range(8).map(lambda x: x / 1).batch(2)

    config = estimator.RunConfig(save_summary_steps=2)
    made = estimator.Estimator(model_fn, tmp_path, config)
    made.train(input_fn)
    made.evaluate(input_fn)
    assert scalars(tmp_path) == [("loss", 2, 2.5), ("loss", 4, 6.5)]
    assert scalars(tmp_path / "eval") == [("loss", 4, 3.5)]


def test_a_number_too_large_for_the_file_is_infinite(tmp_path):
    given = [1e39, -1e39, 10**400, -(10**400), jnp.inf, 3e38]
    with summary.create_file_writer(tmp_path).as_default(step=1) as writer:
        for number in given:
            assert summary.scalar("x", number)
    writer.close()
    found = [value for _, _, value in scalars(tmp_path)]
    inf = float("inf")
    assert found == [inf, -inf, inf, -inf, inf, pytest.approx(3e38)]


def test_the_summary_of_a_metric_is_its_result(tmp_path):
    metric = uni.metrics.Mean()
    metric.update_state([1.0, 2.0])
    with summary.create_file_writer(tmp_path).as_default(step=1) as writer:
        summary.scalar("metric", metric)
        summary.scalar("function", lambda: 2.5)
    writer.close()
    assert scalars(tmp_path) == [("metric", 1, 1.5), ("function", 1, 2.5)]
    assert float(metric.result()) == 1.5


def test_what_is_no_number_is_refused(tmp_path):
    strategy = uni.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def own_number():
        return uni.distribute.get_replica_context().replica_id_in_sync_group

    per_replica = strategy.run(own_number)
    with summary.create_file_writer(tmp_path).as_default(step=1) as writer:
        with pytest.raises(ValueError, match=r"'x'.* each replica.*strategy\.reduce"):
            summary.scalar("x", per_replica)
        for given in ("text", None, {"a": 1}, 1j):
            kind = type(given).__name__
            with pytest.raises(ValueError, match=f"'x' is no number.*{kind}"):
                summary.scalar("x", given)
        reduced = strategy.reduce("SUM", per_replica, axis=None)
        assert summary.scalar("x", reduced)
    writer.close()
    assert scalars(tmp_path) == [("x", 1, 1.0)]


def test_threads_write_one_after_the_other(tmp_path, monkeypatch):
    inside, most = [], []

    class Slow(files.TFRecordWriter):
        def write(self, record):
            inside.append(record)
            most.append(len(inside))
            time.sleep(0.001)
            super().write(record)
            inside.pop()

    monkeypatch.setattr(files, "TFRecordWriter", Slow)
    writer = summary.create_file_writer(tmp_path)

    def write(number):
        return [writer.write_scalar(str(number), i, i) for i in range(10)]

    with futures.ThreadPoolExecutor(4) as pool:
        assert all(map(all, pool.map(write, range(4))))
    writer.close()
    assert max(most) == 1
    wanted = [(str(n), i, i) for n in range(4) for i in range(10)]
    assert sorted(scalars(tmp_path)) == wanted


def test_each_thread_writes_to_its_own_default_writer(tmp_path):
    meet = threading.Barrier(2, timeout=60)

    def write(name, step):
        assert summary.experimental.get_step() is None
        writer = summary.create_file_writer(tmp_path / name)
        meet.wait()
        with writer.as_default(step=step):
            meet.wait()  # Both have a default writer now.
            with summary.record_if(name == "a"):
                meet.wait()
                summary.scalar("inside", step)
                meet.wait()
            summary.scalar("after", step)
            meet.wait()
        assert not summary.should_record_summaries()
        writer.close()

    with futures.ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write, "a", 1), pool.submit(write, "b", 2)]:
            done.result()
    assert scalars(tmp_path / "a") == [("inside", 1, 1.0), ("after", 1, 1.0)]
    assert scalars(tmp_path / "b") == [("after", 2, 2.0)]


def test_a_new_thread_has_no_writer_and_no_step_and_records(tmp_path):
    own = summary.create_file_writer(tmp_path / "own")

    def look():
        found = summary.should_record_summaries(), summary.experimental.get_step()
        with own.as_default():
            return *found, summary.should_record_summaries()

    writer = summary.create_file_writer(tmp_path / "main")
    with writer.as_default(step=3), summary.record_if(False):
        with futures.ThreadPoolExecutor(1) as pool:
            assert pool.submit(look).result() == (False, None, True)
        assert summary.experimental.get_step() == 3
    own.close()
    writer.close()


def test_replicas_share_the_writer_of_the_thread_that_runs_them(tmp_path):
    strategy = uni.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    own = summary.create_file_writer(tmp_path / "own")

    def step():
        context = uni.distribute.get_replica_context()
        index = int(context.replica_id_in_sync_group)
        summary.scalar(f"before {index}", index)
        if index == 1:
            own.set_as_default(step=5)
        context.merge_call(lambda strategy: None)
        summary.scalar(f"after {index}", index)

    writer = summary.create_file_writer(tmp_path / "main")
    with writer.as_default(step=4):
        strategy.run(step)
    own.close()
    writer.close()
    assert scalars(tmp_path / "main") == [("before 0", 4, 0.0)]
    assert scalars(tmp_path / "own") == [("after 0", 5, 0.0)]


def test_a_compiled_step_writes_each_time_it_runs(tmp_path):
    # The numbers are TensorFlow's; it puts "cond/" and "while/" before two names.
    count, rate = uni.Variable(0), uni.Variable(2.0)

    @uni.function
    def step(x):
        count.assign_add(1)
        with uni.GradientTape() as tape:
            y = x * rate
            summary.scalar("tape", y, step=count)
        gradient = jnp.asarray(tape.gradient(y, rate))
        if gradient > 2.0:
            summary.scalar("branch", gradient * 10, step=count)
        with summary.record_if(count % 2 == 0):
            summary.scalar("even", y + 1, step=count)
            assert summary.scalar("number", 5.0, step=count)
        for i in uni.range(2):
            summary.scalar("loop", i, step=count * 10 + i)
        return y

    writer = summary.create_file_writer(tmp_path)
    with writer.as_default():
        for x in (1.0, 2.0, 3.0):
            step(np.float32(x))
    writer.close()
    step(np.float32(4.0))  # A closed writer writes nothing.
    assert sorted(scalars(tmp_path)) == [
        ("branch", 3, 30.0), ("even", 2, 5.0),
        ("loop", 10, 0.0), ("loop", 11, 1.0), ("loop", 20, 0.0), ("loop", 21, 1.0),
        ("loop", 30, 0.0), ("loop", 31, 1.0), ("number", 2, 5.0),
        ("tape", 1, 2.0), ("tape", 2, 4.0), ("tape", 3, 6.0),
    ]  # fmt: skip


def test_the_first_replica_of_a_compiled_step_alone_writes(tmp_path):
    strategy = uni.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    writer = summary.create_file_writer(tmp_path)

    @uni.function
    def step(x):
        def replica(x):
            y = x + uni.distribute.get_replica_context().replica_id_in_sync_group
            summary.scalar("own", y)
            return y

        with writer.as_default(step=5), uni.name_scope("all"):
            total = strategy.reduce("SUM", strategy.run(replica, (x,)), axis=None)
            summary.scalar("total", total)

    step(10.0)
    writer.close()
    assert sorted(scalars(tmp_path)) == [("all/own", 5, 10.0), ("all/total", 5, 21.0)]


def test_what_fails_in_a_compiled_step_is_raised_by_its_call(tmp_path, monkeypatch):
    writer = summary.create_file_writer(tmp_path)
    step = uni.function(lambda x: summary.scalar("x", x, step=1))

    def refuse(self, record):
        raise OSError("The disk is full.")

    with writer.as_default():
        step(1.0)
        monkeypatch.setattr("unisono.io.TFRecordWriter.write", refuse)
        with pytest.raises(OSError, match="disk is full"):
            step(2.0)
        monkeypatch.undo()
    writer.close()
    assert scalars(tmp_path) == [("x", 1, 1.0)]
