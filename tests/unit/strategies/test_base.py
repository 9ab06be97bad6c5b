"""Entering and leaving the scope of a strategy."""

import jax.numpy as jnp
import optax
import pytest

import unisono
from tests.mappings import Fixed
from tests.parity.programs import mirrored


def keep(next_creator, **options):
    return next_creator(**options)


def test_a_scope_left_inside_a_creator_scope_leaves_nothing_behind():
    scope = mirrored(2).scope()
    scope.__enter__()
    with (
        pytest.raises(RuntimeError, match="Variable creator scope nesting error"),
        unisono.variable_creator_scope(keep),
    ):
        scope.__exit__(None, None, None)
    assert not unisono.distribute.has_strategy()
    assert unisono.Variable(1.0).distribute_strategy is None


def test_a_strategy_is_not_current_after_its_scope_was_left_in_the_wrong_order():
    scope, creators = mirrored(2).scope(), unisono.variable_creator_scope(keep)
    scope.__enter__()
    creators.__enter__()
    with pytest.raises(RuntimeError, match="Leave that one first"):
        scope.__exit__(None, None, None)
    assert not unisono.distribute.has_strategy()
    creators.__exit__(None, None, None)
    assert not unisono.distribute.has_strategy()


def test_a_scope_is_left_as_often_as_it_is_entered():
    strategy = mirrored(2)
    scope = strategy.scope()
    with pytest.raises(RuntimeError, match="never entered"):
        scope.__exit__(None, None, None)
    with scope:
        pass
    with pytest.raises(RuntimeError, match="scope nesting error"):
        scope.__exit__(None, None, None)
    with strategy.scope():
        inner = strategy.scope()
        with inner:
            pass
        with pytest.raises(RuntimeError, match="as often as you enter it"):
            inner.__exit__(None, None, None)
        assert unisono.distribute.get_strategy() is strategy
    assert not unisono.distribute.has_strategy()


def test_a_scope_may_be_left_again_after_an_error():
    scope = mirrored(2).scope()
    scope.__enter__()
    with (
        unisono.variable_creator_scope(keep),
        pytest.raises(RuntimeError, match="Variable creator scope nesting error"),
    ):
        scope.__exit__(None, None, None)
    scope.__exit__(None, None, None)
    assert not unisono.distribute.has_strategy()
    with pytest.raises(RuntimeError, match="left already"):
        scope.__exit__(None, None, None)


def test_an_error_inside_nested_scopes_reaches_the_program_as_it_is():
    strategy = mirrored(2)
    with (
        pytest.raises(KeyError, match="mine"),
        strategy.scope(),
        unisono.variable_creator_scope(keep),
        strategy.scope(),
    ):
        raise KeyError("mine")
    assert not unisono.distribute.has_strategy()


def test_a_scope_that_was_only_entered_nested_may_be_entered_again():
    strategy = mirrored(2)
    inner = strategy.scope()
    with strategy.scope():
        for _ in range(2):
            with inner:
                assert unisono.distribute.get_strategy() is strategy
    with inner:
        assert unisono.distribute.get_strategy() is strategy
    assert not unisono.distribute.has_strategy()
    with pytest.raises(AttributeError, match="cannot be entered again"):
        inner.__enter__()


@pytest.mark.parametrize("wrap", [lambda f: f, unisono.function])
def test_run_takes_and_returns_mappings_of_a_class_of_ones_own(wrap):
    strategy = mirrored(2)

    def replica_fn(x):
        rank = unisono.distribute.get_replica_context().replica_id_in_sync_group
        assert type(x[0]) is Fixed
        return [Fixed(b=x[0]["b"] + rank, a=x[0]["a"] - rank)]

    run = wrap(lambda x: strategy.run(replica_fn, (x,)))
    (found,) = run([Fixed(b=jnp.array(1), a=jnp.array(5))])
    assert type(found) is Fixed and list(found) == ["b", "a"]
    for key, wanted in {"b": [1, 2], "a": [5, 4]}.items():
        parts = strategy.experimental_local_results(found[key])
        assert [int(x) for x in parts] == wanted


def test_a_group_of_one_value_is_the_value():
    two, one = mirrored(2), mirrored(1)
    value = jnp.asarray(2.0)
    assert one.group(one.run(lambda: value)) is one.group({"a": value}) is value
    assert one.group(value, name="named") is None
    assert one.group([value, value]) is two.group(two.run(lambda: value + 1)) is None


def test_values_of_different_types_are_not_added_up_in_silence():
    strategy = mirrored(2)
    mixed = unisono.distribute.PerReplica([jnp.float32(1.0), jnp.int32(1)])
    with pytest.raises(unisono.errors.InvalidArgumentError, match="same element type"):
        strategy.reduce("SUM", mixed, axis=None)
    # Python's numbers have no type of their own.
    mixed = unisono.distribute.PerReplica([jnp.float32(1.0), 1])
    assert float(strategy.reduce("SUM", mixed, axis=None)) == 2.0


def test_the_default_replica_names_no_device():
    def find():
        return unisono.distribute.get_replica_context().devices

    assert find() == unisono.distribute.get_strategy().run(find) == [""]


def test_a_strategy_shows_its_devices():
    s = unisono.distribute.MirroredStrategy(["CPU:1", "CPU:0"])
    assert repr(s) == "<MirroredStrategy of 2 replicas on CPU:1, CPU:0>"
    eight = unisono.distribute.MirroredStrategy([f"CPU:{i}" for i in range(8)])
    assert repr(eight) == "<MirroredStrategy of 8 replicas on CPU:0, …, CPU:7>"
    one = unisono.distribute.OneDeviceStrategy("CPU:3")
    assert repr(one) == "<OneDeviceStrategy of 1 replica on CPU:3>"


def test_what_a_training_program_makes_shows_what_it_is_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    s = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with s.scope():
        w = unisono.Variable([1.0], name="w")
        optimizer = unisono.optimizers.Optimizer(optax.sgd(0.1), [w])
    batches = s.experimental_distribute_dataset(unisono.data.Dataset.range(4).batch(2))
    checkpoint = unisono.train.Checkpoint(w=w, optimizer=optimizer)
    made = {
        "<Optimizer of w:0>": optimizer,
        "<DistributedIterator of <DistributedDataset over 2 replicas>>": iter(batches),
        "<Checkpoint of w, optimizer>": checkpoint,
        "<CheckpointManager of 'steps'>": unisono.train.CheckpointManager(
            checkpoint, "steps", max_to_keep=1
        ),
        "<GradientTape stopped, persistent=True>": unisono.GradientTape(True),
        "<Generator PHILOX>": unisono.random.Generator.from_seed(1),
    }
    assert [repr(x) for x in made.values()] == list(made)


def test_the_settings_of_a_session_change_nothing():
    strategy = mirrored(2)
    config = unisono.compat.v1.ConfigProto(allow_soft_placement=True)
    strategy.configure(session_config=config, task_type="worker", task_id=0)
    copied = strategy.update_config_proto(config)
    assert copied is not config and copied.allow_soft_placement


def test_a_strategy_that_is_made_takes_no_cluster():
    cluster = {"worker": ["a:1", "b:1"]}
    with pytest.raises(ValueError, match="Pass a cluster_resolver"):
        mirrored(2).configure(cluster_spec=cluster, task_type="worker", task_id=0)
    # The default strategy ignores it, as in TensorFlow.
    unisono.distribute.get_strategy().configure(cluster_spec=cluster)


def test_variables_are_made_beside_another_by_the_older_name_too():
    strategy = mirrored(2)
    with strategy.scope():
        first = unisono.Variable(1.0)
        with strategy.colocate_vars_with(first):
            second = unisono.Variable(2.0)
    assert second.device == first.device
    with pytest.raises(RuntimeError, match="Need to be inside"):
        strategy.colocate_vars_with(first)


def test_the_replica_context_has_a_short_name():
    assert unisono.get_replica_context is unisono.distribute.get_replica_context
    strategy = mirrored(2)
    ranks = strategy.run(lambda: unisono.get_replica_context().replica_id_in_sync_group)
    assert [int(x) for x in strategy.experimental_local_results(ranks)] == [0, 1]


def test_a_strategy_describes_all_variables_of_its_scope():
    s = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with s.scope():
        w = unisono.Variable([1.0, 2.0], name="w")
        optimizer = unisono.optimizers.Optimizer(optax.sgd(0.1, 0.9), [w])
    unisono.Variable(1.0, name="outside")
    first, *others = [row.name for row in s.describe().rows]
    assert first == "w:0"
    assert sorted(others) == sorted(v.name for v in optimizer.variables)


def test_describe_without_arguments_shows_what_is_in_scope():
    s = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    outside = unisono.Variable(1.0, name="outside")
    with s.scope():
        inside = unisono.Variable(1.0, name="inside")
        assert [row.name for row in unisono.describe().rows] == [inside.name]
    # Outside every scope: all variables of the program.
    assert {inside.name, outside.name} <= {r.name for r in unisono.describe().rows}
    assert [row.name for row in unisono.describe(outside).rows] == [outside.name]


def test_no_object_shows_its_address_instead_of_what_it_is(tmp_path):
    s = mirrored(2)
    with s.scope():
        w = unisono.Variable(1.0, name="w")
        optimizer = unisono.optimizers.Optimizer(optax.sgd(0.1), [w])
    data = unisono.data.Dataset.range(4).batch(2)
    spread = s.experimental_distribute_dataset(data)
    checkpoint = unisono.train.Checkpoint(w=w)
    tasks = unisono.train.ClusterSpec({"worker": ["a:1"]})
    for shown in (
        s, s.extended, w, optimizer, unisono.metrics.Mean(), data, iter(data),
        data.as_numpy_iterator(), spread, iter(spread), checkpoint,
        unisono.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=1),
        unisono.train.ExponentialMovingAverage(0.9), unisono.train.Progress(data),
        unisono.distribute.cluster_resolver.SimpleClusterResolver(tasks),
        unisono.GradientTape(), unisono.random.Generator.from_seed(1),
        unisono.Module("m"), unisono.function(lambda x: x),
    ):  # fmt: skip
        assert " at 0x" not in repr(shown)


def test_notebooks_show_tables_without_reading_elements():
    s = mirrored(2)

    def generate():
        raise AssertionError("An element was read.")

    spec = unisono.TensorSpec([], "float32")
    given = unisono.data.Dataset.from_generator(generate, output_signature=spec)
    batches = s.experimental_distribute_dataset(given.batch(4))
    from_function = s.distribute_datasets_from_function(lambda context: given.batch(2))
    with s.scope():
        w = unisono.Variable([1.0, 2.0], name="w")
        optimizer = unisono.optimizers.Optimizer(optax.sgd(0.1), [w])
    checkpoint = unisono.train.Checkpoint(w=w, optimizer=optimizer)
    assert "mirrored" in s._repr_html_() and "CPU:0" in s._repr_html_()
    for x in (batches, iter(batches), from_function, optimizer, checkpoint):
        assert "<table>" in x._repr_html_(), x
