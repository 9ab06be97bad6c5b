"""TensorFlow's answers and ours, for the module `host_functions`."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.unit.ops import everyday_programs


def test_it_gives_what_tensorflow_gives():
    everyday_programs.check(unisono, "host_functions")


def test_a_compiled_step_calls_python_with_the_shape_it_was_told():
    spec = unisono.TensorSpec([3], unisono.int32)
    sort = unisono.function(lambda x: unisono.numpy_function(np.sort, [x], spec))
    assert sort(jnp.asarray([3, 1, 2])).tolist() == [1, 2, 3]
    with pytest.raises(TypeError, match="TensorSpec"):
        unisono.function(lambda x: unisono.py_function(abs, [x], unisono.int32))(
            jnp.asarray(1)
        )
