"""Positions of iterators over datasets: saved at any element, continued anew."""

import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import unisono as uni
from tests.parity.programs import mirrored
from tests.unit.input.pipelines import (
    Dataset,
    build,
    flat,
    numbers,
    pipelines,
    resumed,
    saved,
    write_numbers,
)

PROPERTY = settings(max_examples=60, deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return write_numbers(tmp_path_factory.mktemp("numbers"))


def taken(iterator, count):
    return numbers(x for _, x in zip(range(count), iterator))


@PROPERTY
@given(pipelines, st.integers(0, 60), st.integers(0, 20))
def test_a_fresh_program_continues_after_any_element(paths, pipeline, first, second):
    whole = numbers(build(pipeline, paths))
    iterator = iter(build(pipeline, paths))
    begin = taken(iterator, first)
    state = saved(iterator)
    assert begin + numbers(iterator) == whole

    again = resumed(build(pipeline, paths), state)
    middle = taken(again, second)
    state = saved(again)
    again.close()
    end = numbers(resumed(build(pipeline, paths), state))
    assert begin + middle + end == whole


@PROPERTY
@given(pipelines, st.integers(0, 30))
def test_the_epochs_after_a_resumed_one_are_those_of_the_undisturbed_run(
    paths, pipeline, stop
):
    undisturbed = build(pipeline, paths)
    epochs = [numbers(undisturbed) for _ in range(4)]

    interrupted = build(pipeline, paths)
    assert numbers(interrupted) == epochs[0]
    iterator = iter(interrupted)
    begin = taken(iterator, stop)
    state = saved(iterator)
    iterator.close()

    fresh = build(pipeline, paths)
    rest = numbers(resumed(fresh, state))
    assert begin + rest == epochs[1]
    assert [numbers(fresh) for _ in range(2)] == epochs[2:]


@PROPERTY
@given(pipelines, st.integers(0, 30), st.integers(0, 30))
def test_an_iterator_can_be_set_back_and_forth(paths, pipeline, first, second):
    whole = numbers(build(pipeline, paths))
    iterator = iter(build(pipeline, paths))
    taken(iterator, first)
    early = saved(iterator)
    taken(iterator, second)
    late = saved(iterator)
    for state, passed in ((early, first), (late, first + second), (early, first)):
        iterator.set_state(state)
        assert numbers(iterator) == whole[passed:]


# What a state must carry besides numbers of elements.


def in_many_places(dataset):
    return Dataset.range(6).interleave(lambda i: dataset, 3, 2)


EPOCHS = {
    "shuffle without a seed": lambda: Dataset.range(9).shuffle(5).repeat(3),
    "shuffle of batches without a seed": lambda: (
        Dataset.range(9).map(lambda x: x).shuffle(4).batch(2).shuffle(3).repeat(3)
    ),
    "kept shuffled": lambda: Dataset.range(9).shuffle(9, seed=3).cache().repeat(3),
    "kept, then shuffled": lambda: Dataset.range(9).cache().shuffle(4).repeat(3),
    "random choice": lambda: Dataset.sample_from_datasets(
        [Dataset.range(9), Dataset.range(100, 109)]
    ).repeat(3),
    "random numbers": lambda: Dataset.random(rerandomize_each_iteration=True).take(600),
    "shuffled part behind": lambda: (
        Dataset.range(9).shuffle(9, seed=3).concatenate(Dataset.range(50, 55)).repeat(3)
    ),
    "one shuffled dataset in many places": lambda: in_many_places(
        Dataset.range(5).shuffle(5, seed=1)
    ),
}


@pytest.mark.parametrize("make", EPOCHS.values(), ids=EPOCHS)
def test_the_rest_is_the_same_in_a_fresh_program(make):
    iterator = iter(make())
    states, seen = [saved(iterator)], []
    for element in iterator:
        seen.append(numbers([element]))
        states.append(saved(iterator))
    for stop in range(0, len(seen) + 1, 1 + len(seen) // 30):
        rest = [numbers([x]) for x in resumed(make(), states[stop])]
        assert rest == seen[stop:]


def test_a_cache_of_another_pass_does_not_answer_for_a_restored_one():
    def make():
        return Dataset.range(9).shuffle(9).cache()

    iterator = iter(make())
    begin = taken(iterator, 4)
    state = saved(iterator)
    whole = begin + numbers(iterator)

    dataset = make()
    numbers(dataset)
    assert begin + numbers(resumed(dataset, state)) == whole
    assert numbers(dataset) == whole


def test_a_file_cache_keeps_types_that_numpy_does_not_know(tmp_path):
    source = jnp.arange(6.0, dtype=jnp.bfloat16).reshape(3, 2)
    dataset = Dataset.from_tensor_slices((source, ["a", "b\0", ""])).cache(
        tmp_path / "cache"
    )
    for _ in range(2):
        found = [(x.dtype, x.tolist(), text.item()) for x, text in dataset]
        assert found == [
            (jnp.bfloat16, [0.0, 1.0], b"a"),
            (jnp.bfloat16, [2.0, 3.0], b"b\0"),
            (jnp.bfloat16, [4.0, 5.0], b""),
        ]


def test_a_file_cache_is_continued_before_and_after_it_is_complete(tmp_path):
    def make(name):
        kept = Dataset.range(9).shuffle(9, seed=2).cache(tmp_path / name)
        return kept.repeat(3)

    iterator = iter(make("first"))
    states, seen = [saved(iterator)], []
    for element in iterator:
        seen.append(int(element))
        states.append(saved(iterator))
    for stop in range(9):
        # The file of the first run may be lost before the first pass is over.
        rest = numbers(resumed(make(f"again {stop}"), states[stop]))
        assert rest == seen[stop:]
    for stop in range(28):
        assert numbers(resumed(make("first"), states[stop])) == seen[stop:]


def test_a_thread_far_ahead_does_not_forget_where_the_reader_is():
    numbers_read = 500
    dataset = Dataset.range(numbers_read).map(lambda x: x).prefetch(100)
    iterator = iter(dataset)
    for passed in range(numbers_read):
        assert numbers([next(iterator)]) == [passed]
        if passed % 33 == 0:
            # Time for the thread to fill its buffer.
            time.sleep(0.005)
            state = saved(iterator)
            assert taken(resumed(dataset, state), 1) == [passed + 1]


def without_errors(iterator):
    while True:
        try:
            yield int(next(iterator))
        except OSError:
            continue
        except StopIteration:
            return


@pytest.mark.parametrize("stop", range(1, 9))
def test_what_raised_and_was_passed_over_is_not_read_again(stop):
    def fails(x):
        if x in (3, 6):
            raise OSError
        return x

    def make():
        return Dataset.range(12).map(fails).prefetch(2)

    iterator = iter(make())
    for _ in zip(range(stop), without_errors(iterator)):
        pass
    # Time for the thread to run ahead, perhaps into what raises.
    time.sleep(0.005)
    again = resumed(make(), saved(iterator))
    left = [x for x in range(12) if x not in (3, 6)][stop:]
    for rest in (iterator, again):
        assert list(without_errors(rest)) == left


def test_a_state_of_something_else_is_refused():
    dataset = Dataset.range(5)
    iterator = iter(dataset)
    with pytest.raises(ValueError, match="received list"):
        iterator.set_state([])
    state = saved(iterator)
    with pytest.raises(ValueError, match=r"version 7.*reads version 1"):
        iterator.set_state({**state, "version": 7})
    with pytest.raises(ValueError, match=r"'elements'.*'dataset'"):
        iterator.set_state({**state, "kind": "elements"})
    with pytest.raises(ValueError, match="made in another way"):
        iter(dataset.shuffle(3)).set_state(state)
    assert numbers(iterator) == [0, 1, 2, 3, 4]


def test_a_carried_state_of_text_is_saved():
    def make():
        return Dataset.range(6).scan(b"", lambda s, x: (s + b"\xff%d" % x, s))

    whole = [x.item() for x in make()]
    iterator = iter(make())
    next(iterator), next(iterator)
    assert [x.item() for x in resumed(make(), saved(iterator))] == whole[2:]


def test_behind_a_shuffle_an_exception_takes_no_other_element_along():
    def refuse_three(x):
        if x == 3:
            raise ValueError("three")
        return x

    dataset = Dataset.range(20).map(refuse_three).shuffle(10, seed=1).ignore_errors()
    found = sorted(int(x) for x in dataset)
    assert found == [i for i in range(20) if i != 3]


def test_a_position_can_be_saved_while_the_input_is_stuck():
    go_on = threading.Event()

    def slow():
        for k in range(20):
            if k == 12:
                go_on.wait(30.0)
            yield k

    def make():
        spec = uni.TensorSpec([], "int64")
        data = Dataset.from_generator(slow, output_signature=spec).batch(2)
        return iter(uni.distribute.OneDeviceStrategy("CPU:0")
                    .experimental_distribute_dataset(data))  # fmt: skip

    iterator = make()
    for _ in range(6):
        last = next(iterator)
    assert last.tolist() == [10, 11]
    begun = time.monotonic()
    state = iterator.get_state()
    assert time.monotonic() - begun < 5.0
    go_on.set()
    again = make()
    again.set_state(state)
    assert next(again).tolist() == next(iterator).tolist() == [12, 13]
    iterator.close()
    again.close()


@pytest.mark.parametrize("position", [None, {}, 3, {"source": {}}])
def test_a_damaged_position_changes_nothing(position):
    for iterator in (
        iter(mirrored(2).experimental_distribute_dataset(np.arange(4) for _ in "abc")),
        iter(Dataset.from_loader(np.arange(4) for _ in "abc")),
    ):
        next(iterator)
        state = {**saved(iterator), "position": position}
        with pytest.raises(ValueError, match="position is damaged"):
            iterator.set_state(state)
        assert len(list(iterator)) == 2
        iterator.close()


def test_the_position_can_be_asked_for_after_closing():
    def made():
        return mirrored(2).experimental_distribute_dataset(
            Dataset.range(40).map(lambda x: x).batch(4)
        )

    iterator = iter(made())
    seen = flat(2, [next(iterator) for _ in range(3)])
    # The thread reads on, which does not count.
    time.sleep(0.1)
    iterator.close()
    rest = resumed(made(), saved(iterator))
    assert seen + flat(2, rest) == list(range(40))


@pytest.mark.parametrize(
    "stage", [lambda d: d, lambda d: d.repeat(2), lambda d: d.map(abs)]
)
def test_another_batch_size_is_refused(stage):
    def made(size):
        dataset = stage(Dataset.range(50).map(lambda x: x).batch(size))
        return mirrored(2).experimental_distribute_dataset(dataset)

    first, second = iter(made(4)), iter(made(8))
    next(first)
    with pytest.raises(ValueError, match="saved with batches of 4"):
        second.set_state(saved(first))
    assert len(flat(2, [next(second)])) == 8
    for iterator in (first, second):
        iterator.close()


def test_a_list_that_became_shorter_is_told():
    def made(count):
        batches = [np.arange(4) + 4 * i for i in range(count)]
        return mirrored(2).experimental_distribute_dataset(batches)

    iterator = iter(made(6))
    for _ in range(5):
        next(iterator)
    with pytest.raises(ValueError, match="more elements than this one has"):
        resumed(made(3), saved(iterator))
    iterator.close()
