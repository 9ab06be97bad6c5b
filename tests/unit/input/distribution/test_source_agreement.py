"""Workers that share a dataset find out that theirs differ; here they are threads."""

import threading

import numpy as np
import pytest

import unisono as tf
from unisono._src.foundation import errors
from unisono._src.input.distribution import sharding_rule, source_agreement

Dataset = tf.data.Dataset
Policy = sharding_rule.Policy


class NoteExchanges:
    """Exchanges of workers that are threads of one process."""

    def __init__(self, workers):
        self.workers = workers
        self.rounds = 0
        self._notes = {}
        self._changed = threading.Condition()

    def make(self, worker, topic="plan"):
        return NoteExchange(self, worker, topic)

    def exchange(self, key, worker, note, waits):
        with self._changed:
            self.rounds += 1
            found = self._notes.setdefault(key, {})
            found[worker] = note
            self._changed.notify_all()
            if not waits:
                return None
            if not self._changed.wait_for(lambda: len(found) == self.workers, 10):
                late = next(i for i in range(self.workers) if i not in found)
                raise errors.WorkerStalledError("late", late)
            return [found[i] for i in range(self.workers)]


class NoteExchange:
    def __init__(self, exchanges, worker, topic):
        self._exchanges, self._worker, self._topic = exchanges, worker, topic
        self._round = -1

    def post(self, note):
        return self._exchange(note, True)

    def leave(self, note):
        self._exchange(note, False)

    def _exchange(self, note, waits):
        self._round += 1
        key = (self._topic, self._round)
        return self._exchanges.exchange(key, self._worker, note, waits)

    def renew(self):
        return NoteExchange(self._exchanges, self._worker, f"{self._topic}, again")

    def cancel(self):
        pass

    def clear(self):
        pass


def on_all(workers, work):
    """Returns what `work(worker, exchanges)` returns or raises, and the exchanges."""
    exchanges = NoteExchanges(workers)
    told: list[object] = [None] * workers

    def run(worker):
        try:
            told[worker] = work(worker, exchanges)
        except Exception as error:
            told[worker] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told, exchanges


def compare_plans(make, workers=2, policy=Policy.AUTO):
    def work(worker, exchanges):
        node = make(worker)._node
        decision = sharding_rule.decide(node, policy)
        source_agreement.agree_on_plan(node, decision, exchanges.make(worker))
        return "same"

    return on_all(workers, work)


def read(make, workers=2, policy=Policy.DATA, state=None, passes=1):
    """Reads two elements in each of some passes over a dataset."""

    def work(worker, exchanges):
        node = make(worker)._node
        compare = source_agreement.Comparisons(
            node,
            sharding_rule.Decision(policy, policy, None),
            lambda topic: exchanges.make(worker, topic),
        )
        found = []
        for _ in range(passes):
            cursor = compare.open(node.cursor)
            if state is not None:
                cursor.set_state(state(worker))
            found.append([np.asarray(x).tolist() for x in cursor.read(2)])
            cursor.close()
        return found

    return on_all(workers, work)


def message(told):
    """Returns the message of the error that every worker raised."""
    assert {type(error) for error in told} == {errors.WorkerMismatchError}
    assert len({str(error) for error in told}) == 1
    return str(told[0])


def generated(elements):
    spec = tf.TensorSpec((), np.int64)
    return Dataset.from_generator(lambda: iter(elements), output_signature=spec)


def test_equal_plans_take_one_note_of_each_worker():
    told, exchanges = compare_plans(lambda w: Dataset.range(9).shuffle(4).batch(2), 3)
    assert told == ["same"] * 3
    assert exchanges.rounds == 3


def test_the_seeds_of_the_first_worker_become_those_of_all():
    made = [Dataset.range(50).shuffle(50) for _ in range(2)]
    compare_plans(lambda w: made[w])
    first, second = ([int(x) for x in dataset] for dataset in made)
    assert first == second


@pytest.mark.parametrize("place", [0, 700, 9999])
def test_the_error_names_the_first_of_many_files_that_differ(place):
    names = [f"/data/part-{i:05d}" for i in range(10_000)]

    def make(worker):
        own = list(names)
        if worker == 2:
            own[place] = "/data/other"
        return tf.data.TextLineDataset(own)

    told, exchanges = compare_plans(make, 3)
    found = message(told)
    assert f"worker 0 has file {place}: 'part-{place:05d}'; worker 2 has file" in found
    assert "'other'" in found
    assert "AutoShardPolicy.OFF" in found
    assert "distribute_datasets_from_function" in found
    assert {error.worker for error in told} == {2}
    # One round for the marks, one to compare 512 parts, one within a part, one text.
    assert exchanges.rounds == 3 * 4


def test_a_plan_that_is_longer_on_one_worker_is_a_difference():
    told, _ = compare_plans(lambda w: Dataset.range(9).batch(3).take(1 + w))
    assert "Take(count=1); worker 1 has Take(count=2)" in message(told)
    made = [Dataset.range(9).skip(1), Dataset.range(9)]
    told, _ = compare_plans(lambda w: made[w])
    assert "worker 1 has nothing: the plan is shorter" in message(told)


def test_other_policies_are_a_difference(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    files = [str(tmp_path / name) for name in "ab"]
    made = [tf.data.TextLineDataset(files), Dataset.range(4)]
    told, _ = compare_plans(lambda w: made[w])
    assert "AutoShardPolicy.FILE; worker 1 has AutoShardPolicy.DATA" in message(told)


def test_a_worker_whose_dataset_is_its_own_is_a_difference():
    def work(worker, exchanges):
        if worker:
            return source_agreement.tell_exempt("OFF", exchanges.make(worker))
        node = Dataset.range(4)._node
        decision = sharding_rule.decide(node, Policy.AUTO)
        return source_agreement.agree_on_plan(node, decision, exchanges.make(worker))

    told, _ = on_all(2, work)
    assert "the kind of dataset" in message(told[:1])
    assert told[1] is None


def test_arrays_and_files_are_not_compared_again_when_they_are_read():
    for dataset in (Dataset.range(9), Dataset.from_tensor_slices([1, 2]).map(int)):
        told, exchanges = read(lambda w, made=dataset: made, passes=3)
        assert told[0] == told[1]
        assert exchanges.rounds == 0


def test_equal_sources_take_one_note_of_each_worker_and_iterator():
    told, exchanges = read(lambda w: generated(range(9)), 3, passes=4)
    assert told == [[[0, 1]] * 4] * 3
    assert exchanges.rounds == 3 * 4


def test_the_error_names_the_first_element_that_differs():
    told, _ = read(lambda w: generated([5, 6 + w, 7]).batch(3))
    assert "element 1 of Generated: worker 0 has 6 (checksum" in message(told)


@pytest.mark.parametrize("policy", [Policy.DATA, Policy.HINT])
def test_a_source_that_ends_early_or_is_empty_on_one_worker_is_a_difference(policy):
    for size in (0, 3):
        told, _ = read(
            lambda w, n=size: generated(range(n if w else 9)).batch(4), policy=policy
        )
        assert f"element {size} of Generated" in message(told)
        assert f"no such element: its source ends after {size}" in message(told)


def test_elements_that_look_alike_at_first_are_told_apart():
    spec = tf.TensorSpec((9,), np.int64)
    rows = [np.zeros(9, np.int64), np.eye(9, dtype=np.int64)[8]]

    def make(worker):
        return Dataset.from_generator(
            lambda: iter([rows[worker]]), output_signature=spec
        )

    assert "worker 1 has [0, 0, 0, 0, ...] (checksum" in message(read(make)[0])


def test_workers_may_change_examples_at_random():
    rng = np.random.default_rng(0)
    told, _ = read(lambda w: generated(range(9)).map(lambda x: float(x) + rng.random()))
    assert not any(isinstance(t, Exception) for t in told)
    assert told[0] != told[1]


def test_a_filter_that_chooses_at_random_is_a_difference():
    rng = np.random.default_rng(0)
    lock = threading.Lock()

    def toss(x):
        with lock:
            return np.bool_(rng.random() < 0.5)

    told, _ = read(lambda w: Dataset.range(99).filter(toss).batch(20))
    assert "Filter(toss)" in message(told)


def test_names_of_files_may_differ_in_their_folder():
    def make(worker):
        names = [f"/mount{worker}/part-{i}".encode() for i in range(4)]
        return Dataset.from_generator(
            lambda: iter(names), output_signature=tf.TensorSpec((), tf.string)
        )

    told, _ = read(make, policy=Policy.FILE)
    assert not any(isinstance(t, Exception) for t in told)
    told, _ = read(make, policy=Policy.DATA)
    assert "/mount1/part-0" in message(told)


def test_a_worker_that_fails_tells_the_others():
    def broken():
        raise KeyError("no such file")

    spec = tf.TensorSpec((), np.int64)
    sources = [lambda: iter([1]), broken]
    told, _ = read(lambda w: Dataset.from_generator(sources[w], output_signature=spec))
    assert isinstance(told[0], errors.WorkerFailedError)
    assert "no such file" in str(told[0])
    assert told[0].worker == 1
    assert isinstance(told[1], KeyError)


def test_elements_are_compared_from_a_position_that_was_set():
    def state_of(make, count):
        cursor = make._node.cursor()
        cursor.read(count)
        return cursor.get_state()

    state = state_of(generated(range(40)), 30)
    told, exchanges = read(lambda w: generated(range(40)), state=lambda w: state)
    assert told == [[[30, 31]]] * 2
    assert exchanges.rounds == 2
    told, _ = read(lambda w: generated([*range(30), 7 + w, 8]), state=lambda w: state)
    assert "element 30 of Generated: worker 0 has 7" in message(told)


def test_workers_must_continue_at_the_same_element():
    def work(worker, exchanges, index):
        node = Dataset.range(9)._node
        decision = sharding_rule.decide(node, Policy.AUTO)
        compare = source_agreement.Comparisons(
            node, decision, lambda topic: exchanges.make(worker, topic)
        )
        compare.check_position(index[worker])
        return "same"

    assert on_all(2, lambda w, b: work(w, b, [3, 3]))[0] == ["same"] * 2
    told, _ = on_all(2, lambda w, b: work(w, b, [3, 4]))
    assert "worker 0 has element 3; worker 1 has element 4" in message(told)


def test_a_worker_that_does_not_come_is_named():
    class Late(NoteExchange):
        def post(self, note):
            raise errors.WorkerStalledError("Worker 1 has not said anything.", 1)

    node = Dataset.range(9)._node
    decision = sharding_rule.decide(node, Policy.AUTO)
    with pytest.raises(errors.WorkerStalledError, match="waited for worker 1 to call"):
        source_agreement.agree_on_plan(
            node, decision, Late(NoteExchanges(2), 0, "plan")
        )


def lines(dataset):
    return source_agreement.lines_of(dataset._node)


def double(x):
    return 2 * x


def triple(x):
    return 3 * x


BASE = Dataset.range(8)


@pytest.mark.parametrize(
    "one, two",
    [
        (BASE, Dataset.range(9)),
        (BASE.batch(2), BASE.batch(4)),
        (BASE.batch(2), BASE.batch(2, drop_remainder=True)),
        (BASE.map(double), BASE.map(triple)),
        (BASE.map(double).batch(2), BASE.batch(2).map(double)),
        (BASE.take(3), BASE.take(4)),
        (BASE.shuffle(3), BASE.shuffle(4)),
        (BASE.shard(2, 0), BASE.shard(2, 1)),
        (BASE.concatenate(BASE), BASE),
        (BASE.repeat(), BASE.repeat(2)),
        (
            BASE.group_by_window(abs, lambda key, group: group.batch(2), 2),
            BASE.group_by_window(abs, lambda key, group: group.batch(2), 3),
        ),
        (
            Dataset.sample_from_datasets([BASE, BASE], [0.5, 0.5]),
            Dataset.sample_from_datasets([BASE, BASE], [0.25, 0.75]),
        ),
        (Dataset.from_tensors(1), Dataset.from_tensors(2)),
        (
            Dataset.from_tensor_slices({"x": np.arange(99)}),
            Dataset.from_tensor_slices({"x": np.roll(np.arange(99), 1)}),
        ),
        (
            Dataset.from_tensor_slices(["a/1", "a/2"]),
            Dataset.from_tensor_slices(["a/2", "a/1"]),
        ),
        (tf.data.TextLineDataset(["1", "2"]), tf.data.TextLineDataset(["2", "1"])),
        (tf.data.TextLineDataset(["1"]), tf.data.TextLineDataset(["1"] * 2)),
        (
            BASE.padded_batch(2, padded_shapes=[]),
            BASE.padded_batch(2, padded_shapes=[], padding_values=np.int64(1)),
        ),
    ],
)
def test_lines_tell_plans_apart(one, two):
    assert lines(one) != lines(two)
    assert lines(one) == lines(one)


@pytest.mark.parametrize(
    "one, two",
    [
        (BASE.shuffle(8, seed=1), BASE.shuffle(8, seed=2)),
        (BASE.prefetch(1), BASE.prefetch(9)),
        (BASE.cache("a"), BASE.cache("b")),
        (BASE.cache(), BASE),
        (BASE.map(double, num_parallel_calls=2), BASE.map(double)),
        (BASE.with_options(tf.data.Options()), BASE),
        (
            tf.data.TextLineDataset(["/a/x/1", "/a/y/2"]),
            tf.data.TextLineDataset(["/b/c/x/1", "/b/c/y/2"]),
        ),
        (tf.data.TextLineDataset("/a/1"), tf.data.TextLineDataset("1")),
        (
            Dataset.from_tensor_slices(["/a/1", "/a/2"]).map(double),
            Dataset.from_tensor_slices(["b/1", "b/2"]).map(double),
        ),
    ],
)
def test_lines_leave_out_what_may_differ_between_machines(one, two):
    assert lines(one) == lines(two)


def test_the_number_of_open_files_may_differ_if_each_worker_has_its_own():
    names = Dataset.from_tensor_slices(["a", "b"])
    one, two = (names.interleave(tf.data.TextLineDataset, n)._node for n in (1, 2))
    assert source_agreement.lines_of(one) != source_agreement.lines_of(two)
    assert source_agreement.lines_of(one, True) == source_agreement.lines_of(two, True)


def test_no_source_is_read_for_the_lines():
    def raising():
        raise AssertionError("called")

    spec = tf.TensorSpec((), np.int64)
    made = (
        Dataset.from_generator(raising, output_signature=spec)
        .map(double)
        .filter(bool)
        .batch(2)
    )
    assert len(lines(made)) == 4


def test_a_row_in_the_middle_of_large_arrays_is_not_copied_to_be_compared():
    large = np.broadcast_to(np.float32(1), (10**5, 10**6))
    assert len(lines(Dataset.from_tensor_slices(large))) == 19


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.from_tensor_slices(np.zeros((0, 2))),
        Dataset.from_tensor_slices([b"\xff/a", b"\xff/b"]),
        Dataset.range(3).scan(np.int64(0), lambda s, x: (s + x, s)),
        Dataset.range(9).window(3).flat_map(lambda w: w.batch(3)),
        Dataset.sample_from_datasets([BASE, BASE]),
        BASE.group_by_window(abs, lambda key, group: group.batch(2), 2),
        BASE.map(tf.function(double)),
        BASE.rejection_resample(lambda x: np.int32(0), [0.5, 0.5]),
        Dataset.from_loader([np.arange(2)]),
        Dataset.zip((BASE, {"a": BASE})),
        Dataset.range(9).bucket_by_sequence_length(lambda x: 1, [2], [3, 3]),
    ],
)
def test_every_plan_has_lines_that_are_text(dataset):
    found = lines(dataset)
    assert found and all(isinstance(line, str) for line in found)
    assert not any(" at 0x" in line for line in found)
