"""What the batches of a loader are made of, and what is no loader."""

import collections

import numpy as np
import pytest

import unisono as uni
from tests.unit.input.loaders.test_dispatch import distributed
from tests.unit.input.pipelines import COUNTS, Dataset, flat, parts, resumed, saved

Named = collections.namedtuple("Named", "x name")


# Lists.


@pytest.mark.parametrize("n", COUNTS)
def test_nested_lists_are_one_array(n):
    rows = [[1, 2], [3, 4], [5, 6]]
    (step,) = distributed(n, [rows])
    assert flat(n, [step]) == rows
    assert Dataset.from_loader(iter([rows])).element_spec.shape == (None, 2)


def test_lists_of_arrays_and_of_several_types_are_components():
    x = np.arange(4)
    for batch in ([x, [5, 6, 7, 8]], [[x, x], ["a"] * 4], [[1, 2], ["a", "b"]]):
        spec = Dataset.from_loader([batch]).element_spec
        assert isinstance(spec, tuple)
        assert len(spec) == 2
    (step,) = distributed(2, [[x, [5, 6, 7, 8]]])
    assert parts(2, step) == [[[0, 1], [2, 3]], [[5, 6], [7, 8]]]


def test_a_dict_of_lists_is_a_dataset_of_their_rows():
    dataset = Dataset.from_loader({"x": [1, 2, 3], "y": {"z": np.arange(3)}})
    assert [int(row["x"]) for row in dataset] == [1, 2, 3]
    (step,) = distributed(2, dataset.batch(3))
    assert flat(2, [step["y"]["z"]]) == [0, 1, 2]
    assert len(distributed(1, {"x": [1, 2, 3], "y": [4, 5, 6]})) == 3
    with pytest.raises(ValueError, match="same number of rows"):
        Dataset.from_loader({"x": [1, 2, 3], "y": [4, 5]})


@pytest.mark.parametrize("wrong", [{"x": 1}, {"train": iter([1])}, {}])
def test_another_dict_is_refused(wrong):
    with pytest.raises(TypeError, match=r"dict.*one row per example.*values\(\)"):
        distributed(2, wrong)


# Sequences.


class Numbered:
    def __init__(self, batches=3, length=None):
        self._batches = batches
        self._length = length

    def __getitem__(self, index):
        if index >= self._batches:
            raise IndexError(index)
        return np.arange(2 * index, 2 * index + 2)


class Sized(Numbered):
    def __len__(self):
        if self._length is None:
            raise NotImplementedError
        return self._length


@pytest.mark.parametrize("make", [Numbered, Sized, lambda: Sized(9, length=3)])
def test_a_sequence_needs_no_iter(make):
    dataset = distributed(2, make())
    assert [flat(2, dataset) for _ in range(2)] == [[0, 1, 2, 3, 4, 5]] * 2


def test_a_sequence_that_ends_before_its_length_raises():
    with pytest.raises(IndexError):
        list(distributed(2, Sized(2, length=3)))


def test_an_iterable_without_a_length():
    class Unsized(Sized):
        def __iter__(self):
            return iter([np.arange(4)])

    dataset = distributed(2, Unsized())
    assert int(dataset.cardinality) == uni.data.UNKNOWN_CARDINALITY
    assert flat(2, dataset) == [0, 1, 2, 3]


# PyTorch.


def test_text_in_a_torch_batch_is_one_component():
    torch = pytest.importorskip("torch")

    class Rows(torch.utils.data.Dataset):
        def __init__(self, make):
            self._make = make

        def __len__(self):
            return 6

        def __getitem__(self, index):
            return self._make(torch.tensor(float(index)), f"t{index}")

    texts = [f"t{i}".encode() for i in range(6)]
    for n in (1, 2):
        for make in (lambda x, t: (x, t), Named, lambda x, t: (t, t)):
            loader = torch.utils.data.DataLoader(Rows(make), batch_size=3)
            steps = list(distributed(n, loader))
            assert len(steps[0]) == 2
            assert flat(n, [step[1] for step in steps]) == texts


def test_a_torch_batch_of_nested_lists_is_one_array():
    torch = pytest.importorskip("torch")
    loader = torch.utils.data.DataLoader(
        list(range(4)), batch_size=2, collate_fn=lambda b: [[i, 2 * i] for i in b]
    )
    assert flat(2, distributed(2, loader)) == [[0, 0], [1, 2], [2, 4], [3, 6]]
    pairs = torch.utils.data.DataLoader(
        [(i, -i) for i in range(4)], batch_size=2, collate_fn=lambda b: (*zip(*b),)
    )
    steps = list(distributed(2, pairs))
    assert flat(2, [step[1] for step in steps]) == [0, -1, -2, -3]


def test_torch_tensors_that_numpy_refuses():
    torch = pytest.importorskip("torch")
    values = [0.0, 1.5, -2.0, 3.0]
    for kind in (torch.bfloat16, torch.float8_e5m2):
        batch = torch.tensor(values).to(kind)
        spec = Dataset.from_loader([batch]).element_spec
        assert str(spec.dtype) == str(kind).removeprefix("torch.")
        (step,) = distributed(2, [[batch, batch.float()]])
        assert flat(2, [step[0]]) == values
    wanted = torch.tensor(values, requires_grad=True)
    assert flat(2, distributed(2, [wanted])) == values


def test_a_torch_dataset_wants_a_loader():
    torch = pytest.importorskip("torch")
    rows = torch.utils.data.TensorDataset(torch.arange(4))
    for make in (Dataset.from_loader, lambda x: distributed(2, x)):
        with pytest.raises(TypeError, match=r"torch\.utils\.data\.DataLoader\("):
            make(rows)


# Exceptions.


class Failing:
    """Batches of two; the second cannot be made."""

    def __iter__(self):
        self._next = 0
        return self

    def __next__(self):
        index = self._next
        if index > 3:
            raise StopIteration
        self._next += 1
        if index == 1:
            raise ValueError("broken")
        return np.arange(2 * index, 2 * index + 2)


class Again:
    def __init__(self, make):
        self._make = make

    def __iter__(self):
        return self._make()


def _generated():
    yield np.arange(2)
    raise ValueError("broken")


def gone_on(n, dataset):
    """The numbers of a dataset, the exceptions, and a position after each."""
    iterator = iter(dataset)
    seen, raised, states = [], [], []
    while True:
        try:
            seen += flat(n, [next(iterator)])
        except StopIteration:
            return seen, raised, states
        except (ValueError, RuntimeError) as e:
            raised.append(e)
        states.append((len(seen), saved(iterator)))


@pytest.mark.parametrize("n", [1, 2])
def test_an_iterator_goes_on_after_an_exception(n):
    def make():
        return distributed(n, Again(lambda: iter(Failing())))

    seen, raised, states = gone_on(n, make())
    assert seen == [0, 1, 4, 5, 6, 7]
    assert [str(e) for e in raised] == ["broken"]
    assert len(states) == 4
    for passed, state in states[1:]:
        assert flat(n, resumed(make(), state)) == seen[passed:]


def test_a_torch_loader_goes_on_after_an_exception():
    torch = pytest.importorskip("torch")

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            if index in (2, 5):
                raise ValueError("broken")
            return index

    loader = torch.utils.data.DataLoader(Rows(), batch_size=2)
    seen, raised, _ = gone_on(2, distributed(2, loader))
    # The last batch failed as well, and nothing was to come after it.
    assert (seen, len(raised)) == ([0, 1], 2)


@pytest.mark.parametrize("make", [lambda: Again(_generated), _generated])
def test_a_generator_that_died_is_no_end_of_the_data(make):
    seen, raised, _ = gone_on(2, distributed(2, make()))
    assert seen == [0, 1]
    assert str(raised[0]) == "broken"
    with pytest.raises(RuntimeError, match=r"ValueError: broken.*missing"):
        raise raised[1]
    assert len(raised) == 2
