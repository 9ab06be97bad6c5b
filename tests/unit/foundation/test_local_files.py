"""TensorFlow's functions for files do what they do there, on this machine's files."""

import os
import random
import threading
import time

import pytest

from unisono import errors
from unisono._src.foundation import local_files
from unisono.io import gfile


def test_folders_are_made_listed_and_removed(tmp_path):
    run = gfile.join(tmp_path, "runs", "first")
    gfile.makedirs(run)
    gfile.makedirs(run)
    with gfile.GFile(gfile.join(run, "b"), "w") as file:
        file.write("héllo\n")
    gfile.copy(gfile.join(run, "b"), gfile.join(run, "a"))
    assert sorted(gfile.listdir(run)) == ["a", "b"]
    assert gfile.glob([f"{run}/*", f"file://{run}/b"]) == [
        f"{run}/a",
        f"{run}/b",
        f"{run}/b",
    ]
    assert gfile.stat(f"{run}/a").length == 7
    assert gfile.isdir(run)
    assert not gfile.isdir(f"{run}/a")
    assert [found for found, _, _ in gfile.walk(tmp_path)][-1] == run
    gfile.rename(f"{run}/a", f"{run}/c")
    gfile.remove(f"{run}/c")
    gfile.rmtree(tmp_path / "runs")
    assert not gfile.exists(run)


def test_a_file_is_read_by_parts(tmp_path):
    path = tmp_path / "notes"
    path.write_bytes(b"one\ntwo\n")
    with gfile.GFile(path, "rb") as file:
        assert file.size() == 8
        assert file.read(2) == b"on"
        assert file.tell() == 2
        file.seek(0)
        assert file.readline() == b"one\n"
        assert list(file) == [b"two\n"]


def test_what_is_there_is_not_replaced_unless_asked(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    for change in (gfile.copy, gfile.rename):
        with pytest.raises(errors.AlreadyExistsError, match="overwrite=True"):
            change(tmp_path / "a", tmp_path / "b")
    gfile.mkdir(tmp_path)
    with pytest.raises(errors.AlreadyExistsError):
        gfile.mkdir(tmp_path / "a")
    gfile.copy(tmp_path / "a", tmp_path / "b", overwrite=True)
    assert (tmp_path / "b").read_text() == "a"


@pytest.mark.parametrize(
    "use", [gfile.GFile, gfile.listdir, gfile.remove, gfile.rmtree, gfile.stat]
)
def test_what_is_missing_is_named(use, tmp_path):
    with pytest.raises(errors.NotFoundError, match="nothing"):
        use(tmp_path / "nothing")


def test_a_place_on_another_machine_is_refused():
    with pytest.raises(ValueError, match=r"'gs://bucket/x' is not one\. Mount"):
        gfile.exists("gs://bucket/x")


def test_text_and_bytes_are_written_in_any_mode(tmp_path):
    path = tmp_path / "notes"
    for mode in ("w", "wb"):
        with gfile.GFile(path, mode) as file:
            file.write("ä")
            file.write(b"b")
            file.write(bytearray(b"c"))
            with pytest.raises(TypeError, match="Expected binary or unicode string"):
                file.write(3)
        assert path.read_bytes() == "äbc".encode()
    with gfile.GFile(path, "ab") as file:
        file.write("ö")
    assert path.read_bytes() == "äbcö".encode()


def test_a_file_that_may_not_be_opened_is_an_error_of_both_kinds(monkeypatch, tmp_path):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(errors.PermissionDeniedError, match="notes; Permission denied"):
        gfile.GFile(tmp_path / "notes", "w")


def test_a_whole_file_is_read_and_a_missing_one_is_named(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"\0one\n")
    assert local_files.read_bytes(path) == b"\0one\n"
    assert local_files.read_bytes(f"file://{path}") == b"\0one\n"
    with pytest.raises(errors.NotFoundError, match="missing; No such file"):
        local_files.read_bytes(tmp_path / "missing")
    with pytest.raises(ValueError, match="files of this machine"):
        local_files.read_bytes("gs://bucket/data")


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1])
def test_a_file_of_any_size_is_read_whole(size, tmp_path):
    data = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(data)
    assert local_files.read_bytes(tmp_path / "file") == data


def test_files_that_do_not_tell_their_size_are_read_to_the_end(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    def write():
        with open(tmp_path / "pipe", "wb", buffering=0) as pipe:
            for part in (b"one", b"two"):
                pipe.write(part)
                time.sleep(0.05)

    thread = threading.Thread(target=write)
    thread.start()
    assert local_files.read_bytes(tmp_path / "pipe") == b"onetwo"
    thread.join()


def test_a_folder_is_no_file_and_is_named(tmp_path):
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        local_files.read_bytes(tmp_path)


def test_paths_below_a_wildcard_begin_with_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "d").mkdir()
    for name in ("b.txt", "a.txt", "d/c.txt"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert gfile.glob("*.txt") == ["./a.txt", "./b.txt"]
    assert gfile.glob(["*/*.txt", "d/*", "a.txt"]) == ["./d/c.txt", "d/c.txt", "a.txt"]


def test_a_file_that_is_open_for_something_else_is_named(tmp_path):
    path = tmp_path / "a"
    with gfile.GFile(path, "w") as file, pytest.raises(errors.PermissionDeniedError):
        file.read()
    with gfile.GFile(path) as file, pytest.raises(errors.PermissionDeniedError):
        file.write("text")
