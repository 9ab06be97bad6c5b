"""TensorFlow's answers and ours, for the module `element_types`."""

import unisono
from tests.unit.ops import everyday_programs


def test_it_gives_what_tensorflow_gives():
    everyday_programs.check(unisono, "element_types")
