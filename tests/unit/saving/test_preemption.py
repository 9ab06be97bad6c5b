"""The handler in one process: SIGTERM is noted, and answered between two steps."""

import logging
import os
import signal
import threading
import time

import pytest

import unisono
import unisono as uni
from unisono.distribute.experimental import (
    PreemptionCheckpointHandler,
    TerminationConfig,
)


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def make(tmp_path):
    """Makes handlers over a counter, and closes them."""
    made = []

    def one(v=None, config=None, directory=tmp_path):
        checkpoint = uni.train.Checkpoint(v=uni.Variable(0.0) if v is None else v)
        made.append(
            PreemptionCheckpointHandler(
                None, checkpoint, directory, termination_config=config
            )
        )
        return made[-1]

    before = signal.getsignal(signal.SIGTERM)
    yield one
    for handler in made:
        handler.close()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_during_a_step_saves_before_the_next_and_exits_with_42(make):
    v = uni.Variable(0.0)
    handler = make(v)
    for k in range(5):
        if k == 3:
            with pytest.raises(SystemExit) as ended:
                handler.run(v.assign_add, 1.0)
            assert ended.value.code == 42
            break
        result = handler.run(lambda k=k: (v.assign_add(1.0), k == 2 and terminate()))
        assert result[1] in (False, None)
    assert handler.total_run_calls == v.numpy() == 3
    again = uni.Variable(0.0)
    assert make(again).total_run_calls == again.numpy() == 3


def test_without_a_handler_and_after_it_sigterm_keeps_its_meaning(make):
    before = signal.getsignal(signal.SIGTERM)
    handler = make()
    assert signal.getsignal(signal.SIGTERM) is not before
    handler.close()
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_a_termination_config_gives_is_used(make):
    calls = []
    config = TerminationConfig(
        exit_fn=lambda: calls.append("exit"),
        save_fn=lambda *args, **kwargs: calls.append((args, kwargs)),
    )
    handler = make(config=config)
    terminate()
    handler.save_checkpoint_if_preempted("a", number=3)
    assert calls == [(("a",), {"number": 3}), "exit"]
    # The program has decided to go on; it is not stopped a second time.
    handler.run(calls.append, "ran")
    assert calls[2:] == ["ran"]


def test_a_watcher_function_takes_the_place_of_the_signal(make):
    before = signal.getsignal(signal.SIGTERM)
    wanted = threading.Event()
    handler = make(config=TerminationConfig(termination_watcher_fn=wanted.is_set))
    assert signal.getsignal(signal.SIGTERM) is before
    handler.run(lambda: None)
    wanted.set()
    with pytest.raises(SystemExit) as ended:
        for _ in range(500):
            handler.run(time.sleep, 0.01)
    assert ended.value.code == 42


def test_a_watcher_that_fails_is_not_silent(make):
    def watch():
        raise OSError("no metadata server")

    handler = make(config=TerminationConfig(termination_watcher_fn=watch))
    with pytest.raises(OSError, match="no metadata server"):
        for _ in range(500):
            handler.run(time.sleep, 0.01)


def test_a_grace_period_is_used_for_training(make):
    calls: list[int] = []
    config = TerminationConfig(
        grace_period=2.0, save_fn=lambda: calls.append(handler.total_run_calls)
    )
    handler = make(config=config)
    begun = time.monotonic()
    terminate()
    with pytest.raises(SystemExit):
        for _ in range(1000):
            handler.run(time.sleep, 0.01)
    assert time.monotonic() - begun < 2.0
    # One save at once, and one after more training; how much depends on the machine.
    first, second = calls
    assert first <= 1 < second == handler.total_run_calls


def test_a_scope_is_stopped_at_its_end(make):
    handler = make()
    done = []
    with pytest.raises(SystemExit):
        for epoch in range(3):
            with handler.watch_preemption_scope():
                if epoch == 1:
                    terminate()
                done.append(epoch)
    assert done == [0, 1]
    assert handler.total_run_calls == 2


def test_an_exception_of_a_step_is_not_counted(make):
    handler = make()
    with pytest.raises(KeyError):
        handler.run({}.__getitem__, 1)
    assert handler.total_run_calls == 0


def test_a_manager_and_its_interval_do_not_prevent_the_save(tmp_path):
    steps = uni.Variable(0)
    manager = uni.train.CheckpointManager(
        uni.train.Checkpoint(steps=steps),
        tmp_path,
        2,
        step_counter=steps,
        checkpoint_interval=100,
        last_checkpoint_step=0,
    )
    handler = PreemptionCheckpointHandler(None, manager)
    handler.run(steps.assign_add, 1)
    terminate()
    with pytest.raises(SystemExit):
        handler.run(steps.assign_add, 1)
    assert manager.latest_checkpoint.endswith("ckpt-1")


def test_what_cannot_work_is_refused_at_once(tmp_path):
    checkpoint = uni.train.Checkpoint(v=uni.Variable(0.0))
    with pytest.raises(ValueError, match="without checkpoint_dir"):
        PreemptionCheckpointHandler(None, checkpoint)
    with pytest.raises(TypeError, match="received str"):
        PreemptionCheckpointHandler(None, "a path")
    with pytest.raises(ValueError, match="a number of seconds >= 0"):
        TerminationConfig(grace_period=-1)
    spec = uni.train.ClusterSpec({"worker": ["localhost:1", "localhost:2"]})
    resolver = uni.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type="worker", task_id=1
    )
    with pytest.raises(RuntimeError, match="Make the MultiWorkerMirroredStrategy"):
        PreemptionCheckpointHandler(resolver, checkpoint, tmp_path)
    raised = []

    def elsewhere():
        try:
            PreemptionCheckpointHandler(None, checkpoint, tmp_path)
        except RuntimeError as error:
            raised.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "main thread" in raised[0]


def test_an_error_is_raised_again_where_no_preemption_was_seen(caplog):
    with caplog.at_level(logging.WARNING, "unisono"):
        watcher = unisono.distribute.experimental.PreemptionWatcher()
    assert "PreemptionCheckpointHandler" in caplog.text

    def train():
        try:
            raise ValueError("a mistake of the program")
        except ValueError:
            if watcher.preemption_message:
                return watcher.block_until_worker_exit()
            raise

    with pytest.raises(ValueError, match="a mistake"):
        train()
