"""Restoring: objects that appear later, roots, and restores that overlap."""

import gc
import weakref

import numpy as np
import pytest

import unisono as uni
from tests.parity.programs import copies, mirrored, plain
from unisono._src.saving.checkpoint import object_graph
from unisono.train import Checkpoint


class Net(uni.Module):
    """A module that makes its variable on the first call."""

    w = None

    def __call__(self):
        if self.w is None:
            self.w = uni.Variable(0.0)
        return self.w * 1.0


class OwnNet:
    """The same without a base class."""

    w = None

    def __call__(self):
        if self.w is None:
            self.w = uni.Variable(0.0)
        return self.w * 1.0


def node(**children):
    made = uni.Module()
    for name, child in children.items():
        setattr(made, name, child)
    return made


# A root.


@pytest.mark.parametrize("make", [Net, OwnNet])
@pytest.mark.parametrize("how", [lambda x: x, weakref.ref], ids=["root", "weak"])
@pytest.mark.parametrize("n", [None, 1, 2, 8])
def test_a_root_that_makes_its_variables_later_gets_their_values(
    tmp_path, make, how, n
):
    saved = make()
    saved()
    saved.w.assign(5.0)
    path = Checkpoint(saved).save(tmp_path / "c")
    root = make()
    checkpoint = Checkpoint(how(root))
    status = checkpoint.restore(path)
    with (uni.distribute.get_strategy() if n is None else mirrored(n)).scope():
        assert plain(root()) == 5.0
    status.assert_consumed()
    assert n is None or copies(root.w) == [5.0] * n
    assert type(root) is make  # Nothing waits any more.
    assert [k for k, _ in uni.train.list_variables(checkpoint.save(tmp_path / "c"))][
        -1
    ].startswith("w/")


def test_a_root_that_a_compiled_step_builds_gets_its_values(tmp_path):
    saved = Net()
    saved()
    saved.w.assign(5.0)
    path = Checkpoint(saved).write(tmp_path / "c")
    root, strategy = Net(), mirrored(2)
    status = Checkpoint(root).read(path)
    step = uni.function(lambda: strategy.run(root))
    assert copies(step()) == [5.0, 5.0]
    status.assert_consumed()


def test_what_a_root_lacks_may_be_set_on_the_checkpoint_instead(tmp_path):
    path = Checkpoint(node(a=uni.Variable(1.0)), b=uni.Variable(2.0)).write(
        tmp_path / "c"
    )
    inner = node()
    outer = Checkpoint(Checkpoint(inner))
    status = outer.read(path)
    outer.b, inner.a = uni.Variable(0.0), uni.Variable(0.0)
    assert (plain(inner.a), plain(outer.b)) == (1.0, 2.0)
    status.assert_consumed()


class Counting:
    """An object with a number that is state."""

    default = 0


@pytest.mark.parametrize("name", ["number", "default"])
def test_a_number_of_a_root_is_restored_to_the_root(tmp_path, name):
    saved, root = Counting(), Counting()
    setattr(saved, name, 7)
    path = Checkpoint(saved).write(tmp_path / "c")
    checkpoint = Checkpoint(root)
    status = checkpoint.read(path)
    if name == "default":  # It waits until the program sets it.
        root.default = 1
    assert getattr(root, name) == 7
    assert not hasattr(checkpoint, name)
    status.assert_consumed()


def test_a_weak_root_is_freed_and_then_named_as_gone(tmp_path):
    path = Checkpoint(node(v=uni.Variable(1.0))).save(tmp_path / "c")
    root = node(v=uni.Variable(0.0))
    checkpoint, variable = Checkpoint(weakref.ref(root)), weakref.ref(root.v)
    checkpoint.restore(path).assert_consumed()
    del root
    gc.collect()
    assert variable() is None
    for use in (lambda: checkpoint.save(tmp_path / "c"), lambda: checkpoint.read(path)):
        with pytest.raises(ReferenceError, match="root of this checkpoint is gone"):
            use()
    with pytest.raises(ReferenceError, match="root of this checkpoint is gone"):
        Checkpoint(weakref.ref(node()))


@pytest.mark.parametrize("value", [5, "text", np.ones(3), uni.Variable(1.0), len])
def test_a_root_without_attributes_of_state_is_refused(value):
    with pytest.raises(ValueError, match=r"root to be a trackable object.*`Checkpoint"):
        Checkpoint(value)


def test_a_name_that_the_root_has_for_another_object_is_refused():
    root = node(v=uni.Variable(1.0))
    Checkpoint(root, v=root.v)
    with pytest.raises(ValueError, match=r"argument v if root\.v already exists"):
        Checkpoint(root, v=uni.Variable(2.0))


# Several restores.


@pytest.fixture(name="paths")
def _paths(tmp_path):
    """Two checkpoints of the same names; the second has 13 where the first has 12."""
    saved = node(dep=node(var=uni.Variable(12.0)))
    first = Checkpoint(saved).write(tmp_path / "first")
    saved.dep.var.assign(13.0)
    return first, Checkpoint(saved).write(tmp_path / "second")


@pytest.mark.parametrize("last", [0, 1])
def test_the_restore_that_was_called_last_gives_the_value(paths, last):
    # TensorFlow's `testOverlappingRestores`: one object below two roots.
    roots, checkpoints, statuses = [node(), node()], {}, {}
    for i in (1 - last, last):
        checkpoints[i] = Checkpoint(roots[i])
        statuses[i] = checkpoints[i].read(paths[i])
    dep = node(var=uni.Variable(0.0))
    roots[0].dep = dep
    assert plain(dep.var) == 12.0
    roots[1].dep = dep
    for _ in range(2):
        assert plain(dep.var) == 12.0 + last
        for status in statuses.values():
            status.assert_consumed()
        checkpoints[1 - last].sync()


@pytest.mark.parametrize("is_same_checkpoint", [True, False])
@pytest.mark.parametrize("is_part_last", [True, False])
def test_what_only_the_older_of_two_restores_has_comes_from_there(
    tmp_path, is_same_checkpoint, is_part_last
):
    whole = Checkpoint(node(dep=node(x=uni.Variable(1.0), y=uni.Variable(2.0))))
    part = Checkpoint(node(dep=node(x=uni.Variable(10.0))))
    paths = [whole.write(tmp_path / "whole"), part.write(tmp_path / "part")]
    root = node()
    checkpoint = Checkpoint(root)
    for path in paths if is_part_last else paths[::-1]:
        used = checkpoint if is_same_checkpoint else Checkpoint(root)
        used.read(path).expect_partial()
    root.dep = node()
    root.dep.x, root.dep.y = uni.Variable(0.0), uni.Variable(0.0)
    assert plain([root.dep.x, root.dep.y]) == [10.0 if is_part_last else 1.0, 2.0]


def test_of_two_values_for_one_variable_the_first_is_restored(tmp_path):
    path = Checkpoint(a=uni.Variable(1.0), b=uni.Variable(2.0)).write(tmp_path / "c")
    v = uni.Variable(0.0)
    Checkpoint(a=v, b=v).read(path).assert_consumed()
    assert plain(v) == 1.0  # As in TensorFlow.


def test_restores_of_the_same_names_replace_each_other(paths):
    root = node()
    for i in range(4):
        Checkpoint(root).read(paths[i % 2]).expect_partial()
    waiting = vars(root)[object_graph.PENDING_ATTRIBUTE]
    assert {name: len(found) for name, found in waiting.items()} == {"dep": 1}
    root.dep = node(var=uni.Variable(0.0))
    assert plain(root.dep.var) == 13.0
