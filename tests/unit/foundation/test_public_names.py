"""Public classes and functions say the public module, however a program gets them."""

import inspect
import json
import subprocess
import sys

from tests.architecture import snapshot

# What a program holds before it has used the public names of these classes.
HELD = """
import unisono
kinds = []
def make(context):
    if context is not None:
        kinds.append(type(context))
    return unisono.data.Dataset.range(4).batch(2)
strategy = unisono.distribute.MirroredStrategy(["CPU:0"])
strategy.distribute_datasets_from_function(make)
dataset = strategy.experimental_distribute_dataset(make(None))
iterator = iter(dataset)
kinds += [type(dataset), type(iterator), type(iterator.get_next_as_optional())]
several = unisono.distribute.MultiWorkerMirroredStrategy()
resolver = several.cluster_resolver
kinds += [type(resolver), type(resolver.cluster_spec()), type(resolver.explain())]
# A dataset and its iterator are of private classes below the public ones.
public = [next(c for c in k.__mro__ if "_src" not in c.__module__) for k in kinds]
print([f"{kind.__module__}.{kind.__qualname__}" for kind in public])
"""

BACKWARDS = """
import importlib, json, sys
said = {}
for name in reversed(json.load(sys.stdin)):
    module, _, attribute = name.rpartition(".")
    value = getattr(importlib.import_module(module), attribute)
    said[name] = f"{value.__module__}.{value.__qualname__}"
print(json.dumps(said))
"""


def run(program, given=""):
    """Returns what a program prints in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", program],
        input=given,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_what_a_program_is_given_says_its_public_name():
    assert run(HELD).split("'")[1::2] == [
        "unisono.distribute.InputContext",
        "unisono.distribute.DistributedDataset",
        "unisono.distribute.DistributedIterator",
        "unisono.experimental.Optional",
        "unisono.distribute.cluster_resolver.TFConfigClusterResolver",
        "unisono.train.ClusterSpec",
        "unisono.distribute.cluster_resolver.Explanation",
    ]


def test_names_say_the_same_module_in_whatever_order_they_are_used():
    said = {
        name: f"{value.__module__}.{value.__qualname__}"
        for name, value in snapshot.public_names()
        if (inspect.isclass(value) or inspect.isfunction(value))
        and not name.startswith("unisono.keras")
    }
    assert json.loads(run(BACKWARDS, json.dumps(list(said)))) == said
