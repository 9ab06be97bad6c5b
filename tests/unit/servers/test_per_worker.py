"""Iterators of which each worker has its own: their positions in checkpoints."""

import numpy as np
import pytest

import unisono
from tests.unit.servers import clusters
from unisono.distribute import coordinator as api

pytestmark = pytest.mark.feature("T06")


class Reading:
    """A cluster whose workers take turns, and an iterator over other data on each."""

    def __init__(self, workers=2, dataset_fn=None):
        self.opened = clusters.cluster(workers, 1, None, api.ThreadCarrier(True))
        self._dataset_fn = dataset_fn or _make_dataset

    def __enter__(self):
        _, self.coordinator = self.opened.__enter__()
        self.data = self.coordinator.create_per_worker_dataset(self._dataset_fn)
        self.iterator = iter(self.data)
        self.checkpoint = unisono.train.Checkpoint(iterator=self.iterator)

        @unisono.function
        def take(iterator):
            number = api.experimental_get_current_worker_index()
            return number, next(iterator)

        self._take = take
        return self

    def __exit__(self, *args):
        return self.opened.__exit__(*args)

    def take(self, times):
        """Returns by worker what it has read."""
        found = {}
        for _ in range(times):
            remote = self.coordinator.schedule(self._take, args=(self.iterator,))
            number, element = remote.fetch()
            found.setdefault(int(number), []).append(element.tolist())
        return found


def _make_dataset():
    start = 100 * api.experimental_get_current_worker_index()
    data = unisono.data.Dataset.range(start, start + 20).shuffle(20, seed=3)
    return data.repeat().batch(3)


def test_a_checkpoint_has_the_position_of_each_worker(tmp_path):
    with Reading() as one:
        one.take(5)
        path = one.checkpoint.save(str(tmp_path / "c"))
        wanted = one.take(12)
        assert one.take(12) != wanted
        # Backwards, over the end of the data.
        one.checkpoint.restore(path).assert_consumed()
        assert one.take(12) == wanted
    with Reading() as two:
        two.checkpoint.restore(path).assert_consumed()
        # The example that a trace needs is no element that was taken.
        assert two.take(12) == wanted


def test_positions_that_do_not_fit_are_refused_and_change_nothing(tmp_path):
    with Reading() as one:
        one.take(2)
        path = one.checkpoint.save(str(tmp_path / "c"))
        wanted = one.iterator.get_state()
        for state in (
            {"position": 1},
            {**wanted, "workers": [wanted["workers"][0], 5]},
        ):
            with pytest.raises(ValueError, match=r"positions?.*received"):
                one.iterator.set_state(state)
            assert one.iterator.get_state() == wanted
    many = pytest.raises(ValueError, match=r"those of 2 workers.*there are 3 now")
    with Reading(workers=3) as three, many:
        three.checkpoint.restore(path)
    with Reading(dataset_fn=lambda: [np.arange(3), np.arange(3)]) as lists:
        assert lists.take(2) == {0: [[0, 1, 2]], 1: [[0, 1, 2]]}
        with pytest.raises(TypeError, match=r"iterator over a list cannot be saved"):
            lists.checkpoint.save(str(tmp_path / "d"))


def test_a_worker_that_was_lost_is_replaced_when_positions_are_asked_for():
    carrier = api.ThreadCarrier()
    with clusters.cluster(1, 1, None, carrier) as (_, coordinator):
        data = unisono.data.Dataset.range(9)
        iterator = iter(coordinator.create_per_worker_dataset(data))
        take = unisono.function(lambda: next(iterator))
        first = iterator.get_state()
        assert coordinator.schedule(take).fetch() == 0
        assert iterator.get_state() != first
        carrier.lose("worker", 0)
        # The new worker begins its dataset anew, as in TensorFlow.
        assert iterator.get_state() == first
