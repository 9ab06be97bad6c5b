"""Any loader that a user has already."""

import gc
import multiprocessing
import sys

import numpy as np
import pytest

import unisono as uni
from tests.parity.programs import mirrored
from tests.unit.input.pipelines import (
    COUNTS,
    Dataset,
    flat,
    numbers,
    parts,
    resumed,
    saved,
)

ROWS = np.arange(10)


def distributed(n, loader):
    return mirrored(n).experimental_distribute_dataset(loader)


def check_resumes(make, whole):
    """Stop after each step on two replicas, go on with other numbers of them."""
    iterator = iter(distributed(2, make()))
    seen, states = [], []
    for step in iterator:
        seen += flat(2, [step])
        states.append((len(seen), saved(iterator)))
    assert seen == whole
    for number, (passed, state) in enumerate(states):
        n = COUNTS[number % len(COUNTS)]
        assert flat(n, resumed(distributed(n, make()), state)) == whole[passed:]


# Python and NumPy.


@pytest.mark.parametrize("n", COUNTS)
def test_a_list_of_batches(n):
    batches = [ROWS[:4], ROWS[4:8], ROWS[8:]]
    dataset = distributed(n, batches)
    assert int(dataset.cardinality) == 3
    assert [flat(n, dataset) for _ in range(2)] == [list(range(10))] * 2
    check_resumes(lambda: batches, list(range(10)))


@pytest.mark.parametrize("n", COUNTS)
def test_an_iterator_can_be_gone_through_once(n):
    dataset = distributed(n, (ROWS[i : i + 4] for i in range(0, 10, 4)))
    # Asking what comes does not take it away.
    assert "shape=(None,)" in repr(dataset.element_spec)
    assert flat(n, dataset) == list(range(10))
    with pytest.raises(RuntimeError, match=r"only once.*from_generator"):
        list(dataset)


def test_an_iterator_may_be_transformed_described_and_continued():
    def make():
        return Dataset.from_loader(iter(range(10))).map(lambda x: x * 2).batch(4)

    dataset = make()
    assert dataset.element_spec == uni.TensorSpec((None,), np.int32)
    iterator = iter(dataset)
    assert next(iterator).tolist() == [0, 2, 4, 6]
    rest = resumed(make(), saved(iterator))
    assert numbers(rest) == list(range(8, 20, 2))
    with pytest.raises(RuntimeError, match="only once"):
        iterator.set_state(saved(iterator))


@pytest.mark.parametrize("n", [1, 2, 4])
def test_an_iterator_per_worker_with_a_short_end(n):
    def make(context):
        return iter([ROWS[:2], ROWS[2:4], ROWS[4:5]])

    dataset = mirrored(n).distribute_datasets_from_function(make)
    assert flat(n, dataset) == [0, 1, 2, 3, 4]


def test_arrays_are_datasets_of_their_rows():
    x, y = np.arange(12.0).reshape(6, 2), np.arange(6)
    assert parts(2, distributed(2, x))[1] == [[2.0], [3.0]]
    dataset = Dataset.from_loader({"x": x, "y": y}).batch(6)
    (step,) = distributed(2, dataset)
    assert parts(2, [step["y"]]) == [[[0, 1, 2], [3, 4, 5]]]


def test_batches_of_lists_and_dicts():
    class Batches:
        def __iter__(self):
            for i in range(0, 8, 4):
                yield [ROWS[i : i + 4], {"y": list(range(4)), "name": ["a"] * 4}]

    for n in (1, 2):
        steps = list(distributed(n, Batches()))
        assert [type(step) for step in steps] == [tuple, tuple]
        assert flat(n, [step[0] for step in steps]) == list(range(8))
        assert flat(n, [step[1]["name"] for step in steps]) == [b"a"] * 8


@pytest.mark.parametrize("wrong", [3, None, "path", object()])
def test_what_cannot_be_iterated_is_refused(wrong):
    with pytest.raises(TypeError, match=r"Expected a unisono\.data\.Dataset"):
        distributed(2, wrong)


# Grain.


def test_grain_map_datasets():
    grain = pytest.importorskip("grain")

    def make():
        return grain.MapDataset.source(ROWS).shuffle(seed=3).map(int).batch(4)

    whole = numbers(make())
    assert sorted(whole) == list(range(10))
    check_resumes(make, whole)


def test_grain_iter_datasets_with_threads():
    grain = pytest.importorskip("grain")

    def make():
        options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)
        return grain.MapDataset.range(10).repeat(2).to_iter_dataset(options).batch(3)

    check_resumes(make, list(range(10)) * 2)
    for _ in distributed(2, make()):
        break
    examples = Dataset.from_loader(
        grain.MapDataset.range(10).to_iter_dataset()
    ).shuffle(4, seed=1)
    assert sorted(numbers(examples.batch(4))) == list(range(10))


def test_grain_data_loader():
    grain = pytest.importorskip("grain")

    def make():
        return grain.DataLoader(
            data_source=grain.sources.RangeDataSource(0, 10, 1),
            sampler=grain.samplers.IndexSampler(10, shuffle=True, seed=1, num_epochs=2),
            operations=[grain.transforms.Batch(4)],
            worker_count=0,
        )

    whole = numbers(make())
    assert sorted(whole[:10]) == list(range(10))
    check_resumes(make, whole)


# PyTorch.


def test_torch_data_loaders():
    torch = pytest.importorskip("torch")
    data = torch.utils.data
    rows = data.TensorDataset(torch.arange(10), torch.arange(20.0).reshape(10, 2))

    def make():
        return data.DataLoader(rows, batch_size=4)

    for n in COUNTS:
        dataset = distributed(n, make())
        assert int(dataset.cardinality) == 3
        steps = list(dataset)
        assert flat(n, [x for x, _ in steps]) == list(range(10))
        assert flat(n, [y for _, y in steps]) == [[2.0 * i, 2.0 * i + 1] for i in ROWS]


def test_a_shuffling_torch_loader_continues_in_any_epoch():
    torch = pytest.importorskip("torch")

    def make():
        generator = torch.Generator().manual_seed(5)
        return torch.utils.data.DataLoader(
            torch.arange(10), batch_size=4, shuffle=True, generator=generator
        )

    undisturbed = distributed(2, make())
    epochs = [flat(2, undisturbed) for _ in range(4)]
    assert epochs[0] != epochs[1]

    interrupted = distributed(2, make())
    assert flat(2, interrupted) == epochs[0]
    iterator = iter(interrupted)
    begin = flat(2, [next(iterator)])
    state = saved(iterator)
    fresh = distributed(4, make())
    assert begin + flat(4, resumed(fresh, state)) == epochs[1]
    assert [flat(4, fresh) for _ in range(2)] == epochs[2:]


def test_a_torch_loader_that_cannot_continue_says_so(caplog):
    torch = pytest.importorskip("torch")
    loader = torch.utils.data.DataLoader(torch.arange(10), batch_size=4, shuffle=True)
    iterator = iter(distributed(2, loader))
    next(iterator)
    iterator.set_state(saved(iterator))
    assert "shuffles without a generator" in caplog.text


def test_a_torch_loader_that_would_fork_is_refused():
    torch = pytest.importorskip("torch")
    data = torch.utils.data
    fork = data.DataLoader(
        torch.arange(10), batch_size=4, num_workers=1, multiprocessing_context="fork"
    )
    with pytest.raises(RuntimeError, match=r"fork 1 worker.*spawn"):
        distributed(2, fork)
    with pytest.raises(RuntimeError, match="spawn"):
        mirrored(2).distribute_datasets_from_function(lambda context: fork)
    assert multiprocessing.active_children() == []


def test_a_torch_loader_with_spawned_workers():
    torch = pytest.importorskip("torch")
    loader = torch.utils.data.DataLoader(
        torch.arange(10), batch_size=4, num_workers=1, multiprocessing_context="spawn"
    )
    assert flat(2, distributed(2, loader)) == list(range(10))
    for _ in distributed(2, loader):
        break
    gc.collect()
    assert multiprocessing.active_children() == []


# Hugging Face.


def test_hugging_face_tables():
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict(
        {"x": list(range(10)), "name": [f"row {i}" for i in range(10)]}
    )

    def make():
        return Dataset.from_loader(table).shuffle(10, seed=1).batch(4)

    assert make().element_spec["x"].shape == (None,)
    whole = [x for batch in make() for x in batch["x"].tolist()]
    assert sorted(whole) == list(range(10))
    for n in COUNTS:
        iterator = iter(distributed(n, make()))
        first = next(iterator)
        names = flat(n, [first["name"]])
        assert names == [f"row {i}".encode() for i in whole[:4]]
        rest = resumed(distributed(2, make()), saved(iterator))
        assert flat(2, [step["x"] for step in rest]) == whole[4:]


def test_hugging_face_streams():
    datasets = pytest.importorskip("datasets")

    def make(epochs=1):
        table = datasets.Dataset.from_dict({"x": list(range(10))})
        stream = table.to_iterable_dataset(num_shards=2)
        return Dataset.from_loader(stream).map(lambda row: row["x"]).repeat(epochs)

    whole = numbers(make(2))
    assert sorted(whole[:10]) == list(range(10))
    for stop in range(21):
        iterator = iter(make(2))
        for _ in range(stop):
            next(iterator)
        dataset = make(2)
        assert numbers(resumed(dataset, saved(iterator))) == whole[stop:]
        assert numbers(dataset) == whole
    check_resumes(lambda: make().batch(4), whole[:10])


# Keras.


def test_keras_py_datasets(monkeypatch):
    if "keras" not in sys.modules:
        # Read when it is imported; without it Keras looks for TensorFlow.
        monkeypatch.setenv("KERAS_BACKEND", "jax")
        # Set by its import.
        monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    keras = pytest.importorskip("keras")

    class Batches(keras.utils.PyDataset):
        def __init__(self):
            super().__init__()
            self.epochs = 0

        def __len__(self):
            return 3

        def __getitem__(self, index):
            return ROWS[4 * index : 4 * index + 4], {"y": ROWS[:2]}["y"][:0]

        def on_epoch_end(self):
            self.epochs += 1

    class Numbers(Batches):
        def __getitem__(self, index):
            return ROWS[4 * index : 4 * index + 4]

    check_resumes(Numbers, list(range(10)))
    loader = Numbers()
    dataset = distributed(2, loader)
    assert int(dataset.cardinality) == 3
    assert [flat(2, dataset) for _ in range(2)] == [list(range(10))] * 2
    assert loader.epochs == 2
    with pytest.raises(uni.errors.InvalidArgumentError, match="disagree"):
        list(distributed(2, Batches()))
