"""Names and values of a program are shown without control characters."""

import pytest

import unisono as uni
from tests.parity.programs import index, mirrored
from unisono._src.foundation import printable

NAME = "loss\n\x1b[2J\x07\x9b31m"
SHOWN = "loss\\n\\x1b[2J\\x07\\x9b31m"


def test_what_can_be_printed_stays_as_it_is():
    assert printable.escape("größe 損失 w:0") == "größe 損失 w:0"
    assert printable.escape(NAME) == SHOWN
    assert printable.escape("\u202e\ud800") == "\\u202e\\ud800"


def assert_shown(text):
    assert SHOWN in text
    assert not {"\x1b", "\x07", "\x9b"} & set(text)


def test_a_variable_shows_its_name_escaped():
    assert_shown(repr(uni.Variable(1.0, name=NAME)))
    with mirrored(2).scope():
        v = uni.Variable([1.0], name=NAME)
    assert_shown(repr(v))
    assert_shown(str(v))
    with uni.name_scope(NAME):
        assert_shown(repr(uni.Variable(1.0)))
    with pytest.raises(ValueError, match="Shape mismatch") as raised:
        v.assign([1.0, 2.0])
    assert_shown(str(raised.value))


def test_values_of_replicas_show_text_escaped():
    found = mirrored(2).run(lambda: f"{NAME}{index()}")
    assert_shown(str(found))
    assert_shown(repr(found))


def test_datasets_show_errors_and_paths_escaped(tmp_path):
    def fail(x):
        raise ValueError(NAME)

    assert_shown(repr(uni.data.Dataset.range(2).map(fail)))
    missing = uni.data.TextLineDataset(str(tmp_path / NAME))
    with pytest.raises(uni.errors.NotFoundError) as raised:
        list(missing)
    assert_shown(str(raised.value))
