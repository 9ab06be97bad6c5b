"""Pipelines give what TensorFlow gives, in every epoch and when they go on."""

import json

import numpy as np
import pytest

import unisono as uni
from tests.unit.input import dataset_programs as programs

Dataset = uni.data.Dataset
RECORDED = json.loads(programs.RECORDED.read_text())
# It says that a constant of 64 bits becomes one of 32.
pytestmark = pytest.mark.filterwarnings("ignore:.*int64 is not available")


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_each_epoch_has_the_elements_that_tensorflow_gives(name):
    assert programs.run(uni, name) == RECORDED[name]


@pytest.mark.parametrize(
    "name", sorted(set(programs.PROGRAMS) - set(programs.CHANGING))
)
def test_a_pipeline_that_is_stopped_anywhere_goes_on_in_another_program(name):
    whole = programs.read(iter(programs.PROGRAMS[name](uni)))
    for place in range(len(whole) + 1):
        first = iter(programs.PROGRAMS[name](uni))
        assert programs.read(first, place) == whole[:place]
        state = json.loads(json.dumps(first.get_state()))
        first.close()
        other = iter(programs.PROGRAMS[name](uni))
        other.set_state(state)
        assert programs.read(other) == whole[place:], place


@pytest.mark.parametrize("size", [1, 3, 20])
def test_a_shuffle_of_errors_that_is_stopped_anywhere_goes_on(size):
    def build():
        numbers = programs.failing(uni, 12, 0, 5, 6, 11)
        return numbers.shuffle(size, seed=1).map(lambda x: x + 1, 2).prefetch(2)

    whole = programs.read(iter(build()))
    assert whole.count("error") == 4 and len(whole) == 12
    for place in range(len(whole) + 1):
        first = iter(build())
        programs.read(first, place)
        other = iter(build())
        other.set_state(json.loads(json.dumps(first.get_state())))
        first.close()
        assert programs.read(other) == whole[place:], place


def test_a_position_behind_the_end_of_a_zip_stays_there():
    zipped = Dataset.zip(Dataset.range(2).map(abs), Dataset.range(5).map(abs))
    iterator = iter(zipped)
    assert len(list(iterator)) == 2
    other = iter(zipped)
    other.set_state(iterator.get_state())
    assert list(other) == []


def test_a_cache_is_not_complete_before_a_loader_has_ended():
    class Underestimated:
        """Has more elements than it says."""

        def __len__(self):
            return 2

        def __iter__(self):
            return iter(range(4))

    cached = Dataset.from_loader(Underestimated()).cache()
    assert len(list(cached.take(2))) == 2
    assert [int(x) for x in cached] == [0, 1, 2, 3]


def test_a_number_of_python_keeps_its_type_in_a_state():
    with pytest.raises(uni.errors.InvalidArgumentError, match="int32 and int64"):
        Dataset.range(3).reduce(0, lambda state, x: state + x)
    with pytest.raises(TypeError, match=r"was int32 and became int64.*np.int64"):
        Dataset.range(3).reduce(0, lambda state, x: x)


def test_a_state_of_32_bits_stays_so_if_the_function_keeps_it():
    counted = Dataset.range(3).reduce(uni.constant(0), lambda state, x: state + 1)
    assert counted.dtype == np.int32


def test_a_numpy_iterator_is_saved_in_a_checkpoint(tmp_path):
    iterator = Dataset.range(9).shuffle(9).as_numpy_iterator()
    checkpoint = uni.train.Checkpoint(iterator=iterator)
    next(iterator)
    path = checkpoint.write(str(tmp_path / "position"))
    rest = list(iterator)
    checkpoint.read(path)
    assert list(iterator) == rest


def test_the_spec_is_that_of_the_first_element_that_does_not_raise():
    dataset = programs.failing(uni, 4, 0, 1)
    assert dataset.element_spec == uni.TensorSpec((), np.int64)
    with pytest.raises(ValueError, match="0 is bad"):
        programs.failing(uni, 2, 0, 1).element_spec  # noqa: B018


def test_padding_keeps_the_type_of_the_elements():
    # An empty list does not tell its type; it may be the first one of a batch.
    lists = Dataset.range(4).map(lambda n: {"a": [] if n == 2 else [n + 2**60]})
    second = [batch["a"] for batch in lists.padded_batch(2)][1]
    assert second.tolist() == [[0], [3 + 2**60]] and second.dtype == np.int64
    mixed = Dataset.range(2).map(lambda n: np.ones(1, np.float32 if n else np.int64))
    with pytest.raises(uni.errors.InvalidArgumentError, match="float32, int64"):
        list(mixed.padded_batch(2))
