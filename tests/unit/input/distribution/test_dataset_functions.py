"""A program's function makes the dataset of a worker, from an `InputContext`."""

import pytest

import unisono as uni
from tests import machine

R = uni.data.Dataset.range(4)
STRATEGIES = {
    "default": uni.distribute.get_strategy,
    "mirrored": lambda: uni.distribute.MirroredStrategy(machine.names_up_to(2)),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("given", [None, R, "a"], ids=["None", "dataset", "text"])
def test_a_dataset_fn_is_a_function(strategy, given):
    with pytest.raises(TypeError, match=r"dataset_fn must be a function.*Context"):
        STRATEGIES[strategy]().distribute_datasets_from_function(given)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_dataset_fn_takes_an_input_context(strategy):
    def make_dataset():
        return R

    with pytest.raises(TypeError, match=r"takes an InputContext.* takes \(\)"):
        STRATEGIES[strategy]().distribute_datasets_from_function(make_dataset)


def test_the_size_of_a_batch_is_a_whole_number():
    with pytest.raises(TypeError, match=r"global_batch_size.*'7'"):
        uni.distribute.InputContext().get_per_replica_batch_size("7")
