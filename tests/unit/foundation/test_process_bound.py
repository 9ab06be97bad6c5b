"""What cannot be copied or pickled says so in the user's terms."""

import copy
import importlib
import inspect
import pickle
import pkgutil
import time

import jax.numpy as jnp
import pytest

import unisono as uni
from unisono import _src


def slow(x):
    time.sleep(0.001)
    return x


NAMES = [
    "strategy",
    "default strategy",
    "extended",
    "variable",
    "per-replica value",
    "distributed dataset",
    "distributed iterator",
    "iterator with threads",
    "checkpoint",
]


def make_objects():
    strategy = uni.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        variable = uni.Variable(1.0)
    dataset = uni.data.Dataset.range(8).batch(4)
    distributed = strategy.experimental_distribute_dataset(dataset)
    threaded = iter(dataset.map(slow, 2).prefetch(2))
    next(threaded)
    return {
        "strategy": strategy,
        "default strategy": uni.distribute.get_strategy(),
        "extended": strategy.extended,
        "variable": variable,
        "per-replica value": strategy.run(lambda: jnp.ones(3)),
        "distributed dataset": distributed,
        "distributed iterator": iter(distributed),
        "iterator with threads": threaded,
        "checkpoint": uni.train.Checkpoint(v=variable),
    }


def test_every_object_is_tried():
    assert list(make_objects()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_pickling_is_refused_in_words(name):
    with pytest.raises(
        TypeError, match=r"cannot be pickled: it belongs to .* this process\. [A-Z]"
    ):
        pickle.dumps(make_objects()[name])


@pytest.mark.parametrize(
    "name",
    [
        "extended",
        "per-replica value",
        "distributed dataset",
        "distributed iterator",
        "iterator with threads",
    ],
)
def test_deep_copies_are_refused_in_words(name):
    with pytest.raises(TypeError, match="cannot be copied deeply: it belongs to"):
        copy.deepcopy(make_objects()[name])


def test_what_could_be_copied_still_can():
    made = make_objects()
    assert copy.deepcopy(made["strategy"]).num_replicas_in_sync == 2
    assert float(copy.deepcopy(made["variable"]).numpy()) == 1.0
    assert float(copy.copy(made["variable"]).numpy()) == 1.0
    twin = copy.copy(made["per-replica value"])
    assert [x.tolist() for x in twin.values] == [[1.0] * 3] * 2
    assert pickle.loads(pickle.dumps(uni.data.Dataset.range(3))).cardinality() == 3
    assert float(pickle.loads(pickle.dumps(uni.Variable(2.0))).numpy()) == 2.0


def classes_that_clean_up():
    for about in pkgutil.walk_packages(_src.__path__, f"{_src.__name__}."):
        # They load packages that are optional.
        if any(part in about.name for part in (".integrations.", ".cli", ".keras_fit")):
            continue
        module = importlib.import_module(about.name)
        for found in vars(module).values():
            is_ours = getattr(found, "__module__", "") == about.name
            if is_ours and inspect.isclass(found) and "__del__" in vars(found):
                yield found


def test_a_half_made_object_is_dropped_in_silence():
    found = list(classes_that_clean_up())
    assert len(found) > 4
    for kind in found:
        # As Python makes an object, before `__init__`.
        object.__new__(kind).__del__()
