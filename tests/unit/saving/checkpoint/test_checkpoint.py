"""Checkpoints: what is state, one atomic unit, restoring later, saving in the back."""

import copy
import dataclasses
import gc
import logging
import random
import signal
import threading
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as uni
from tests.parity.programs import (
    copies,
    mirrored,
    on_read,
    one_device,
    plain,
    variable,
)
from tests.threads import at_once, repeated
from unisono._src.saving.checkpoint import array_io
from unisono.train import Checkpoint, CheckpointManager, CheckpointOptions

ASYNC = CheckpointOptions(enable_async=True)


class Model:
    """An object of a program's own, built on first use."""

    def __init__(self, units=2):
        self.units = units
        self.w = None
        self._hidden = None

    def build(self, value=0.0):
        self.w = uni.Variable(jnp.full(self.units, value), name="w")
        self._hidden = [uni.Variable(value)]


class Position:
    """What a dataset iterator is to a checkpoint."""

    def __init__(self, at=0):
        self.at = at

    def get_state(self):
        return {"at": self.at, "files": ("a", "b"), "order": np.arange(3)}

    def set_state(self, state):
        assert state["files"] == ("a", "b")
        assert state["order"].tolist() == [0, 1, 2]
        self.at = state["at"]


# One unit.


def test_everything_that_a_run_consists_of_comes_back(tmp_path):
    def make(seed):
        model = Model()
        model.build(float(seed))
        with mirrored(2).scope():
            optimizer = uni.optimizers.Optimizer(optax.adam(0.1), [model.w])
            metric = uni.metrics.Mean(name="loss")
        return Checkpoint(
            model=model,
            optimizer=optimizer,
            metric=metric,
            position=Position(seed),
            generator=np.random.default_rng(seed),
            legacy=np.random.RandomState(seed),
            plain_random=random.Random(seed),
            key=jax.random.key(seed),
            key_variable=uni.Variable(jax.random.key(seed)),
            host=np.arange(3) + seed,
            device=jnp.arange(3.0) + seed,
            epoch=seed,
            ratio=float("inf") if seed else 0.0,
            name=f"run {seed}",
            history=[0.5] * seed,
            config={"a": (1, seed), 3: b"x"},
            mixed=(uni.Variable(float(seed)), seed, None),
            empty=uni.Variable(jnp.zeros((0, 4))),
        )

    old = make(3)
    old.optimizer.apply_gradients([(jnp.ones(2), old.model.w)])
    mirrored(2).run(lambda: old.metric.update_state([1.0, 3.0]))
    path = old.save(tmp_path / "c")
    numbers_after = (
        old.generator.random(3),
        old.legacy.rand(),
        old.plain_random.random(),
    )
    new = make(0)
    new.restore(path).assert_consumed()
    assert plain(new.model.w) == plain(old.model.w)
    assert [plain(v) for v in new.optimizer.variables] == [
        plain(v) for v in old.optimizer.variables
    ]
    assert plain(new.optimizer.iterations) == 1
    assert plain(new.metric.result()) == 2.0
    assert new.position.at == 3
    assert new.generator.random(3).tolist() == numbers_after[0].tolist()
    assert new.legacy.rand() == numbers_after[1]
    assert new.plain_random.random() == numbers_after[2]
    for key in (new.key, new.key_variable.value()):
        assert jax.random.key_data(key).tolist() == [0, 3]
    assert new.host.tolist() == [3, 4, 5]
    assert new.device.tolist() == [3.0, 4.0, 5.0]
    assert isinstance(new.device, jax.Array)
    assert (new.epoch, new.ratio, new.name) == (3, float("inf"), "run 3")
    assert new.history == [0.5] * 3
    assert new.config == {"a": (1, 3), 3: b"x"}
    assert plain(new.mixed) == (3.0, 3, None)


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint32", "float16", "bfloat16", "float8_e4m3fn", "complex64"],
)
def test_variables_of_every_type_come_back(tmp_path, dtype):
    values = jnp.asarray([0, 1, 1], dtype)
    v = uni.Variable(values)
    path = Checkpoint(v=v).write(tmp_path / "c")
    v.assign(jnp.zeros(3, dtype))
    Checkpoint(v=v).read(path).assert_consumed()
    assert v.dtype == values.dtype
    assert bool((v.value() == values).all())


def test_a_save_at_the_very_end_of_a_program_is_read_like_any_other(
    tmp_path, monkeypatch
):
    # From Python 3.12 on no thread can begin then, and Orbax needs some.
    values: dict[str, Any] = {
        "a": jnp.arange(6.0).reshape(2, 3), "b": np.arange(3), "c": jnp.ones((), bool),
        "d": jnp.ones(5, jnp.bfloat16), "e": np.zeros((0, 2)), "f": np.ones(1 << 19),
        "g": jnp.ones(3, jnp.float8_e5m2), "h": jnp.ones(3, jnp.complex64),
    }  # fmt: skip
    monkeypatch.setattr(
        "unisono._src.saving.checkpoint.background.Ending.has_begun", True
    )
    path = Checkpoint(**values).write(tmp_path / "c")
    monkeypatch.undo()
    found = Checkpoint(**{k: x * 0 for k, x in values.items()})
    found.read(path).assert_consumed()
    for name, want in values.items():
        got = getattr(found, name)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes()


def test_numpy_s_wide_types_come_back_as_they_were(tmp_path):
    big = np.asarray([2**60, -1])
    path = Checkpoint(big=big, fine=np.asarray(1 / 3)).write(tmp_path / "c")
    new = Checkpoint()
    new.read(path).assert_consumed()
    assert new.big.dtype == np.int64
    assert new.big.tolist() == big.tolist()
    assert new.fine == 1 / 3


@pytest.mark.parametrize("size", [2, 1 << 18])
def test_a_wide_number_is_not_restored_into_an_array_that_cannot_hold_it(
    tmp_path, size
):
    big = np.arange(size)
    path = Checkpoint(big=big).write(tmp_path / "c")
    new = Checkpoint(big=jnp.zeros(size, jnp.int32))
    new.read(path).assert_consumed()
    assert np.array_equal(new.big, big)
    big[1] = 2**40
    path = Checkpoint(big=big).write(tmp_path / "c")
    with pytest.raises(OverflowError, match=r"1099511627776 at \[1\] of a restored"):
        Checkpoint(big=jnp.zeros(size, jnp.int32)).read(path)


@pytest.mark.parametrize("n", [1, 2, 4, 8])
@pytest.mark.parametrize("m", [1, 2, 4, 8])
def test_a_training_run_goes_on_with_another_number_of_replicas(tmp_path, n, m):
    def start(replicas):
        with mirrored(replicas).scope():
            w = uni.Variable(jnp.zeros(3), name="w")
            optimizer = uni.optimizers.Optimizer(optax.sgd(0.5, momentum=0.5), [w])

        @uni.function
        def step(x):
            def one(x):
                optimizer.apply_gradients([(2 * (w - x) / replicas, w)])

            mirrored(replicas).run(one, args=(x,))

        return w, step, Checkpoint(w=w, optimizer=optimizer)

    x = jnp.asarray([1.0, 2.0, 4.0])
    w, step, checkpoint = start(n)
    for _ in range(2):
        step(x)
    path = checkpoint.save(tmp_path / "c")
    for _ in range(2):
        step(x)
    w2, step2, checkpoint2 = start(m)
    checkpoint2.restore(path).assert_consumed()
    for _ in range(2):
        step2(x)
    np.testing.assert_allclose(w2.numpy(), w.numpy(), rtol=1e-6)
    if n == m:
        assert w2.numpy().tobytes() == w.numpy().tobytes()


def test_a_snapshot_is_not_touched_by_later_steps(tmp_path):
    v = variable(mirrored(2), jnp.zeros(4))
    step = uni.function(lambda: v.assign_add(jnp.ones(4)))
    step()
    host = np.ones(3)
    checkpoint = Checkpoint(v=v, host=host)
    path = checkpoint.write(tmp_path / "c", options=ASYNC)
    for _ in range(3):
        step()
    host[:] = 9.0
    checkpoint.sync()
    assert plain(v) == [4.0] * 4
    checkpoint.read(path)
    assert plain(v) == [1.0] * 4
    assert checkpoint.host.tolist() == [1.0] * 3


def test_what_cannot_be_saved_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="expecting f to be a trackable object"):
        Checkpoint(f=lambda: 0)
    with pytest.raises(TypeError, match=r"key 1\.5 of type float"):
        Checkpoint(d={1.5: uni.Variable(0.0)}).write(tmp_path / "c")
    with pytest.raises(ValueError, match="two keys with the name '1'"):
        Checkpoint(d={1: uni.Variable(0.0), "1": 2}).write(tmp_path / "c")

    class Odd(Position):
        def get_state(self):
            return {"f": open}

    with pytest.raises(TypeError, match=r"state of \(root\)\.it \(Odd\)"):
        Checkpoint(it=Odd()).write(tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


def test_a_module_saves_its_variables_and_keeps_its_configuration(tmp_path):
    class Net(uni.Module):
        def __init__(self, units):
            super().__init__()
            self.units = units
            self.w = uni.Variable([float(units)])
            self.inner = [uni.Module(name="inner")]

    path = Checkpoint(net=Net(1)).write(tmp_path / "c")
    assert len(uni.train.list_variables(path)) == 2
    net = Net(2)
    Checkpoint(net=net).read(path).assert_consumed()
    assert (plain(net.w), net.units, net.name) == ([1.0], 2, "net")
    assert [m.name for m in net.submodules] == ["inner"]
    assert net.trainable_variables == net.variables == (net.w,)
    assert net.non_trainable_variables == ()


def test_a_module_finds_the_parts_of_its_variables_in_parts(tmp_path):
    def table(value, **kwargs):
        parts = [uni.Variable([x], **kwargs) for x in (value, value + 1.0)]
        return uni.distribute.ShardedVariable(parts)

    def net(value):
        made: Any = uni.Module()
        made.tables = [table(value), {"fixed": table(value, trainable=False)}]
        made.part = made.tables[0].variables[1]
        made.w = uni.Variable(value)
        made.inner = uni.Module()
        made.inner.table = made.tables[0]
        return made

    found = net(1.0)
    first, fixed = found.tables[0], found.tables[1]["fixed"]
    assert {id(v) for v in found.trainable_variables} == {id(found.w), *map(id, first)}
    assert found.non_trainable_variables == (*fixed,)
    assert len(found.variables) == 5
    path = Checkpoint(net=found).write(tmp_path / "c")
    other = net(5.0)
    Checkpoint(net=other).read(path).assert_consumed()
    assert [plain(v) for v in other.tables[1]["fixed"]] == [[1.0], [2.0]]
    assert len(other.variables) == 5


def test_own_objects_restore_their_numbers_and_leave_libraries_alone(tmp_path):
    @dataclasses.dataclass
    class Run:
        step: int
        best: float
        log: object = None
        strategy: object = None

    run = Run(5, 0.25, logging.getLogger("unisono"), mirrored(2))
    path = Checkpoint(run=run).write(tmp_path / "c")
    assert len(uni.train.list_variables(path)) == 3
    again = Run(0, 0.0)
    Checkpoint(run=again).read(path).assert_consumed()
    assert (again.step, again.best) == (5, 0.25)


# Deferred restore.


@pytest.mark.feature("S05")
def test_an_object_of_one_s_own_is_restored_when_it_is_built(tmp_path):
    model = Model()
    model.build(7.0)
    path = Checkpoint(model=model).save(tmp_path / "c")
    new = Model()
    checkpoint = Checkpoint(model=new)
    status = checkpoint.restore(path)
    with mirrored(4).scope():
        new.build()
    assert copies(new.w) == [[7.0, 7.0]] * 4
    assert plain(new._hidden) == [7.0]
    assert type(new) is Model
    status.assert_consumed()
    new.w = uni.Variable(jnp.zeros(2))
    assert plain(new.w) == [0.0, 0.0]  # Restored once, not for ever.


@pytest.mark.feature("S05")
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("is_sum", [False, True])
def test_a_variable_made_in_a_compiled_step_is_restored(tmp_path, n, is_sum):
    path = Checkpoint(v=uni.Variable(8.0)).write(tmp_path / "c")
    holder = Checkpoint()
    status = holder.read(path)
    strategy = mirrored(n)

    @uni.function
    def step():
        def one():
            if not hasattr(holder, "v"):
                holder.v = on_read_variable() if is_sum else uni.Variable(0.0)
            return holder.v.value() * 1.0

        return strategy.run(one)

    def on_read_variable():
        return uni.Variable(
            0.0,
            synchronization=uni.VariableSynchronization.ON_READ,
            aggregation=uni.VariableAggregation.SUM,
        )

    with strategy.scope():
        out = step()
    want = 8.0 / n if is_sum else 8.0
    assert [plain(x) for x in strategy.experimental_local_results(out)] == [want] * n
    assert plain(holder.v) == 8.0
    status.assert_consumed()


@pytest.mark.feature("S05")
def test_an_optimizer_made_later_gets_its_slots(tmp_path):
    w = uni.Variable([1.0, 2.0])
    optimizer = uni.optimizers.Optimizer(optax.adam(0.1), [w])
    optimizer.apply_gradients([(jnp.ones(2), w)])
    path = Checkpoint(w=w, optimizer=optimizer).save(tmp_path / "c")
    later = Checkpoint(w=uni.Variable([0.0, 0.0]))
    status = later.restore(path)
    later.optimizer = uni.optimizers.Optimizer(optax.adam(0.1), [later.w])
    status.assert_consumed()
    assert [plain(v) for v in later.optimizer.variables] == [
        plain(v) for v in optimizer.variables
    ]


def test_what_is_appended_to_a_list_is_restored_when_the_checkpoint_looks(tmp_path):
    path = Checkpoint(layers=[uni.Variable(1.0), uni.Variable(2.0)]).save(
        tmp_path / "c"
    )
    layers = []
    checkpoint = Checkpoint(layers=layers)
    status = checkpoint.restore(path)
    layers += [uni.Variable(0.0), uni.Variable(0.0)]
    checkpoint.sync()
    assert plain(layers) == [1.0, 2.0]
    status.assert_consumed()


def test_a_value_that_does_not_fit_later_is_reported_once(tmp_path):
    path = Checkpoint(v=uni.Variable([1.0, 2.0])).write(tmp_path / "c")
    checkpoint = Checkpoint()
    checkpoint.read(path).expect_partial()
    with pytest.raises(ValueError, match="incompatible tensor"):
        checkpoint.v = uni.Variable(0.0)
    checkpoint.write(tmp_path / "d")


def test_classes_that_count_their_subclasses_are_left_alone(tmp_path):
    known = []

    class Base:
        def __init_subclass__(cls):
            known.append(cls)

    class Mine(Base):
        v: uni.Variable

    mine = Mine()
    mine.v = uni.Variable(3.0)
    path = Checkpoint(mine=mine).write(tmp_path / "c")
    new = Mine()
    status = Checkpoint(mine=new).read(path)
    new.v = uni.Variable(0.0)
    status.assert_consumed()
    assert plain(new.v) == 3.0
    assert known == [Mine]


def test_a_frozen_dataclass_is_restored(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Run:
        step: int

    path = Checkpoint(run=Run(5)).write(tmp_path / "c")
    run = Run(0)
    Checkpoint(run=run).read(path).assert_consumed()
    assert run.step == 5


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize("size", [16, 1 << 19])
def test_split_arrays_are_read_in_parts_by_any_number_of_devices(tmp_path, size):
    def split(devices, values):
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("x",))
        spec = jax.sharding.PartitionSpec("x")
        return jax.device_put(values, jax.sharding.NamedSharding(mesh, spec))

    path = Checkpoint(x=split(8, jnp.arange(float(size)))).write(tmp_path / "c")
    for devices in (1, 2, 4):
        checkpoint = Checkpoint(x=split(devices, jnp.zeros(size)))
        checkpoint.read(path).assert_consumed()
        assert len(checkpoint.x.sharding.device_set) == devices
        assert checkpoint.x.addressable_shards[0].data.shape == (size // devices,)
        np.testing.assert_array_equal(checkpoint.x, np.arange(size))


def test_large_variables_come_back_under_any_strategy(tmp_path):
    values = np.arange(1 << 19, dtype=np.float32)
    path = Checkpoint(v=variable(mirrored(2), values)).write(tmp_path / "c")
    made = [
        uni.Variable(np.zeros_like(values)),
        variable(mirrored(4), np.zeros_like(values)),
        variable(one_device(), np.zeros_like(values)),
        on_read(mirrored(2), np.zeros_like(values)),
    ]
    for v in made:
        Checkpoint(v=v).read(path).assert_consumed()
        np.testing.assert_array_equal(v.numpy(), values)
    step = uni.function(lambda: made[1].assign_add(made[1].value()))
    step()
    np.testing.assert_array_equal(made[1].numpy(), 2 * values)


def test_a_callback_that_fails_leaves_the_checkpoint_counted(tmp_path):
    def fail():
        raise RuntimeError("mine")

    options = CheckpointOptions(experimental_write_callbacks=[fail])
    checkpoint = Checkpoint(v=uni.Variable(1.0))
    with pytest.raises(RuntimeError, match="mine"):
        checkpoint.save(tmp_path / "c", options=options)
    assert plain(checkpoint.save_counter) == 1
    assert uni.train.latest_checkpoint(tmp_path) == str(tmp_path / "c-1")


def test_a_later_restore_replaces_what_an_earlier_one_left_waiting(tmp_path):
    paths = [Checkpoint(v=uni.Variable(x)).write(tmp_path / str(x)) for x in (1.0, 2.0)]
    checkpoint = Checkpoint()
    for path in paths:
        checkpoint.read(path)
    checkpoint.v = uni.Variable(0.0)
    assert plain(checkpoint.v) == 2.0


def test_a_checkpoint_removed_while_an_object_waits_for_it_is_an_error(tmp_path):
    checkpoint = Checkpoint(v=uni.Variable(1.0))
    path = checkpoint.write(tmp_path / "c")
    later = Checkpoint()
    later.read(path).expect_partial()
    checkpoint.write(tmp_path / "c")
    with pytest.raises(uni.errors.NotFoundError, match="removed or replaced since"):
        later.v = uni.Variable(0.0)


def test_a_partial_restore_is_logged_unless_it_is_expected(tmp_path, caplog):
    path = Checkpoint(v=uni.Variable(1.0), u=uni.Variable(2.0)).write(tmp_path / "c")
    gc.collect()  # What earlier tests restored in part says so when it is dropped.
    caplog.clear()
    with caplog.at_level("WARNING", "unisono"):
        Checkpoint(v=uni.Variable(0.0)).read(path).expect_partial()
        gc.collect()
        assert caplog.records == []
        Checkpoint(v=uni.Variable(0.0)).read(path)
        gc.collect()
    assert "restored in part: (root).u" in caplog.text


# Retention.


def test_every_n_hours_one_checkpoint_is_kept_for_good(tmp_path, monkeypatch):
    hour = 3600 * 10**9
    now = [10**18]
    monkeypatch.setattr(
        "unisono._src.saving.format.checkpoint_directory.time.time_ns", lambda: now[0]
    )
    checkpoint = Checkpoint(v=uni.Variable(0.0))

    def manager():
        return CheckpointManager(
            checkpoint, tmp_path, max_to_keep=1, keep_checkpoint_every_n_hours=2
        )

    for _ in range(6):
        manager().save()  # A new one each time: the choice outlives the process.
        now[0] += hour
    there = sorted(p.name for p in tmp_path.iterdir() if p.is_dir())
    assert there == ["ckpt-3", "ckpt-5", "ckpt-6"]
    assert [p.rpartition("/")[2] for p in manager().checkpoints] == ["ckpt-6"]


def test_the_latest_is_the_last_saved_even_when_a_clock_goes_back(
    tmp_path, monkeypatch
):
    times = iter([3 * 10**18, 10**18])
    monkeypatch.setattr(
        "unisono._src.saving.format.checkpoint_directory.time.time_ns",
        lambda: next(times),
    )
    checkpoint = Checkpoint(v=uni.Variable(0.0))
    checkpoint.save(tmp_path / "c")
    assert checkpoint.save(tmp_path / "c") == uni.train.latest_checkpoint(tmp_path)


def test_a_path_that_is_written_again_holds_the_new_value(tmp_path):
    v = uni.Variable(1.0)
    checkpoint = Checkpoint(v=v)
    for value in (1.0, 2.0):
        v.assign(value)
        path = checkpoint.write(tmp_path / "c")
    v.assign(0.0)
    checkpoint.read(path)
    assert plain(v) == 2.0
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_without_exchange_of_names_a_path_is_written_again_too(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(38, "not here")

    monkeypatch.setattr(
        "unisono._src.saving.format.checkpoint_directory._exchange", refuse
    )
    test_a_path_that_is_written_again_holds_the_new_value(tmp_path)


# In the background.


def test_a_background_save_is_visible_after_sync(tmp_path):
    v = uni.Variable(jnp.ones(3))
    manager = CheckpointManager(Checkpoint(v=v), tmp_path, max_to_keep=1)
    for _ in range(3):
        path = manager.save(options=ASYNC)
    manager.sync()
    assert manager.latest_checkpoint == path
    assert [p.name for p in tmp_path.iterdir()] == ["ckpt-3"]


def test_a_failed_background_save_is_reported_and_harms_nothing(tmp_path, monkeypatch):
    checkpoint = Checkpoint(v=uni.Variable(1.0))
    good = checkpoint.save(tmp_path / "c")

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("unisono._src.saving.checkpoint.array_io.write", fail)
        checkpoint.save(tmp_path / "c", options=ASYNC)
        with pytest.raises(uni.errors.SaveError, match="No space left") as caught:
            checkpoint.sync()
    assert caught.value.errno == 28
    checkpoint.sync()  # Reported once.
    assert uni.train.latest_checkpoint(tmp_path) == good


def test_waiting_for_a_background_save_has_a_bound(tmp_path, monkeypatch):
    release = threading.Event()
    from unisono._src.saving.checkpoint import array_io

    real = array_io.write
    monkeypatch.setattr(
        "unisono._src.saving.checkpoint.array_io.write",
        lambda *args: release.wait(30) and real(*args),
    )
    checkpoint = Checkpoint(v=uni.Variable(1.0))
    checkpoint.save(tmp_path / "c", options=ASYNC)
    short = CheckpointOptions(wait_seconds=0.05)
    with pytest.raises(TimeoutError, match=r"background save of .*c-1"):
        checkpoint.save(tmp_path / "c", options=short)
    assert plain(checkpoint.save_counter) == 1
    release.set()
    checkpoint.sync()


def test_callbacks_hear_of_the_checkpoint_when_it_is_safe(tmp_path):
    heard = []
    options = CheckpointOptions(
        experimental_write_callbacks=[heard.append, lambda: heard.append("done")]
    )
    path = Checkpoint(v=uni.Variable(1.0)).save(tmp_path / "c", options=options)
    assert heard == [path, "done"]


def test_a_checkpoint_is_not_saved_while_a_program_is_made(tmp_path):
    checkpoint = Checkpoint(v=uni.Variable(1.0))
    with pytest.raises(RuntimeError, match=r"inside a unisono\.function"):
        uni.function(lambda: checkpoint.write(tmp_path / "c"))()


def test_saving_from_another_thread_while_steps_run_is_consistent(tmp_path):
    a, b = on_read(mirrored(2), jnp.zeros(64)), variable(mirrored(2), jnp.zeros(64))

    @uni.function
    def step():
        mirrored(2).run(lambda: a.assign_add(jnp.full(64, 0.5)))
        b.assign_add(jnp.ones(64))

    step()
    checkpoint = Checkpoint(a=a, b=b)
    seen = []

    def save():
        for i in range(5):
            path = checkpoint.write(tmp_path / str(i))
            found = Checkpoint()
            with warnings.catch_warnings():
                found.read(path).expect_partial()
            found.a, found.b = uni.Variable(jnp.zeros(64)), uni.Variable(jnp.zeros(64))
            seen.append((plain(found.a), plain(found.b)))

    saver = threading.Thread(target=save)
    saver.start()
    while saver.is_alive():
        step()
    saver.join()
    assert len(seen) == 5
    assert all(a == b for a, b in seen)


# Interrupts.


class Interrupted(BaseException):
    """What a handler of a signal raises."""


# An interrupt between opening a file and entering its `with` block leaves the closing
# of that file to Python's collector, which warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_save_that_is_interrupted_at_any_moment_leaves_nothing_behind(tmp_path):
    checkpoint = Checkpoint(v=uni.Variable(jnp.ones((50, 50))), w=uni.Variable(1.0))
    checkpoint.save(tmp_path / "c")
    began = time.perf_counter()
    checkpoint.save(tmp_path / "c")
    took = time.perf_counter() - began
    is_saving = False
    interrupts = 0

    def interrupt(*_):
        nonlocal interrupts
        if is_saving:
            interrupts += 1
            raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for i in range(20):
            seen = interrupts
            signal.setitimer(signal.ITIMER_REAL, max(took * i / 20, 1e-4))
            try:
                is_saving = True
                checkpoint.save(tmp_path / "c")
                is_saving = False
            except BaseException:
                is_saving = False
                # JAX's caches turn an exception raised while they compare two keys
                # into a ValueError, so the interrupt may arrive in that form.
                if interrupts == seen:
                    raise
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert not list(tmp_path.glob(".unisono-*")), f"interrupt {i}"
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupts, "expected some of the saves to be interrupted"
    checkpoint.save(tmp_path / "c")
    checkpoint.restore(uni.train.latest_checkpoint(tmp_path)).assert_consumed()


def test_the_managers_file_is_not_written_through_a_link(tmp_path):
    target = tmp_path / "precious"
    target.write_text("precious")
    directory = tmp_path / "run"
    directory.mkdir()
    for name in ("checkpoint.new", "checkpoint.json.new"):
        (directory / name).symlink_to(target)
    checkpoint = Checkpoint(v=uni.Variable(1.0))
    manager = CheckpointManager(checkpoint, directory, 1, 1e-9)
    manager.save()
    manager.save()
    assert target.read_text() == "precious"
    assert (directory / "checkpoint.json").is_file()
    assert not list(directory.glob(".checkpoint.json*"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_to_keep": 1.5}, "max_to_keep"),
        ({"max_to_keep": "2"}, "max_to_keep"),
        (
            {"max_to_keep": 1, "checkpoint_interval": 1.5, "step_counter": 1},
            "checkpoint_interval",
        ),
    ],
)
def test_the_numbers_of_a_manager_are_whole(tmp_path, given, message):
    with pytest.raises(TypeError, match=f"{message} must be a whole number"):
        CheckpointManager(Checkpoint(), tmp_path, **given)


@pytest.mark.parametrize("options", [CheckpointOptions(), ASYNC], ids=["now", "async"])
def test_each_save_of_several_threads_has_a_path_of_its_own(tmp_path, options):
    checkpoint, paths = Checkpoint(v=uni.Variable(1.0)), []
    save = repeated(lambda: paths.append(checkpoint.save(tmp_path / "c", options)), 3)
    at_once(save, save, save)
    checkpoint.sync()
    assert sorted(paths) == [str(tmp_path / f"c-{n}") for n in range(1, 10)]
    assert all((tmp_path / f"c-{n}").is_dir() for n in range(1, 10))


def test_a_save_that_fails_does_not_take_the_number_of_another_thread(tmp_path):
    class Waiting:
        """State that is asked for while another thread wants to save."""

        def get_state(self):
            other.start()
            raise ValueError("no state today")

        def set_state(self, state):
            raise NotImplementedError

    checkpoint, paths = Checkpoint(v=uni.Variable(1.0), own=Waiting()), []

    def save():
        checkpoint.own = None
        paths.append(checkpoint.save(tmp_path / "c"))

    other = threading.Thread(target=save)
    with pytest.raises(ValueError, match="no state today"):
        checkpoint.save(tmp_path / "c")
    other.join(20)
    paths.append(checkpoint.save(tmp_path / "c"))
    assert paths == [str(tmp_path / "c-1"), str(tmp_path / "c-2")]


def test_a_save_says_that_another_thread_still_saves(tmp_path):
    reached, go = threading.Event(), threading.Event()

    class Slow:
        """State that takes its time."""

        def get_state(self):
            reached.set()
            assert go.wait(20)
            return 1

        def set_state(self, state):
            raise NotImplementedError

    checkpoint = Checkpoint(own=Slow())
    thread = threading.Thread(target=checkpoint.save, args=(tmp_path / "c",))
    thread.start()
    assert reached.wait(20)
    with pytest.raises(TimeoutError, match="Another thread that saves"):
        checkpoint.save(tmp_path / "c", CheckpointOptions(wait_seconds=0.1))
    go.set()
    thread.join(20)
    assert checkpoint.save(tmp_path / "c") == str(tmp_path / "c-2")


def test_a_function_that_a_background_save_calls_cannot_save(tmp_path):
    checkpoint, seen = Checkpoint(v=uni.Variable(1.0)), []

    def again():
        with pytest.raises(RuntimeError, match="cannot save or restore the same"):
            checkpoint.save(tmp_path / "c")
        seen.append(True)

    checkpoint.save(
        tmp_path / "c", dataclasses.replace(ASYNC, experimental_write_callbacks=[again])
    )
    checkpoint.sync()
    assert seen == [True]


def test_a_copy_of_a_checkpoint_saves_by_itself(tmp_path):
    checkpoint = Checkpoint(v=uni.Variable(1.0))
    checkpoint.save(tmp_path / "c", ASYNC)
    copied = copy.deepcopy(checkpoint)
    assert copied.save(tmp_path / "d") == str(tmp_path / "d-2")
    checkpoint.sync()


@pytest.mark.parametrize("n", [1, 4])
def test_large_arrays_are_in_several_files_and_come_back_whole(
    n, tmp_path, monkeypatch
):
    # Small files, so that few numbers fill several.
    monkeypatch.setattr(array_io, "_FILE_BYTES", 1 << 16)
    rng = np.random.default_rng(0)
    shapes = (301, 97), (3, 5, 7001), (200_000,), ()
    values = [rng.normal(size=shape).astype("f4") for shape in shapes]
    values.append(np.zeros((400, 100), np.int8))
    with mirrored(n).scope():
        made = [uni.Variable(value) for value in values]
    Checkpoint(made=made).write(tmp_path / "c")
    files = [p for p in (tmp_path / "c").rglob("d/*") if p.stat().st_size > 1 << 15]
    assert len(files) > 5
    for v in made:
        v.assign(np.ones_like(v.numpy()))
    Checkpoint(made=made).read(tmp_path / "c").assert_consumed()
    for v, value in zip(made, values, strict=True):
        np.testing.assert_array_equal(v.numpy(), value)
    # One damaged file is noticed, and named.
    data = files[0].read_bytes()
    files[0].write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    with pytest.raises(uni.errors.DataLossError, match=files[0].name):
        Checkpoint(made=made).read(tmp_path / "c")
