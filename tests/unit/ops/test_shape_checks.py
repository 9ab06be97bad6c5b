"""TensorFlow's answers and ours, for the module `shape_checks`."""

import unisono
from tests.unit.ops import everyday_programs


def test_it_gives_what_tensorflow_gives():
    everyday_programs.check(unisono, "shape_checks")
