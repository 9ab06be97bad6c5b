"""TensorFlow's answers and ours, for the module `element_types`."""

import unisono
from tests.unit.ops import everyday_programs


def test_it_gives_what_tensorflow_gives():
    everyday_programs.check(unisono, "element_types")


def test_values_of_replicas_are_no_tensor():
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    found = strategy.run(lambda: unisono.constant(1.0))
    assert [unisono.is_tensor(x) for x in (found, *found.values)] == [False, True, True]
