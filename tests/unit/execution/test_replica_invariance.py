"""Which values of a replica program are equal on all replicas."""

import jax
import jax.numpy as jnp
import pytest

from unisono._src.execution import replica_invariance

AXIS = "replica"


def equal_on_all(fn):
    """Whether ``fn(shared, own)`` is equal on all replicas."""
    made = jax.make_jaxpr(fn, axis_env=[(AXIS, 2)])(jnp.ones(3), jnp.ones(3))
    return replica_invariance.find_equal(made.jaxpr, [True, False])


WITHIN, ACROSS = [[0, 1], [2, 3]], [[0, 2], [1, 3]]


def gather(x, groups=None):
    return jax.lax.all_gather(x, AXIS, axis_index_groups=groups)


def total(x, groups):
    return jax.lax.psum(x, AXIS, axis_index_groups=groups)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda p, o: p, False),
        (lambda p, o: gather(p, WITHIN), True),
        (lambda p, o: gather(p * 2 + 1, WITHIN), True),
        (lambda p, o: gather(o, WITHIN), False),
        (lambda p, o: gather(p + o, WITHIN), False),
        (lambda p, o: gather(p, ACROSS), False),
        (lambda p, o: gather(total(o, ACROSS), WITHIN), True),
        (lambda p, o: gather(p - total(o, ACROSS), WITHIN), True),
        (lambda p, o: gather(total(o, WITHIN), ACROSS), False),
        (lambda p, o: gather(p, [[0, 3], [1, 2]]), False),
        (lambda p, o: gather(jax.lax.axis_index(AXIS) + p, WITHIN), False),
        (lambda p, o: jax.jit(lambda x: gather(x, WITHIN))(p), True),
        (lambda p, o: gather(p), True),
    ],
)
def test_parts_that_groups_have_are_equal_when_they_are_together(fn, expected):
    made = jax.make_jaxpr(fn, axis_env=[(AXIS, 4)])(jnp.ones(3), jnp.ones(3))
    found = replica_invariance.find_equal(made.jaxpr, [False, False], [2, 0])
    assert found == [expected]


def reduce(x):
    return jax.lax.psum(x, AXIS)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda s, o: s * 2, True),
        (lambda s, o: s + o, False),
        (lambda s, o: s - 0.1 * reduce(o), True),
        (lambda s, o: reduce(o) + o, False),
        (lambda s, o: s + jax.lax.axis_index(AXIS), False),
        (lambda s, o: jax.lax.all_gather(o, AXIS), True),
        (lambda s, o: jax.jit(lambda a: reduce(a))(o), True),
        (lambda s, o: jax.jit(lambda a: a * jax.lax.axis_index(AXIS))(s), False),
        (lambda s, o: jax.lax.cond(s[0] > 0, lambda: s, lambda: s * 2), True),
        (lambda s, o: jax.lax.cond(o[0] > 0, lambda: s, lambda: s * 2), False),
        (lambda s, o: jax.lax.scan(lambda c, x: (c + x, x), 0.0, s)[0], True),
        (lambda s, o: jax.lax.scan(lambda c, x: (c + x, x), 0.0, o)[0], False),
        # Without a turn, the result is what the loop was given.
        (lambda s, o: jax.lax.scan(lambda c, x: (s, x), o, None, 1)[0], True),
        (lambda s, o: jax.lax.scan(lambda c, x: (s, x), o, None, 0)[0], False),
        (
            lambda s, o: jax.lax.scan(lambda c, x: (c + reduce(x), x), 0.0, o)[0],
            True,
        ),
        (lambda s, o: jax.lax.while_loop(lambda c: c < 3, lambda c: c + 1, s[0]), True),
        (
            lambda s, o: jax.lax.while_loop(lambda c: c < 3, lambda c: c + o[0], s[0]),
            False,
        ),
    ],
)
def test_equality_follows_from_the_equations(fn, expected):
    assert equal_on_all(fn) == [expected]


def test_groups_of_replicas_are_not_all():
    def fn(s, o):
        return jax.lax.psum(o, AXIS, axis_index_groups=[[0], [1]])

    assert equal_on_all(fn) == [False]


@pytest.mark.parametrize("kind", ["cond", "while", "test"])
def test_a_collective_that_not_all_may_reach_is_refused(kind):
    def fn(s, o):
        if kind == "cond":
            return jax.lax.cond(o[0] > 0, lambda: reduce(s), lambda: s)
        if kind == "test":
            return jax.lax.while_loop(lambda c: reduce(c)[0] < o[0], lambda c: c + 1, s)
        return jax.lax.while_loop(lambda c: c[0] < o[0], lambda c: reduce(c), s)

    with pytest.raises(RuntimeError, match="merge_call"):
        equal_on_all(fn)
