"""The folder of a node of Ray."""

import os
import pathlib
import tempfile

import pytest

from unisono._src.servers.ray import node

LIMIT = 26


def test_a_folder_is_among_temporary_files_if_its_path_is_short(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        for length in (LIMIT, LIMIT + 1):
            parent = pathlib.Path(base, "x" * (length - len(base) - 1))
            parent.mkdir()
            monkeypatch.setattr(tempfile, "tempdir", str(parent))
            made = pathlib.Path(node.make_folder())
            made.rmdir()
            is_short = length == LIMIT
            assert made.parent == (parent if is_short else pathlib.Path("/tmp"))


def test_without_a_short_folder_the_error_says_what_to_set(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "x" * LIMIT)
    monkeypatch.setattr(os, "access", lambda path, mode: len(path) > LIMIT)
    with pytest.raises(OSError, match=f"a folder whose path has at most {LIMIT} char"):
        node.make_folder()
