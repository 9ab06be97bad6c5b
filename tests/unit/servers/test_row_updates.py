import jax
import optax
import pytest

from unisono._src.servers import row_updates
from unisono._src.training import optimizers


def is_by_rows(tx):
    """Whether an update of the first of two like variables goes row by row."""
    params = [jax.ShapeDtypeStruct((50, 4), "float32")] * 2
    slots, structure = jax.tree.flatten(jax.eval_shape(tx.init, params))
    owners = optimizers.find_owners(tx, structure, [1, 1])
    table = [0, *(2 + i for i, owner in enumerate(owners) if owner == 0)]

    def change(old, gradients):
        state = jax.tree.unflatten(structure, old[2:])
        updates, state = tx.update(list(gradients), state, list(old[:2]))
        new = optax.apply_updates(list(old[:2]), updates)
        return [*new, *jax.tree.leaves(state)]

    return row_updates.is_by_rows(change, [*params, *slots], params, table, 0, 7)


def mean_of_gradients(updates, state, params=None):
    return [u * u.mean() for u in updates], state


def largest_gradient(updates, state, params=None):
    return [u * u.max() for u in updates], state


def stateless(update):
    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


@pytest.mark.feature("T06")
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: optax.sgd(0.1), True),
        (lambda: optax.sgd(optax.cosine_decay_schedule(0.1, 100)), True),
        (lambda: optax.adagrad(0.1), True),
        (lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1)), True),
        # These change rows that have no gradient.
        (lambda: optax.sgd(0.1, momentum=0.9), False),
        (lambda: optax.adam(0.1), False),
        (lambda: optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.1)), False),
        # These need all rows, or their number.
        (lambda: optax.lamb(0.1), False),
        (lambda: stateless(mean_of_gradients), False),
        (lambda: stateless(largest_gradient), False),
    ],
)
def test_only_updates_that_leave_other_rows_alone_go_by_rows(make, expected):
    assert is_by_rows(make()) is expected
