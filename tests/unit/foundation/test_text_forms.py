"""Text and bytes are converted as by ``tf.compat``."""

import pathlib

import pytest

from unisono import compat


def test_text_becomes_bytes_and_bytes_become_text():
    assert compat.as_bytes("ä") == compat.as_bytes("ä".encode()) == "ä".encode()
    assert compat.as_bytes(bytearray(b"x")) == b"x"
    assert compat.as_bytes("ä", "latin-1") == b"\xe4"
    assert compat.as_text("ä".encode()) == compat.as_str("ä") == "ä"
    assert compat.as_str is compat.as_text


def test_what_is_no_text_is_refused_unless_anything_is_taken():
    for convert in (compat.as_bytes, compat.as_text):
        with pytest.raises(TypeError, match="Expected binary or unicode string, got 3"):
            convert(3)
    assert [compat.as_str_any(x) for x in (3, b"x", "y")] == ["3", "x", "y"]


def test_paths_and_sizes_are_plain():
    assert compat.path_to_str(pathlib.Path("a") / "b") == str(pathlib.Path("a/b"))
    assert compat.path_to_str("a/b") == "a/b"
    assert [compat.dimension_value(x) for x in (3, None)] == [3, None]
