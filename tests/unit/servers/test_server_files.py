"""Checkpoints of variables on servers: each server writes and reads its own rows."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.unit.servers import clusters
from unisono._src.servers.server import ParameterServer
from unisono.distribute import coordinator as api
from unisono.distribute.experimental import partitioners

pytestmark = pytest.mark.feature("T06")

# More than 1 MiB: smaller ones travel.
SHAPE = (1003, 540)


class Watched:
    """A cluster in threads, and the methods of servers that were called."""

    def __init__(self, parts, servers):
        self.calls = []
        self.carrier = api.ThreadCarrier(
            True, watch=lambda source, kind, i, method: self.calls.append(method)
        )
        self.opened = clusters.cluster(
            1, servers, partitioners.FixedShardsPartitioner(parts), self.carrier
        )

    def __enter__(self):
        self.strategy, _ = self.opened.__enter__()
        return self

    def __exit__(self, *args):
        return self.opened.__exit__(*args)

    def count(self, method):
        return self.calls.count(method)


def build(strategy, value):
    with strategy.scope():
        table = unisono.Variable(value, name="table")
        small = unisono.Variable(jnp.zeros(7))
    return table, small, unisono.train.Checkpoint(table=table, small=small)


@pytest.mark.parametrize(
    ("dtype", "before", "after"),
    [
        ("bfloat16", (3, 3), (2, 4)),
        ("bfloat16", (7, 2), (1, 1)),
        ("int16", (1, 1), (4, 3)),
    ],
)
def test_servers_write_and_read_their_own_rows(tmp_path, dtype, before, after):
    value = np.random.default_rng(0).normal(size=SHAPE) * 100
    wanted = np.array(jnp.asarray(value, dtype))
    wanted[:400] = 0  # Chunks of zeros are there, too.
    with Watched(*before) as one:
        _, small, checkpoint = build(one.strategy, wanted)
        small.assign(jnp.arange(7.0))
        one.calls.clear()
        path = checkpoint.save(str(tmp_path / "c"))
        assert one.count("write") == min(before) and one.count("pull") == 0
    mirrored = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    other = build(mirrored, np.zeros_like(wanted))
    other[2].restore(path).assert_consumed()
    np.testing.assert_array_equal(other[0].numpy(), wanted)
    for saved in (path, other[2].save(str(tmp_path / "mirrored"))):
        with Watched(*after) as two:
            again = build(two.strategy, np.ones_like(wanted))
            two.calls.clear()
            again[2].restore(saved).assert_consumed()
            # What is pushed are the parts of the small variable.
            assert (two.count("load"), two.count("push")) == (min(after), after[0])
            np.testing.assert_array_equal(again[0].numpy(), wanted)
            np.testing.assert_array_equal(again[1].numpy(), np.arange(7))
            again[0].assign_add(jnp.ones(SHAPE, dtype))
            np.testing.assert_array_equal(again[0].numpy()[:400], 1)


def test_a_server_that_does_not_see_the_checkpoint_is_named(tmp_path, monkeypatch):
    with Watched(2, 2) as one:
        table, _, checkpoint = build(one.strategy, np.ones(SHAPE, np.float32))
        path = checkpoint.save(str(tmp_path / "c"))
        table.assign_add(np.ones(SHAPE, np.float32))
        sees = ParameterServer.sees
        monkeypatch.setattr(
            ParameterServer,
            "sees",
            lambda self, *x: self.ping() == 0 and sees(self, *x),
        )
        told = r"parameter server 1 \(a thread of this process\) does not see .*share"
        with pytest.raises(unisono.errors.SaveError, match=told):
            checkpoint.save(str(tmp_path / "c"))
        with pytest.raises(unisono.errors.FailedPreconditionError, match=told):
            checkpoint.restore(path)
        assert table.numpy().min() == 2
        assert [p.name for p in tmp_path.iterdir()] == ["c-1"]
        monkeypatch.undo()
        # Another checkpoint of that name is another one.
        server = ParameterServer(0)
        assert server.sees(f"{path}/capsule.json", b"") is False
        assert server.sees(f"{path}/capsule.json", b"0" * 64) is False


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("is_late", [False, True])
def test_changes_are_made_once_from_the_checkpoint_on(tmp_path, lost, is_late):
    """Its worker and a server are lost when only server 0 has a closure's change."""
    saved = []

    def watch(source, kind, index, method):
        if (kind, index, method) == ("ps", 1, "push") and len(saved) < 2:
            if is_late:
                saved.append(checkpoint.save(str(tmp_path / "c")))
            saved.append("lost")
            carrier.lose("ps", lost)
            carrier.lose("worker", 0)

    carrier = api.ThreadCarrier(watch=watch)
    strategy = unisono.distribute.ParameterServerStrategy(
        clusters.resolver(1, 2),
        carrier=carrier,
        restore_from=lambda: checkpoint.restore(saved[-2]),
    )
    try:
        coordinator = api.ClusterCoordinator(strategy)
        with strategy.scope():
            first, second = unisono.Variable(0), unisono.Variable(0)
        assert "task:0" in first.device and "task:1" in second.device
        checkpoint = unisono.train.Checkpoint(first=first, second=second)
        saved.append(checkpoint.save(str(tmp_path / "c")))
        add = unisono.function(lambda: (first.assign_add(1), second.assign_add(1)))
        coordinator.schedule(add, exactly_once=True)
        coordinator.join()
        assert (int(first.numpy()), int(second.numpy())) == (1, 1)
    finally:
        strategy.shutdown()
