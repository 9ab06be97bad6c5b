"""A cell keeps the value of a variable, in place and for as long as it lives."""

import gc
import threading
import weakref

import jax.numpy as jnp
import pytest

import unisono
from tests.parity.programs import central, mirrored, number, on_read, plain, variable
from unisono._src.state import storage


def test_a_cell_stores_one_array_whatever_the_scale_replicas():
    mirror, per_replica = variable(mirrored(4), [1.0, 2.0]), on_read(mirrored(4), [1.0])
    one, alone = variable(central(4), [1.0]), on_read(mirrored(1), [1.0])
    assert mirror.state_cell.stored_shape == (2,)
    assert per_replica.state_cell.stored_shape == (4, 1)
    assert one.state_cell.stored_shape == alone.state_cell.stored_shape == (1,)
    assert len(mirror.state_cell.array.sharding.device_set) == 4
    assert len(per_replica.state_cell.array.sharding.device_set) == 4
    assert len(one.state_cell.array.sharding.device_set) == 1


def test_a_variable_that_nobody_holds_is_gone():
    def use():
        v = variable(mirrored(2), jnp.ones(3), "SUM")
        unisono.function(lambda: mirrored(2).run(lambda: v.assign_add(v * number())))()
        assert v.state_cell in storage.live_cells()
        return weakref.ref(v.state_cell), weakref.ref(v.state_cell.array)

    cell, array = use()
    gc.collect()
    assert (cell(), array()) == (None, None)


@pytest.mark.feature("D12")
@pytest.mark.parametrize("n", [1, 2])
def test_a_compiled_step_updates_variables_in_place(n):
    s = mirrored(n)
    v = variable(s, jnp.zeros([1000]), "SUM")
    step = unisono.function(
        lambda: s.run(lambda: v.assign_add(jnp.ones(1000) * number()))
    )
    step()
    step()
    old = v.state_cell.array
    step()
    assert old.is_deleted()
    kept = v.value()
    step()
    assert plain(kept[0]) == 3.0 * n * (n + 1) / 2
    assert plain(v[0]) == 4.0 * n * (n + 1) / 2


def test_threads_may_step_the_same_variable():
    v = unisono.Variable(jnp.zeros([100]))
    step = unisono.function(lambda: v.assign_add(jnp.ones(100)))
    step()
    errors = []

    def work():
        try:
            for _ in range(50):
                step()
                v.numpy()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert plain(v[0]) == 201.0
