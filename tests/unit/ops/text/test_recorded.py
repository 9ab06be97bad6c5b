"""Functions of text, lines of tables and lookups give what TensorFlow gave."""

import json

import pytest

import unisono
from tests.unit.ops.text import cases, record

RECORDED = json.loads(record.PATH.read_text(encoding="utf-8"))
# Calls that do what TensorFlow refuses, and refuse what it does not do.
MORE = ("np.int64([0, 2, 9])",)
REFUSED = ("[[:^alpha:]]", r"'a', '\\1'", r"'a', '\\'")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("files")
    record.write_files(made)
    return made


def family(call):
    return call.split("(")[0]


@pytest.mark.parametrize("name", sorted({family(call) for call in cases.CALLS}))
def test_a_function_of_text_gives_what_tensorflow_gave(name, folder):
    for call in (c for c in cases.CALLS if family(c) == name):
        wanted, found = RECORDED[call], record.call(unisono, call, folder)
        if any(part in call for part in REFUSED):
            assert found == "InvalidArgumentError", call
        elif isinstance(wanted, str) and not any(part in call for part in MORE):
            assert isinstance(found, str), call
        elif not isinstance(wanted, str):
            assert found == wanted, call


def test_every_call_was_recorded():
    assert sorted(RECORDED) == sorted(set(cases.CALLS))
