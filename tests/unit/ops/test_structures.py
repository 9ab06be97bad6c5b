"""TensorFlow's answers and ours, for the module `structures`."""

import unisono
from tests.unit.ops import everyday_programs


def test_it_gives_what_tensorflow_gives():
    everyday_programs.check(unisono, "structures")


def test_composites_are_expanded_on_request():
    x = unisono.distribute.PerReplica((1, 2))
    assert unisono.nest.flatten([x]) == [x]
    assert unisono.nest.flatten([x], expand_composites=True) == [1, 2]
    made = unisono.nest.map_structure(lambda v: v + 1, x, expand_composites=True)
    assert made.values == (2, 3)
