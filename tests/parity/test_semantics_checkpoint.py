"""Checkpoints: TensorFlow's arithmetic, keys, numbers, status and deferred restore."""

import os

import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import (
    central,
    copies,
    mirrored,
    number,
    numbers,
    on_read,
    one_device,
    plain,
    variable,
)

VALUE = ".ATTRIBUTES/VARIABLE_VALUE"


def write(path, **objects):
    return tf.train.Checkpoint(**objects).write(path / "c")


def read(path, **objects):
    return tf.train.Checkpoint(**objects).read(path)


# Values.


@pytest.mark.feature("S01")
@pytest.mark.parametrize("n", [1, 2, 4, 8])
@pytest.mark.parametrize("m", [1, 2, 4, 8])
def test_a_sum_is_saved_and_divided_by_the_restoring_replicas(tmp_path, n, m):
    v = on_read(mirrored(n))
    mirrored(n).run(lambda: v.assign(number() * 3.0))
    path = write(tmp_path, v=v)
    total = 3.0 * sum(numbers(n))
    assert tf.train.load_variable(path, f"v/{VALUE}") == total
    w = on_read(mirrored(m))
    read(path, v=w).assert_consumed()
    assert copies(w) == [total / m] * m
    assert plain(w) == pytest.approx(total)


@pytest.mark.feature("S02")
@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize(
    ("aggregation", "saved"), [("MEAN", None), ("ONLY_FIRST_REPLICA", 3.0)]
)
def test_a_mean_or_first_copy_is_saved_and_given_to_every_copy(
    tmp_path, n, aggregation, saved
):
    v = on_read(mirrored(n), aggregation=aggregation)
    mirrored(n).run(lambda: v.assign(number() * 3.0))
    path = write(tmp_path, v=v)
    saved = 3.0 * np.mean(numbers(n)) if saved is None else saved
    assert tf.train.load_variable(path, f"v/{VALUE}") == saved
    w = on_read(mirrored(2), aggregation=aggregation)
    read(path, v=w)
    assert copies(w) == [saved] * 2
    assert plain(w) == saved


def test_a_sync_on_read_variable_without_aggregation_is_not_saved(tmp_path):
    v = on_read(mirrored(2), aggregation="NONE")
    with pytest.raises(ValueError, match=r"VariableAggregation\.NONE"):
        write(tmp_path, v=v)
    assert os.listdir(tmp_path) == []


@pytest.mark.feature("S01")
@pytest.mark.parametrize(
    ("dtype", "total"),
    [
        ("int32", 10), ("int32", -10), ("int32", 2**24 + 3), ("int32", [1, 0, -1, 9]),
        ("uint8", 255), ("int8", 127), ("int8", -128),
    ],
)  # fmt: skip
@pytest.mark.parametrize("n", [1, 4, 8])
def test_an_integer_sum_is_restored_with_its_remainder(tmp_path, dtype, total, n):
    # TensorFlow drops the remainder: of 10 on four replicas it reads 8.
    total = np.array(total, dtype)
    path = write(tmp_path, v=tf.Variable(total))
    w = on_read(mirrored(n), np.zeros_like(total))
    read(path, v=w).assert_consumed()
    assert w.numpy().tolist() == total.tolist()
    assert w.dtype == total.dtype
    # The other copies have what TensorFlow gives to all.
    whole = (np.trunc(total / n)).astype(dtype).tolist()
    assert copies(w)[1:] == [whole] * (n - 1)


@pytest.mark.feature("S04")
def test_checkpoints_move_between_strategies(tmp_path):
    u = tf.Variable(7.0)
    path = write(tmp_path, v=u)
    made = [
        variable(mirrored(2)), on_read(mirrored(2)), variable(central(2)),
        variable(one_device()), variable(mirrored(8)),
    ]  # fmt: skip
    for v in made:
        read(path, v=v).assert_consumed()
    assert copies(made[0]) == [7.0, 7.0]
    assert copies(made[1]) == [3.5, 3.5]
    assert [plain(v) for v in made] == [7.0] * 5
    assert copies(made[4]) == [7.0] * 8
    back = write(tmp_path, v=made[1])
    u.assign(0.0)
    read(back, v=u)
    assert plain(u) == 7.0


@pytest.mark.feature("S04")
def test_saving_and_reading_work_inside_a_scope(tmp_path):
    with mirrored(2).scope():
        v = tf.Variable(3.0)
        path = write(tmp_path, v=v)
        v.assign(0.0)
        read(path, v=v)
    assert copies(v) == [3.0, 3.0]


@pytest.mark.feature("S04")
def test_saving_in_replica_context_saves_the_whole(tmp_path):
    v = on_read(mirrored(2))
    mirrored(2).run(lambda: v.assign(number()))
    mirrored(2).run(lambda: write(tmp_path, v=v) and None)
    assert tf.train.load_variable(tmp_path / "c", f"v/{VALUE}") == 3.0


# Keys.


def test_there_is_one_key_per_variable_whatever_the_strategy(tmp_path):
    keys = [
        [k for k, _ in tf.train.list_variables(write(tmp_path / str(i), v=v))]
        for i, v in enumerate(
            [tf.Variable(0.0), variable(mirrored(4)), on_read(mirrored(2))]
        )
    ]
    assert keys == [["_CHECKPOINTABLE_OBJECT_GRAPH", f"v/{VALUE}"]] * 3


def test_keys_of_lists_dicts_and_odd_names_are_tensorflow_s(tmp_path):
    path = write(
        tmp_path,
        l=[tf.Variable(1.0), {"a": tf.Variable(2.0), "x/y.z": tf.Variable(3.0)}],
        t=(tf.Variable(5.0),),
    )
    assert [k for k, _ in tf.train.list_variables(path)] == [
        "_CHECKPOINTABLE_OBJECT_GRAPH",
        f"l/0/{VALUE}",
        f"l/1/a/{VALUE}",
        f"l/1/x.Sy..z/{VALUE}",
        f"t/0/{VALUE}",
    ]


def test_one_variable_under_two_names_is_saved_once(tmp_path):
    a = tf.Variable(9.0)
    path = write(tmp_path, a=a, b=a)
    assert [k for k, _ in tf.train.list_variables(path)][1:] == [f"a/{VALUE}"]
    x, y = tf.Variable(0.0), tf.Variable(0.0)
    read(path, a=x, b=y).assert_consumed()
    assert (plain(x), plain(y)) == (9.0, 9.0)  # TensorFlow leaves y alone.


def test_the_objects_of_a_root_are_saved_as_the_checkpoint_s_own(tmp_path):
    root = tf.train.Checkpoint(v=tf.Variable(1.0))
    both = tf.train.Checkpoint(root, extra=tf.Variable(2.0))
    path = both.write(tmp_path / "c")
    assert [k for k, _ in tf.train.list_variables(path)][1:] == [
        f"extra/{VALUE}",
        f"v/{VALUE}",
    ]


def test_an_empty_checkpoint_has_a_graph_and_nothing_else(tmp_path):
    path = tf.train.Checkpoint().write(tmp_path / "c")
    assert tf.train.list_variables(path) == [("_CHECKPOINTABLE_OBJECT_GRAPH", [])]


# Deferred restore.


@pytest.mark.feature("S05")
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_a_variable_made_after_the_restore_gets_its_value(tmp_path, n):
    path = write(tmp_path, v=tf.Variable(8.0))
    later = tf.train.Checkpoint()
    status = later.read(path)
    with pytest.raises(AssertionError, match=r"Unresolved object .*\(root\)\.v"):
        status.assert_consumed()
    with mirrored(n).scope():
        later.v = tf.Variable(0.0)
    assert copies(later.v) == [8.0] * n
    status.assert_consumed()


@pytest.mark.feature("S05", "S01")
def test_a_sum_made_after_the_restore_is_divided(tmp_path):
    path = write(tmp_path, v=tf.Variable(8.0))
    later = tf.train.Checkpoint()
    later.read(path)
    with mirrored(2).scope():
        later.v = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    assert copies(later.v) == [4.0, 4.0]
    assert plain(later.v) == 8.0


def make_sum_later(path, strategy, is_in_run):
    """Restores, and makes an integer sum on the first call of a compiled function."""
    later = tf.train.Checkpoint()
    later.read(path).expect_partial()

    def make():
        if getattr(later, "v", None) is None:
            later.v = tf.Variable(
                0,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )

    @tf.function
    def step():
        if is_in_run:
            strategy.run(make)
        else:
            with strategy.scope():
                make()
        return later.v.read_value()

    return step()


@pytest.mark.feature("S05", "S01")
def test_an_integer_sum_made_in_a_function_keeps_the_remainder(tmp_path):
    path = write(tmp_path, v=tf.Variable(10))
    assert make_sum_later(path, mirrored(4), is_in_run=False) == 10
    with pytest.raises(ValueError, match="Make it before, in the scope"):
        make_sum_later(path, mirrored(4), is_in_run=True)
    assert make_sum_later(path, mirrored(2), is_in_run=True) == 10


# Status, numbers and paths.


def test_restore_of_what_write_wrote_misses_the_save_counter(tmp_path):
    v = tf.Variable([1.0, 2.0])
    path = write(tmp_path, v=v)
    with pytest.raises(AssertionError, match="save_counter"):
        tf.train.Checkpoint(v=v).restore(path).assert_consumed()
    read(path, v=v).assert_consumed()


def test_restoring_none_restores_nothing():
    status = tf.train.Checkpoint(v=tf.Variable(1.0)).restore(None)
    for ask in (
        status.assert_consumed,
        status.assert_existing_objects_matched,
        status.assert_nontrivial_match,
    ):
        with pytest.raises(AssertionError, match="nothing is being restored"):
            ask()
    assert status.expect_partial() is not None
    assert status.initialize_or_restore() is None


@pytest.mark.parametrize("method", ["restore", "read"])
@pytest.mark.parametrize("path", ["", "nope"])
def test_a_checkpoint_that_is_not_there_is_not_found(tmp_path, method, path):
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
    with pytest.raises(tf.errors.NotFoundError):
        getattr(checkpoint, method)(str(tmp_path / path) if path else path)


def test_another_shape_is_a_value_error_and_changes_nothing(tmp_path):
    path = write(tmp_path, a=tf.Variable(5.0), v=tf.Variable([1.0, 2.0]))
    a, w = tf.Variable(1.0), tf.Variable([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"shape \(2,\).*shape \(3,\)"):
        read(path, a=a, v=w)
    assert (plain(a), plain(w)) == (1.0, [1.0, 2.0, 3.0])


def test_another_type_is_an_invalid_argument(tmp_path):
    path = write(tmp_path, v=tf.Variable([1.0, 2.0]))
    with pytest.raises(tf.InvalidArgumentError, match=r"float32.*int32"):
        read(path, v=tf.Variable([1, 2]))


def test_an_object_without_a_value_in_the_checkpoint_is_named(tmp_path):
    v = tf.Variable([1.0, 2.0])
    path = tf.train.Checkpoint(v=v).save(tmp_path / "c")
    status = tf.train.Checkpoint(v=v, u=tf.Variable(1.0, name="u")).restore(path)
    with pytest.raises(AssertionError, match=r"Found 1 Python objects.*'u:0'"):
        status.assert_existing_objects_matched()
    with pytest.raises(AssertionError, match="Found 1 Python objects"):
        status.assert_consumed()
    status.assert_nontrivial_match()


def test_what_exists_may_match_while_the_checkpoint_has_more(tmp_path):
    path = tf.train.Checkpoint(v=tf.Variable(1.0)).save(tmp_path / "c")
    status = tf.train.Checkpoint().restore(path)
    status.assert_existing_objects_matched().expect_partial()


def test_save_counts_and_write_does_not(tmp_path):
    v = tf.Variable(1.0)
    checkpoint = tf.train.Checkpoint(v=v)
    assert plain(checkpoint.save_counter) == 0
    first, second = (checkpoint.save(tmp_path / "s" / "ck") for _ in range(2))
    assert (first, second) == tuple(str(tmp_path / "s" / f"ck-{i}") for i in (1, 2))
    checkpoint.write(tmp_path / "s" / "w")
    assert plain(checkpoint.save_counter) == 2
    assert tf.train.latest_checkpoint(tmp_path / "s") == second
    other = tf.train.Checkpoint(v=v)
    other.restore(first).assert_consumed()
    assert plain(other.save_counter) == 1


def test_a_directory_stands_for_its_latest_checkpoint(tmp_path):
    v = tf.Variable([1.0, 2.0])
    tf.train.Checkpoint(v=v).save(tmp_path / "ck")
    assert tf.train.load_variable(tmp_path, f"v/{VALUE}").tolist() == [1.0, 2.0]
    assert (f"v/{VALUE}", [2]) in tf.train.list_variables(tmp_path)
    with pytest.raises(tf.errors.NotFoundError, match="Key nope not found"):
        tf.train.load_variable(tmp_path, "nope")
    with pytest.raises(tf.errors.NotFoundError):
        tf.train.list_variables(tmp_path / "none")
    assert tf.train.latest_checkpoint(tmp_path / "none") is None


def test_save_counter_cannot_be_given(tmp_path):
    with pytest.raises(AttributeError, match="save_counter"):
        tf.train.Checkpoint(save_counter=tf.Variable(1))


# The manager.


def names(paths):
    return [os.path.basename(path) for path in paths]


def test_the_manager_numbers_and_keeps_as_tensorflow_s(tmp_path):
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
    for _ in range(2):
        checkpoint.save(tmp_path / "s" / "ck")
    manager = tf.train.CheckpointManager(checkpoint, tmp_path / "m", max_to_keep=2)
    seen = []
    for _ in range(4):
        path = manager.save()
        seen.append(names(manager.checkpoints))
        assert manager.latest_checkpoint == path
    assert seen == [
        ["ckpt-3"],
        ["ckpt-3", "ckpt-4"],
        ["ckpt-4", "ckpt-5"],
        ["ckpt-5", "ckpt-6"],
    ]
    assert sorted(os.listdir(tmp_path / "m")) == ["ckpt-5", "ckpt-6"]
    assert names([manager.save(checkpoint_number=77)]) == ["ckpt-77"]
    again = tf.train.CheckpointManager(checkpoint, tmp_path / "m", max_to_keep=2)
    assert names(again.checkpoints) == ["ckpt-6", "ckpt-77"]
    assert names([again.restore_or_initialize()]) == ["ckpt-77"]


def test_the_manager_initializes_when_there_is_nothing_to_restore(tmp_path):
    called = []
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(v=tf.Variable(1.0)),
        tmp_path / "m",
        max_to_keep=2,
        init_fn=lambda: called.append(1),
    )
    assert manager.restore_or_initialize() is None
    assert called == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_to_keep": 0}, "Expected a positive integer or `None`"),
        (
            {"max_to_keep": 2, "checkpoint_interval": 2},
            "`step_counter` should be passed",
        ),
    ],
)
def test_the_manager_refuses_what_tensorflow_refuses(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        tf.train.CheckpointManager(tf.train.Checkpoint(), tmp_path, **arguments)


def test_the_manager_waits_for_its_interval(tmp_path):
    step = tf.Variable(0)
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(step=step),
        tmp_path / "m",
        max_to_keep=None,
        step_counter=step,
        checkpoint_interval=2,
    )
    saved = []
    for _ in range(5):
        saved.append(manager.save() is not None)
        step.assign_add(1)
    assert saved == [True, False, True, False, True]
    assert manager.save(check_interval=False) is not None
