"""What the guard concludes from the records that workers publish."""

import json
import time

import pytest

import unisono
from unisono._src.workers import watchdog


class Store:
    """The part of JAX's client that the guard uses, within one process."""

    def __init__(self):
        self.values = {}

    def key_value_set(self, key, value, allow_overwrite=False):
        if key in self.values and not allow_overwrite:
            raise RuntimeError(f"ALREADY_EXISTS: {key}")
        self.values[key] = value

    def key_value_dir_get(self, prefix):
        return [(k, v) for k, v in self.values.items() if k.startswith(prefix)]

    def key_value_delete(self, key):
        del self.values[key]

    def blocking_key_value_get(self, key, milliseconds):
        if key not in self.values:
            raise RuntimeError(f"DEADLINE_EXCEEDED: {key}")
        return self.values[key]


@pytest.fixture
def pair():
    """Returns two guards that are not started: they look when they are told."""
    store = Store()
    made = [watchdog.Guard(store, i, 2, watchdog.ASYNC, 30.0) for i in range(2)]
    for g in made:
        g._publish()
    return made


def look(*guards):
    for g in guards:
        g._exchange_records()


def test_workers_that_do_the_same_are_left_alone(pair):
    for k in range(5000):
        for g in pair:
            g.enter(("step", [(k % 3,)]))
    look(*pair, *pair)
    assert [g.verdict for g in pair] == [None, None]


@pytest.mark.parametrize("labels", [("a", "b"), (("f", [(1,)]), ("f", [(2,)]))])
def test_steps_that_differ_are_an_error_on_both(pair, labels):
    for g, label in zip(pair, labels):
        g.enter("first")
        g.enter(label)
    look(*pair, *pair)
    for g, other in zip(pair, (1, 0)):
        assert isinstance(g.verdict, unisono.errors.WorkerMismatchError)
        assert (g.verdict.worker, g.verdict.step) == (other, 2)
        with pytest.raises(
            unisono.errors.WorkerMismatchError, match="differ in step 2"
        ):
            g.enter("next")


def test_an_exception_reaches_the_other_with_its_traceback(pair):
    try:
        raise KeyError("the culprit")
    except KeyError as error:
        pair[1].fail(error)
    look(pair[0])
    assert isinstance(pair[0].verdict, unisono.errors.WorkerFailedError)
    assert "the culprit" in str(pair[0].verdict)
    assert "test_watchdog.py" in str(pair[0].verdict)


def test_the_worker_that_began_it_is_blamed():
    store = Store()
    watching, first, second = (
        watchdog.Guard(store, i, 3, watchdog.ASYNC, 30.0) for i in range(3)
    )
    first.fail(unisono.errors.WorkerFailedError("worker 2 failed", 2))
    second.fail(ValueError("the origin"))
    watching._exchange_records()
    assert watching.verdict.worker == 2
    assert "the origin" in str(watching.verdict)


def test_a_worker_that_left_is_missed_only_by_those_who_go_on(pair):
    for g in pair:
        g.enter("step")
    pair[1]._state = watchdog.LEFT
    pair[1]._publish()
    look(pair[0])
    assert pair[0].verdict is None
    pair[0].enter("step")
    look(pair[0])
    assert isinstance(pair[0].verdict, unisono.errors.WorkerLostError)
    assert "has ended its program after step 1" in str(pair[0].verdict)


def test_a_pause_of_all_workers_is_not_a_stall_of_the_last_to_go_on(pair):
    for g in pair:
        g.enter("step")
    look(*pair, *pair)
    now = time.monotonic() + 100.0
    pair[0].enter("step")
    assert pair[0]._judge(now, 1000.0) is None
    assert pair[0]._judge(now + 29.0, 1000.0) is None
    found = pair[0]._judge(now + 31.0, 1000.0)
    assert isinstance(found, unisono.errors.WorkerStalledError)
    assert found.worker == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"beat": 1}',
        json.dumps({"beat": "x", "step": 1, "state": "failed"}),
        '{"beat": 9, "step": 9, "state": "failed", "label": "", "error": "", '
        '"secondary": false, "recent": [[1]]}',
        "0" * 100_000,
    ],
)
def test_a_record_of_another_form_is_ignored(pair, text):
    pair[0]._client.values["unisono/guard/worker/1"] = text
    look(pair[0])
    assert pair[0].verdict is None


def test_a_step_that_is_taken_back_does_not_count(pair):
    pair[0].enter("step")
    pair[0].leave()
    for g in pair:
        g.enter("other")
    look(*pair, *pair)
    assert [g.verdict for g in pair] == [None, None]
    assert pair[0].step == 1


def test_what_has_nothing_to_do_with_workers_stays_as_it_is(pair):
    error = ValueError("a wrong shape")
    assert pair[0].explain(error) is error


def test_strict_workers_find_a_difference_before_the_step():
    store = Store()
    guards = [watchdog.Guard(store, i, 2, watchdog.STRICT, 30.0) for i in range(2)]
    store.key_value_set("unisono/guard/step/1/1", watchdog._shorten("theirs"))
    with pytest.raises(unisono.errors.WorkerMismatchError, match="theirs"):
        guards[0].enter("mine")


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="'async', 'strict' or 'off'"):
        unisono.distribute.MultiWorkerMirroredStrategy(guard="loose")
