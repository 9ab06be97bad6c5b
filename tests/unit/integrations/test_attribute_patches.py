"""Attributes are replaced while a block is open, and given back whatever happens."""

import threading

import pytest

from unisono._src.integrations import attribute_patches


class Base:
    def greet(self):
        return "base"


class Child(Base):
    own = 1


def shout(original):
    return lambda self: original(self).upper()


def test_inherited_and_own_attributes_are_given_back():
    patches = attribute_patches.Patches(
        [(Child, "greet", shout), (Child, "own", lambda own: own + 1)]
    )
    with patches, patches:
        assert Child().greet() == "BASE" and Child.own == 2
        assert Base().greet() == "base"
    assert "greet" not in vars(Child) and Child.own == 1


def test_what_another_library_has_replaced_meanwhile_is_kept(monkeypatch):
    patches = attribute_patches.Patches([(Child, "own", lambda own: own + 1)])
    with patches:
        pass
    monkeypatch.setattr(Child, "own", 10)
    with patches:
        assert Child.own == 11
    assert Child.own == 10


def test_the_last_thread_that_leaves_gives_back():
    patches = attribute_patches.Patches([(Child, "own", lambda own: own + 1)])
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with patches:
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(10)
    with pytest.raises(KeyError), patches:
        raise KeyError
    assert Child.own == 2
    leave.set()
    thread.join()
    assert Child.own == 1


def test_a_failure_on_the_way_in_leaves_nothing_replaced():
    def fail(original):
        raise ValueError

    patches = attribute_patches.Patches([(Child, "greet", shout), (Child, "own", fail)])
    for _ in range(2):
        with pytest.raises(ValueError), patches:
            pass
        assert "greet" not in vars(Child)


def test_an_attribute_that_is_not_there_is_named_at_once():
    with pytest.raises(AttributeError, match="absent"):
        attribute_patches.Patches([(Child, "absent", shout)])
