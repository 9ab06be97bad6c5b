"""How many steps may be under way on CPU devices; waits are counted, not timed."""

import pytest

import unisono
from unisono._src.machines import devices, topology


class Result:
    """A step's result; it notes when it is waited for."""

    nbytes = 4

    def __init__(self, step, waited):
        self.block_until_ready = lambda: waited.append(step)

    def is_deleted(self):
        return False


@pytest.mark.parametrize(("is_large", "most"), [(False, 8), (True, 32)])
def test_steps_without_end_are_waited_for(monkeypatch, is_large, most):
    monkeypatch.setattr(devices, "has_large_pool", lambda: is_large)
    throttle, waited, under_way = topology.Throttle(), [0], []
    for step in range(1, 1001):
        under_way.append(step - waited[-1])
        throttle.count += 1
        if throttle.count >= throttle.group:
            throttle.wait([Result(step, waited)], [])
    assert waited == sorted(waited)
    assert max(under_way) == most


@pytest.fixture
def waits(monkeypatch):
    """Lists the steps under way at each wait; a program begins with none."""
    found, wait = [], topology.THROTTLE.wait

    def counted(results, stored):
        found.append(topology.THROTTLE.count)
        wait(results, stored)

    monkeypatch.setattr(topology.THROTTLE, "count", 0)
    monkeypatch.setattr(topology.THROTTLE, "wait", counted)
    return found


def take_steps(device_names, count):
    """Runs so many compiled steps, none of which waits for its result."""
    strategy = unisono.distribute.MirroredStrategy(device_names)
    with strategy.scope():
        total = unisono.Variable(0.0, aggregation=unisono.VariableAggregation.SUM)

    def add():
        context = unisono.distribute.get_replica_context()
        total.assign_add(context.replica_id_in_sync_group + 1.0)

    step = unisono.function(lambda: strategy.run(add))
    for _ in range(count):
        step()
    return float(total.numpy())


def test_a_loop_of_compiled_steps_on_cpu_devices_waits_for_earlier_ones(waits):
    assert take_steps(["CPU:0", "CPU:1"], 100) == 300.0
    assert len(waits) >= 100 // 16
    assert max(waits) <= 16


def test_a_loop_on_one_device_never_waits(waits):
    assert take_steps(["CPU:0"], 100) == 100.0
    assert not waits
