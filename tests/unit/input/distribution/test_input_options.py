"""`InputOptions` take values of TensorFlow's types, in its combinations."""

import pytest

import unisono as uni
from tests import machine
from tests.parity.programs import mirrored

IO = uni.distribute.InputOptions
PER_REPLICA = uni.distribute.InputReplicationMode.PER_REPLICA
Dataset = uni.data.Dataset

WRONG = {
    "a buffer of text": (
        lambda: IO(experimental_per_replica_buffer_size="3"),
        TypeError,
        "buffer_size.*'3'",
    ),
    "a buffer of None": (
        lambda: IO(experimental_per_replica_buffer_size=None),
        TypeError,
        "buffer_size.*None",
    ),
    "a buffer of 1.5": (
        lambda: IO(experimental_per_replica_buffer_size=1.5),
        TypeError,
        r"buffer_size.*1\.5",
    ),
    "fetch": (
        lambda: IO(experimental_fetch_to_device="no"),
        TypeError,
        "fetch_to_device.*'no'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_value_of_another_type_is_refused_by_its_name(name):
    call, error, told = WRONG[name]
    with pytest.raises(error, match=told):
        call()


@pytest.mark.feature("H19")
def test_options_that_contradict_each_other_are_refused():
    s, dataset = mirrored(2), Dataset.range(4).batch(2)

    def distribute(**options):
        s.distribute_datasets_from_function(lambda context: dataset, IO(**options))

    with pytest.raises(ValueError, match="must also specify `PER_REPLICA`"):
        distribute(experimental_place_dataset_on_device=True)
    with pytest.raises(ValueError, match="fetch_to_device is True"):
        distribute(
            experimental_place_dataset_on_device=True,
            experimental_replication_mode=PER_REPLICA,
        )
    with pytest.raises(ValueError, match="number of steps >= 0, received -1"):
        distribute(experimental_per_replica_buffer_size=-1)
    with pytest.raises(NotImplementedError, match="PER_REPLICA is only supported in"):
        s.experimental_distribute_dataset(
            dataset, IO(experimental_replication_mode=PER_REPLICA)
        )
    with pytest.raises(TypeError, match="InputOptions, received dict"):
        s.experimental_distribute_dataset(dataset, {})
    distribute(
        experimental_place_dataset_on_device=True,
        experimental_fetch_to_device=False,
        experimental_replication_mode=PER_REPLICA,
    )


@pytest.mark.feature("H19")
@pytest.mark.parametrize("fetch", [True, False])
def test_a_dataset_that_shall_run_on_the_device_is_distributed_as_usual(fetch):
    s = mirrored(2)
    options = IO(
        experimental_place_dataset_on_device=True, experimental_fetch_to_device=fetch
    )
    steps = s.experimental_distribute_dataset(Dataset.range(4).batch(2), options)
    found = [[x.tolist() for x in s.experimental_local_results(b)] for b in steps]
    assert found == [[[0], [1]], [[2], [3]]]


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
