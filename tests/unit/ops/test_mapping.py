"""TensorFlow's answers and ours, for the module `mapping`."""

import jax.numpy as jnp
import numpy as np

import unisono
from tests.unit.ops import everyday_programs


def test_it_gives_what_tensorflow_gives():
    everyday_programs.check(unisono, "mapping")


def test_compiled_loops_over_rows_give_the_same_and_have_gradients():
    w = unisono.Variable(5.0)

    def compute(x):
        with unisono.GradientTape() as tape:
            tape.watch(x)
            mapped = unisono.map_fn(lambda r: r * w, x)
            scanned = unisono.scan(lambda a, r: a * r, x, reverse=True)
            folded = unisono.foldl(lambda a, r: a * r + w, x)
            y = mapped.sum() + scanned.sum() + folded
        return [mapped, scanned, folded, *tape.gradient(y, [x, w])]

    x = jnp.asarray([1.0, 2.0, 3.0])
    for a, b in zip(compute(x), unisono.function(compute)(x), strict=True):
        np.testing.assert_allclose(a, b)
