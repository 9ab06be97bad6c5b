"""Pipelines of Grain's that a user has made."""

import json
import multiprocessing
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import unisono as uni
from tests.unit.input.loaders.test_dispatch import ROWS, distributed
from tests.unit.input.pipelines import Dataset, flat, numbers

grain = pytest.importorskip("grain")


def make_loader(workers):
    return grain.DataLoader(
        data_source=grain.sources.RangeDataSource(0, 12, 1),
        sampler=grain.samplers.IndexSampler(12, shuffle=False, num_epochs=1),
        operations=[grain.transforms.Batch(4)],
        worker_count=workers,
    )


def test_workers_need_no_flags_and_end_with_close(tmp_path):
    # In a program of its own: here the flags may be parsed already.
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        def main():
            # Here, so that the workers need not import them all.
            import multiprocessing
            import grain
            import unisono as uni

            loader = grain.DataLoader(
                data_source=grain.sources.RangeDataSource(0, 12, 1),
                sampler=grain.samplers.IndexSampler(12, shuffle=False, num_epochs=1),
                operations=[grain.transforms.Batch(4)],
                worker_count=2,
            )
            iterator = iter(uni.data.Dataset.from_loader(loader))
            first = next(iterator)
            state = iterator.get_state()
            assert multiprocessing.active_children()
            iterator.close()
            assert not multiprocessing.active_children()
            again = iter(uni.data.Dataset.from_loader(loader))
            again.set_state(state)
            print([*first.tolist(), *next(again).tolist()])
            again.close()

        if __name__ == "__main__":
            main()
        """)
    )
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    # Two workers take turns; each example comes once.
    seen = json.loads(done.stdout)
    assert len(seen) == len(set(seen)) == 8


def test_a_closed_iterator_still_tells_where_it_was():
    iterator = iter(Dataset.from_loader(make_loader(0)))
    next(iterator)
    state = iterator.get_state()
    iterator.close()
    assert iterator.get_state() == state
    assert multiprocessing.active_children() == []


def test_a_map_dataset_has_a_length():
    table = grain.MapDataset.range(10)
    dataset = distributed(2, table.batch(4))
    assert len(dataset) == int(dataset.cardinality) == 3
    assert "3 global batches" in str(dataset.describe())
    assert len(Dataset.from_loader(table)) == 10
    endless = Dataset.from_loader(table.repeat())
    assert int(endless.cardinality()) == uni.data.INFINITE_CARDINALITY
    some = Dataset.from_loader(table.filter(lambda x: x % 2 == 0).map(int))
    assert int(some.cardinality()) == uni.data.UNKNOWN_CARDINALITY
    assert numbers(some) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("kind", [StopIteration, ValueError])
def test_a_function_that_raises_does_not_end_a_map_dataset(kind):
    def fn(x):
        if x in (3, 9):
            raise kind
        return np.int64(x)

    dataset = Dataset.from_loader(grain.MapDataset.source(ROWS).map(fn))
    iterator = iter(dataset)
    seen, raised = [], []
    while True:
        try:
            seen.append(int(next(iterator)))
        except StopIteration:
            break
        except (RuntimeError, ValueError) as e:
            raised.append(type(e))
    # Grain's exceptions hold its iterators, and those their threads.
    iterator.close()
    assert seen == [0, 1, 2, 4, 5, 6, 7, 8]
    wanted = RuntimeError if kind is StopIteration else ValueError
    assert raised == [wanted] * 2


def test_lists_of_arrays_and_lists_of_numbers():
    table = grain.MapDataset.range(4).map(lambda i: {"x": [[i, i], [i, i]]})
    assert Dataset.from_loader(table).element_spec["x"].shape[-1:] == (2,)
    pairs = grain.MapDataset.source(ROWS).map(lambda i: [np.full(2, i), np.full(2, -i)])
    (step,) = distributed(2, Dataset.from_loader(pairs).batch(10))
    assert flat(2, [step[1]]) == [[-i, -i] for i in range(10)]
