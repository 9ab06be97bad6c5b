"""Orders of PyTorch's loaders, and their processes."""

import re

import pytest

import unisono as uni
from tests.unit.input.loaders.test_dispatch import distributed
from tests.unit.input.pipelines import flat, mirrored, resumed, saved
from unisono._src.input.loaders import dispatch
from unisono._src.input.plan import first_elements

torch = pytest.importorskip("torch")
data = torch.utils.data
ROWS = torch.arange(10)


def batched(sampler):
    return data.DataLoader(ROWS, batch_sampler=data.BatchSampler(sampler, 2, False))


def sampled(sampler):
    return data.DataLoader(ROWS, batch_size=2, sampler=sampler)


MAKERS = {
    "batches": lambda g: batched(data.RandomSampler(ROWS, generator=g)),
    "random": lambda g: sampled(data.RandomSampler(ROWS, generator=g)),
    "subset": lambda g: sampled(data.SubsetRandomSampler(range(10), generator=g)),
    "weighted": lambda g: sampled(
        data.WeightedRandomSampler([1.0] * 10, 10, generator=g)
    ),
    "batches of a subset": lambda g: batched(
        data.SubsetRandomSampler(range(10), generator=g)
    ),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_random_sampler_with_a_generator_continues(kind):
    def make():
        return distributed(2, MAKERS[kind](torch.Generator().manual_seed(3)))

    undisturbed = make()
    epochs = [flat(2, undisturbed) for _ in range(3)]
    interrupted = make()
    assert flat(2, interrupted) == epochs[0]
    iterator = iter(interrupted)
    begin = flat(2, [next(iterator) for _ in range(2)])
    fresh = make()
    assert begin + flat(2, resumed(fresh, saved(iterator))) == epochs[1]
    assert flat(2, fresh) == epochs[2]


@pytest.mark.parametrize("kind", MAKERS)
def test_a_random_sampler_without_a_generator_says_so(kind, caplog):
    iterator = iter(distributed(2, MAKERS[kind](None)))
    iterator.set_state(saved(iterator))
    next(iterator)
    assert "generator" not in caplog.text
    next(iterator)
    iterator.set_state(saved(iterator))
    assert re.findall("Continuing at batch ([0-9]+)", caplog.text) == ["2"]


def test_a_fixed_order_needs_no_generator(caplog):
    iterator = iter(distributed(2, batched(data.SequentialSampler(ROWS))))
    next(iterator)
    assert flat(2, resumed(iterator, saved(iterator))) == list(range(2, 10))
    assert "generator" not in caplog.text


def test_a_subclass_that_would_fork_is_refused():
    class Mine(data.DataLoader):
        pass

    fork = Mine(ROWS, batch_size=4, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(RuntimeError, match=r"fork 1 worker.*spawn"):
        distributed(2, fork)


@pytest.mark.parametrize("seeded", [False, True])
def test_workers_tell_a_loader_that_shuffles_by_itself_from_others(seeded):
    def note_first():
        generator = torch.Generator().manual_seed(0) if seeded else None
        node = dispatch.to_node(
            data.DataLoader(
                data.TensorDataset(torch.arange(100)),
                batch_size=50,
                shuffle=True,
                generator=generator,
            )
        )
        recorder = first_elements.Recorder([node], True, False)
        with recorder.open():
            node.cursor().read(1)
        return recorder.passes["0.0"].seen

    assert (note_first() == note_first()) == seeded


def test_a_dataset_that_raises_stop_iteration_does_not_end_the_data():
    class Rows(data.Dataset):
        def __len__(self):
            return 10

        def __getitem__(self, index):
            if index == 3:
                raise StopIteration
            return index

    iterator = iter(distributed(2, data.DataLoader(Rows(), batch_size=2)))
    assert flat(2, [next(iterator)]) == [0, 1]
    with pytest.raises(RuntimeError, match="Making batch 1 raised StopIteration"):
        next(iterator)
    state = saved(iterator)
    assert flat(2, iterator) == list(range(4, 10))
    assert flat(2, resumed(iterator, state)) == list(range(4, 10))


def split(replicas, rank=0):
    sampler = data.DistributedSampler(ROWS, replicas, rank, shuffle=False)
    return data.DataLoader(ROWS, batch_size=2, sampler=sampler)


def test_a_loader_that_gives_a_part_of_the_data_is_refused():
    with pytest.raises(
        ValueError, match=r"num_replicas=2.*one part of 2.*shuffle=True"
    ):
        distributed(2, split(2))
    batches = uni.data.Dataset.from_loader(split(2)).map(lambda x: x + 1)
    with pytest.raises(ValueError, match="distribute_datasets_from_function"):
        distributed(2, batches)
    assert flat(2, distributed(2, split(1))) == list(range(10))


def test_a_worker_may_read_a_part_of_its_own():
    strategy = mirrored(2)
    made = strategy.distribute_datasets_from_function(lambda context: split(2, 1))
    assert sorted(flat(2, made)) == [1, 3, 5, 7, 9]


def test_the_advice_to_spawn_names_the_guard_of_the_script():
    fork = data.DataLoader(ROWS, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(RuntimeError, match='if __name__ == "__main__":'):
        distributed(2, fork)
