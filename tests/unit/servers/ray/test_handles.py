import functools
import pickle
import threading

import pytest

from unisono._src.servers.ray import handles
from unisono._src.servers.worker_data import DatasetMaker


class Reader:
    def __init__(self):
        self.path, self.lock = "x", threading.Lock()

    def make(self):
        return self.path


LOCK, READER = threading.Lock(), Reader()


def outer():
    held = {"inner": [READER]}

    def make():
        return held

    return make


def by_global():
    return READER.lock


def by_default(lock=LOCK):
    return lock


def dump(value):
    """Sends functions by value, as Ray does with those of a program."""
    if isinstance(value, DatasetMaker):
        dump(list(vars(value).values()))
    elif isinstance(value, (list, tuple)):
        for x in value:
            dump(x)
    elif callable(value) and not isinstance(value, type):
        raise TypeError("cannot pickle it")
    else:
        pickle.dumps(value)


@pytest.mark.feature("T06")
@pytest.mark.parametrize(
    ("given", "path"),
    [
        (outer(), "make.held.['inner'].lock"),
        (by_global, "by_global.READER.lock"),
        (by_default, "by_default"),
        (functools.partial(by_global), "by_global.READER.lock"),
        (READER.make, "make.lock"),
    ],
)
def test_what_cannot_be_sent_is_found_by_the_names_of_the_program(given, path):
    found = handles.find_unsendable((3, DatasetMaker(given)), dump)
    assert found is not None
    assert found[0] == path and isinstance(found[1], type(LOCK))
    assert "cannot pickle" in found[2]


def test_what_can_be_sent_is_not_found():
    assert handles.find_unsendable((1, "x"), dump) is None
