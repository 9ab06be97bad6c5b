"""Random numbers: TensorFlow's own where they are, and the right ones elsewhere."""

import jax.numpy as jnp
import numpy as np

import unisono
from tests.unit.ops import everyday_programs

random = unisono.random


def test_it_gives_what_tensorflow_gives():
    everyday_programs.check(unisono, "random_draws")


def test_numbers_have_their_distribution():
    random.set_seed(5)
    rows = random.shuffle(jnp.arange(100))
    assert sorted(rows.tolist()) == list(range(100)) != rows.tolist()
    drawn = random.categorical([[0.0, np.log(3.0)]], 4000)
    assert drawn.shape == (1, 4000)
    assert abs(float(drawn.mean()) - 0.75) < 0.03
    again = random.experimental.stateless_shuffle
    assert again(rows, [1, 2]).tolist() == again(rows, [1, 2]).tolist()


def test_a_seed_may_have_numbers_that_a_program_computes():
    wanted = unisono.random.stateless_uniform([2], seed=[3, 5]).tolist()
    draw = unisono.function(
        lambda i: unisono.random.stateless_uniform([2], seed=[3, i])
    )
    assert draw(np.int32(5)).tolist() == wanted
    step = unisono.Variable(5)
    assert unisono.random.stateless_uniform([2], seed=(3, step)).tolist() == wanted
