"""The format on disk: every change is noticed, nothing in a file is believed."""

import hashlib
import json
import os
import pathlib
import stat
import time
from concurrent import futures

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import unisono as uni
from tests.parity.programs import plain
from unisono._src.saving.format import (
    array_types,
    checkpoint_directory,
    checksummed_files,
    comparison,
    manifest,
    packing,
    plain_data,
)
from unisono.train import Checkpoint, CheckpointManager, latest_checkpoint


def all_files(path):
    return sorted(p for p in pathlib.Path(path).rglob("*") if p.is_file())


@pytest.fixture
def saved(tmp_path):
    """A directory with two checkpoints, of values 1 and 2."""
    return save_two(tmp_path)


@pytest.fixture
def unpacked(tmp_path, monkeypatch):
    """The same as version 1 of the format had it: every array by itself."""
    monkeypatch.setattr(packing, "_SMALL_BYTES", -1)
    monkeypatch.setattr(manifest, "VERSION", 1)
    return save_two(tmp_path)


def save_two(tmp_path):
    v = uni.Variable(jnp.ones((4, 8)))
    checkpoint = Checkpoint(v=v, u=uni.Variable([1, 2]), epoch=1)
    checkpoint.save(tmp_path / "c")
    v.assign(jnp.full((4, 8), 2.0))
    checkpoint.save(tmp_path / "c")
    return checkpoint, tmp_path


# Damage.


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << (position % 8)
    path.write_bytes(data)


def test_a_bit_flipped_anywhere_in_any_file_is_noticed(saved):
    checkpoint, directory = saved
    newest = directory / "c-2"
    for path in all_files(newest):
        before = path.read_bytes()
        step = max(1, len(before) // 40)
        for position in [*range(0, len(before), step), len(before) - 1]:
            flip(path, position)
            with pytest.raises(uni.errors.DataLossError) as caught:
                checkpoint.restore(newest)
            assert str(path) in str(caught.value)
            path.write_bytes(before)
    checkpoint.restore(newest).assert_consumed()


@pytest.mark.parametrize("left", [0.0, 0.5, 1.0])
def test_a_truncated_or_longer_or_missing_file_is_noticed(saved, left):
    checkpoint, directory = saved
    newest = directory / "c-2"
    for path in all_files(newest):
        before = path.read_bytes()
        changed = before[: int(len(before) * left)] if left < 1 else before + b"\0"
        path.write_bytes(changed)
        with pytest.raises(uni.errors.DataLossError, match=path.name):
            checkpoint.restore(newest)
        path.unlink()
        with pytest.raises(
            (uni.errors.DataLossError, uni.errors.NotFoundError), match=path.name
        ):
            checkpoint.restore(newest)
        path.write_bytes(before)


def test_the_latest_whole_checkpoint_is_offered_with_a_warning(saved):
    checkpoint, directory = saved
    bad = next(p for p in all_files(directory / "c-2") if p.stat().st_size > 100)
    flip(bad, 50)
    with pytest.warns(UserWarning, match=f"c-2 is not usable.*{bad.name}"):
        found = latest_checkpoint(directory)
    assert found == str(directory / "c-1")
    checkpoint.restore(found).assert_consumed()
    assert plain(checkpoint.v)[0][0] == 1.0
    checkpoint.save(directory / "c")  # In place of the damaged one.
    assert latest_checkpoint(directory) == str(directory / "c-2")


def test_a_damaged_header_is_passed_over_with_a_warning(saved):
    _, directory = saved
    path = directory / "c-2" / manifest.NAME
    path.write_bytes(path.read_bytes()[:70])
    with pytest.warns(UserWarning, match="c-2 is not usable"):
        assert latest_checkpoint(directory) == str(directory / "c-1")


def test_the_manager_falls_back_and_restores(saved, tmp_path_factory):
    checkpoint, _ = saved
    directory = tmp_path_factory.mktemp("m")
    manager = CheckpointManager(checkpoint, directory, max_to_keep=3)
    good, bad = manager.save(), manager.save()
    flip(all_files(bad)[-1], 0)
    with pytest.warns(UserWarning, match="not usable"):
        assert manager.restore_or_initialize() == good


def test_a_run_whose_checkpoints_are_all_damaged_does_not_begin_anew(tmp_path):
    checkpoint = Checkpoint(v=uni.Variable(1.0))
    manager = CheckpointManager(checkpoint, tmp_path, max_to_keep=3)
    flip(all_files(manager.save())[-1], 0)
    with (
        pytest.warns(UserWarning, match="not usable"),
        pytest.raises(
            uni.errors.DataLossError, match=r"None of the checkpoints.*ckpt-1"
        ),
    ):
        manager.restore_or_initialize()


def test_a_restore_of_a_damaged_checkpoint_changes_nothing(saved):
    checkpoint, directory = saved
    checkpoint.v.assign(jnp.full((4, 8), 7.0))
    checkpoint.epoch = 9
    flip(all_files(directory / "c-1")[-1], 3)
    with pytest.raises(uni.errors.DataLossError):
        checkpoint.restore(directory / "c-1")
    assert plain(checkpoint.v)[0][0] == 7.0
    assert checkpoint.epoch == 9


# What killed writers leave behind.


def test_an_unfinished_checkpoint_is_never_offered_and_is_cleared_away(saved):
    checkpoint, directory = saved
    newest = directory / "c-2"
    for name in (".unisono-0123-c-3", ".unisono-4567-c-9"):
        unfinished = directory / name
        (unfinished / "arrays").mkdir(parents=True)
        (unfinished / "arrays" / "x").write_bytes(b"half")
    (directory / "empty").mkdir()
    assert latest_checkpoint(directory) == str(newest)
    path = checkpoint.save(directory / "c")
    assert latest_checkpoint(directory) == path
    assert sorted(p.name for p in directory.iterdir()) == ["c-1", "c-2", "c-3", "empty"]


def test_what_a_living_writer_writes_is_left_alone(tmp_path):
    staging = checkpoint_directory.StagingDirectory(tmp_path / "c-1")
    staging.open()
    (staging.directory / "x").write_bytes(b"1")
    checkpoint_directory.sweep(tmp_path)
    assert (staging.directory / "x").exists()
    staging.close()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_swept_before_it_has_its_lock_is_made_anew(
    tmp_path, monkeypatch
):
    plain_open = os.open
    swept = []

    def sweep_before(path, *args, **kwargs):
        if not swept:
            swept.append(path)
            os.rmdir(path)
        return plain_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", sweep_before)
    staging = checkpoint_directory.StagingDirectory(tmp_path / "c-1")
    staging.open()
    monkeypatch.undo()
    # A sweep that still has the first name must not meet the new directory.
    assert swept and staging.directory != swept[0]
    checkpoint_directory.sweep(tmp_path)
    assert staging.directory.is_dir()
    staging.close()
    assert list(tmp_path.iterdir()) == []


def test_writers_and_sweeps_of_one_directory_do_not_meet(tmp_path):
    def write_and_sweep(worker):
        for turn in range(100):
            checkpoint_directory.sweep(tmp_path)
            staging = checkpoint_directory.StagingDirectory(tmp_path / f"c-{worker}")
            staging.open()
            (staging.directory / "x").write_text(str(turn))
            assert (staging.directory / "x").read_text() == str(turn)
            staging.close()

    with futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(write_and_sweep, range(4)))
    assert list(tmp_path.iterdir()) == []


# Disks that refuse.


def test_a_full_disk_is_a_clear_error_and_the_old_one_stays(saved, monkeypatch):
    checkpoint, directory = saved

    class Full:
        free = 100

    monkeypatch.setattr("shutil.disk_usage", lambda _: Full)
    with pytest.raises(uni.errors.SaveError, match=r"no space left.*untouched"):
        checkpoint.save(directory / "c")
    assert plain(checkpoint.save_counter) == 2
    assert latest_checkpoint(directory) == str(directory / "c-2")
    assert sorted(p.name for p in directory.iterdir()) == ["c-1", "c-2"]


def test_a_disk_that_fails_while_arrays_are_written_is_explained(saved, monkeypatch):
    checkpoint, directory = saved

    def fail(*_):
        raise ValueError("RESOURCE_EXHAUSTED: No space left on device\n" + "x" * 9999)

    monkeypatch.setattr("unisono._src.saving.checkpoint.array_io.write", fail)
    with pytest.raises(uni.errors.SaveError, match="No space left on device") as caught:
        checkpoint.save(directory / "c")
    assert len(str(caught.value)) < 800
    assert sorted(p.name for p in directory.iterdir()) == ["c-1", "c-2"]


def test_what_is_no_checkpoint_is_never_replaced(tmp_path):
    precious = tmp_path / "c"
    precious.mkdir()
    (precious / "thesis.tex").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(precious)
    checkpoint = Checkpoint(v=uni.Variable(1.0))
    for name in ("c", "file", "link"):
        with pytest.raises(
            uni.errors.SaveError, match="something else under this name"
        ):
            checkpoint.write(tmp_path / name)
        with pytest.raises(
            uni.errors.SaveError, match="something else under this name"
        ):
            uni.saved_model.save(uni.Module(), tmp_path / name)
    assert (precious / "thesis.tex").exists()
    (tmp_path / "empty").mkdir()
    checkpoint.write(tmp_path / "empty")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c", "empty", "file", "link"]


def test_a_path_that_cannot_be_a_directory_is_explained(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(uni.errors.SaveError, match="could not be written"):
        Checkpoint(v=uni.Variable(1.0)).save(tmp_path / "file" / "c")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_is_explained(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(uni.errors.SaveError, match="no permission"):
            Checkpoint(v=uni.Variable(1.0)).save(tmp_path / "c")
    finally:
        tmp_path.chmod(stat.S_IRWXU)


def test_permission_errors_are_told_in_words(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(checkpoint_directory, "StagingDirectory", refuse)
    with pytest.raises(uni.errors.SaveError, match="no permission to write in"):
        Checkpoint(v=uni.Variable(1.0)).save(tmp_path / "c")


def test_a_directory_deleted_under_us_is_made_again(saved):
    checkpoint, directory = saved
    for name in ("c-1", "c-2"):
        checkpoint_directory.remove(directory / name)
    directory.rmdir()
    path = checkpoint.save(directory / "c")
    assert latest_checkpoint(directory) == path


def test_a_directory_deleted_while_we_write_is_an_error(saved, monkeypatch):
    checkpoint, directory = saved
    real = manifest.write

    def remove_first(where, made):
        for path in directory.iterdir():
            checkpoint_directory.remove(path)
        directory.rmdir()
        real(where, made)

    monkeypatch.setattr(manifest, "write", remove_first)
    with pytest.raises(uni.errors.SaveError, match="could not be written"):
        checkpoint.save(directory / "c")


# Strangers' checkpoints: well-formed, with right checksums, and hostile.


def forge(directory, change):
    """Change the manifest of a checkpoint and sign it again."""
    path = directory / manifest.NAME
    _, header, body = path.read_bytes().split(b"\n", 2)
    header, body = json.loads(header), json.loads(body)
    header, body = change(header, body) or (header, body)
    rest = b"\n".join(
        x if isinstance(x, bytes) else json.dumps(x).encode() for x in (header, body)
    )
    path.write_bytes(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)


def _set(*keys, to):
    def change(header, body):
        place = {"header": header, "body": body}
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = to

    return change


V = "v/.ATTRIBUTES/VARIABLE_VALUE"
HOSTILE = {
    "path traversal": _set("body", "files", "../../etc/passwd", to=[1, 1]),
    "absolute path": _set("body", "files", "/etc/passwd", to=[1, 1]),
    "path through the middle": _set("body", "files", "arrays/../../x", to=[1, 1]),
    "array under an odd name": _set("body", "entries", V, "file", to="../v"),
    "absurd shape": _set("body", "entries", V, "shape", to=[2**40, 2**40]),
    "huge shape": _set("body", "entries", V, "shape", to=[2**36]),
    "negative shape": _set("body", "entries", V, "shape", to=[-1]),
    "shape of booleans": _set("body", "entries", V, "shape", to=[True]),
    "many axes": _set("body", "entries", V, "shape", to=[1] * 1000),
    "unknown type": _set("body", "entries", V, "dtype", to="object"),
    "type of no sense": _set("body", "entries", V, "dtype", to=["float32"]),
    "unknown kind": _set("body", "entries", V, "kind", to="pickle"),
    "no entry": _set("body", "entries", to={}),
    "no nodes": _set("body", "nodes", to=[]),
    "a child that is not there": _set("body", "nodes", 0, "children", "v", to=99),
    "shared bytes of a pack": _set(
        "body", "entries", "u/.ATTRIBUTES/VARIABLE_VALUE", "at", to=8
    ),
    "a shared pack as an array": _set(
        "body", "entries", "u/.ATTRIBUTES/VARIABLE_VALUE", "at", to=None
    ),
    "a place before the pack": _set("body", "entries", V, "at", to=-8),
    "a place behind all files": _set("body", "entries", V, "at", to=2**50),
    "a place that is none": _set("body", "entries", V, "at", to="x"),
    "a version that is no number": _set("header", "version", to=[1]),
    "other format": _set("header", "format", to="something"),
    "future version": _set("header", "version", to=99),
    "data that is no data": _set(
        "body", "entries", "epoch/.ATTRIBUTES/PYTHON_VALUE", "value", to={"$eval": "1"}
    ),
    "bytes that are none": _set(
        "body", "entries", "epoch/.ATTRIBUTES/PYTHON_VALUE", "value", to={"$bytes": "é"}
    ),
    "an array in data larger than its bytes": _set(
        "body", "entries", "epoch/.ATTRIBUTES/PYTHON_VALUE", "value",
        to={"$array": ["float32", [1 << 40], ""]},
    ),
    "not a dict": lambda header, body: (header, b"[1, 2]"),
    "duplicate keys": lambda header, body: (
        header, json.dumps(body).replace('"nodes"', '"files": {}, "nodes"').encode()
    ),
    "not a number": lambda header, body: (
        header, json.dumps(body).replace("[4, 8]", "[NaN]").encode()
    ),
    "deep nesting": lambda header, body: (header, b"[" * 100_000),
    "a date that is none": _set("header", "saved_at", to=10**400),
    "a job that is no text": _set("header", "job", to=[]),
    "keys of no kind": _set(
        "body", "entries", V, to={"kind": "random key", "shape": [2], "dtype": "uint32",
                                  "file": "a0", "impl": "nonsense"},
    ),
    "keys of another shape": _set(
        "body", "entries", V, to={"kind": "random key", "shape": [3], "dtype": "uint32",
                                  "file": "a0", "impl": "threefry2x32"},
    ),
}  # fmt: skip
# Forms of plain data that `plain_data` does not write.
FORMS = [
    {"$complex": []}, {"$complex": [1, 2]}, {"$complex": ["1", "2", "3"]},
    {"$float": 10**400}, {"$float": []}, {"$float": "nonsense"}, {"$tuple": 3},
    {"$tuple": "abc"}, {"$items": {}}, {"$items": [[1]]}, {"$items": [[[], 1]]},
    {"$bytes": 1}, {"$array": []}, {"$array": ["float32", "x", ""]},
    {"$scalar": ["float32", [1], "AAAAAA=="]}, {"$": 1},
]  # fmt: skip
HOSTILE |= {
    f"data of the form {form}"[:60]: _set(
        "body", "entries", "epoch/.ATTRIBUTES/PYTHON_VALUE", "value", to=form
    )
    for form in FORMS
}


def test_many_repeated_keys_are_refused_in_linear_time(saved):
    checkpoint, directory = saved
    pairs = ", ".join(f'"k{i}": 0' for i in [*range(200_000), 199_999])
    forge(directory / "c-2", lambda header, _: (header, f"{{{pairs}}}".encode()))
    began = time.process_time()
    with pytest.raises(uni.errors.DataLossError, match="'k199999' is there twice"):
        checkpoint.restore(directory / "c-2")
    assert time.process_time() - began < 5


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_manifest_is_refused_and_named(saved, what):
    checkpoint, directory = saved
    path = directory / "c-2"
    forge(path, HOSTILE[what])
    with pytest.raises(uni.errors.DataLossError, match=manifest.NAME):
        checkpoint.restore(path)
    with pytest.warns(UserWarning):
        assert latest_checkpoint(directory) == str(directory / "c-1")


@pytest.mark.parametrize(
    ("field", "value"), [("shape", [8, 4]), ("dtype", "int32"), ("file", "a9")]
)
def test_an_array_that_is_not_what_the_manifest_says_is_refused(unpacked, field, value):
    _, directory = unpacked
    forge(directory / "c-2", _set("body", "entries", V, field, to=value))
    with pytest.raises(uni.errors.DataLossError, match="array"):
        uni.train.load_variable(directory / "c-2", V)


def test_two_entries_cannot_share_an_array(unpacked):
    checkpoint, directory = unpacked
    key = "u/.ATTRIBUTES/VARIABLE_VALUE"
    forge(directory / "c-2", _set("body", "entries", key, "file", to="a0"))
    with pytest.raises(uni.errors.DataLossError, match="two entries share one array"):
        checkpoint.restore(directory / "c-2")


def test_checkpoints_of_version_1_are_still_read(unpacked, monkeypatch):
    monkeypatch.undo()
    checkpoint, directory = unpacked
    checkpoint.restore(directory / "c-1").assert_consumed()
    assert plain(checkpoint.v)[0][0] == 1.0
    assert latest_checkpoint(directory) == str(directory / "c-2")
    path = pathlib.Path(checkpoint.save(directory / "new"))
    changes = comparison.compare(directory / "c-2", path)
    assert [c.key for c in changes if "counter" not in c.key] == [V]


@pytest.mark.parametrize("name", ["__class__", "build", "_private", "a-b", "limit"])
def test_a_checkpoint_cannot_hide_what_a_class_has(saved, name):
    class Model:
        limit = 3

        def build(self):
            return "built"

    _, directory = saved
    graph = {"children": {"m": 1}}, {"children": {name: 2}}
    entry = "epoch/.ATTRIBUTES/PYTHON_VALUE"

    def change(header, body):
        body["nodes"] = [*graph, {"children": {}, "key": entry}]

    forge(directory / "c-2", change)
    model = Model()
    status = Checkpoint(m=model).read(directory / "c-2")
    assert type(model).__name__ == "Model"
    assert (model.build(), model.limit) == ("built", 3)
    assert not hasattr(model, "_private")
    with pytest.raises(AssertionError, match="Unresolved"):
        status.assert_consumed()


def stored_as(directory, **how):
    """A checkpoint whose array is stored in another way, with right checksums."""
    import tensorstore

    path = directory / "c-2"
    where = path / manifest.ARRAYS
    about = json.loads((path / manifest.NAME).read_bytes().split(b"\n", 2)[2])
    entry = about["entries"][V]
    spec = {
        "driver": "zarr",
        "kvstore": {
            "driver": "ocdbt",
            "base": {"driver": "file", "path": f"{where}/"},
            "path": f"{entry['file']}/",
        },
        "metadata": {"shape": [4, 8], "chunks": [4, 8], "dtype": "<f4", **how},
    }
    array = tensorstore.open(spec, create=True, delete_existing=True).result()
    # One piece of it, however many the shape promises.
    array[:4, :8].write(np.ones((4, 8), np.float32)).result()

    def change(header, body):
        body["files"] = {
            f"arrays/{name}": [f.size, f.crc32]
            for name, f in checksummed_files.checksums(where).items()
        }

    forge(path, change)
    return path


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"compressor": {"id": "zstd", "level": 1}}, "compressed"),
        ({"compressor": None, "chunks": [4, 1 << 20]}, "pieces of"),
        ({"compressor": None, "shape": [1 << 20, 8]}, r"shape \(1048576, 8\)"),
        ({"compressor": None, "dtype": "<f8"}, "type float64"),
    ],
)
def test_an_array_that_would_unfold_is_refused(unpacked, how, message):
    checkpoint, directory = unpacked
    path = stored_as(directory, **how)
    with pytest.raises(uni.errors.DataLossError, match=message):
        checkpoint.restore(path)


def test_the_way_to_store_arrays_that_these_tests_forge_is_the_right_one(unpacked):
    checkpoint, directory = unpacked
    checkpoint.restore(stored_as(directory, compressor=None)).assert_consumed()
    assert plain(checkpoint.v)[0][0] == 1.0


def test_links_and_stray_files_are_refused(saved):
    checkpoint, directory = saved
    stray = directory / "c-2" / "arrays" / "extra"
    stray.symlink_to("/etc/passwd")
    with pytest.raises(uni.errors.DataLossError, match=r"extra.*not a regular file"):
        checkpoint.restore(directory / "c-2")
    stray.unlink()
    stray.write_text("x")
    with pytest.raises(uni.errors.DataLossError, match=r"extra.*not part of"):
        checkpoint.restore(directory / "c-2")


def test_a_manifest_that_is_a_link_is_not_followed(saved):
    checkpoint, directory = saved
    path = directory / "c-2" / manifest.NAME
    path.unlink()
    path.symlink_to(directory / "c-1" / manifest.NAME)
    with pytest.raises(uni.errors.NotFoundError):
        checkpoint.restore(directory / "c-2")


# Laws.

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.text() | st.binary()
    | st.floats(allow_nan=False) | st.complex_numbers(allow_nan=False)
)  # fmt: skip
KEYS = st.text() | st.integers() | st.booleans() | st.tuples(st.integers(), st.text())
PLAIN = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a == b


@given(PLAIN)
@settings(max_examples=100, deadline=None)
def test_plain_data_survives_json_exactly(data):
    encoded = json.loads(json.dumps(plain_data.encode(data, "x"), allow_nan=False))
    assert same(plain_data.decode(encoded), data)
    assert plain_data.is_plain(data)


@given(
    st.sampled_from(sorted(array_types.KNOWN)), st.lists(st.integers(0, 3), max_size=3)
)
@settings(max_examples=60, deadline=None)
def test_arrays_in_plain_data_survive(name, shape):
    array = (
        np.arange(int(np.prod(shape))).reshape(shape).astype(array_types.KNOWN[name])
    )
    back = plain_data.decode(plain_data.encode(array, "x"))
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


def test_nan_survives():
    assert np.isnan(plain_data.decode(plain_data.encode(float("nan"), "x")))


NAMES = st.text("abz./_ é", min_size=1, max_size=4)
LEAVES = st.integers(-5, 5).map(float) | st.integers(0, 9) | st.text("xy", max_size=2)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, min_size=1, max_size=3).map(tuple)
        | st.dictionaries(NAMES, inner, max_size=3)
    ),
    max_leaves=8,
)


def grow(tree, blank=False):
    """Floats become variables; everything else stays, or is blanked."""
    if isinstance(tree, float):
        return uni.Variable(0.0 if blank else tree)
    if isinstance(tree, list | tuple):
        return type(tree)(grow(x, blank) for x in tree)
    if isinstance(tree, dict):
        return {k: grow(x, blank) for k, x in tree.items()}
    return type(tree)() if blank else tree


@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), TREES, max_size=3))
@settings(max_examples=25, deadline=None)
def test_any_tree_of_state_comes_back(tmp_path_factory, tree):
    path = tmp_path_factory.mktemp("tree") / "c"
    assert Checkpoint(**grow(tree)).write(path) == str(path)
    checksummed_files.read_verified(path)
    blank = Checkpoint(**grow(tree, blank=True))
    blank.read(path).assert_consumed()
    assert plain({k: getattr(blank, k) for k in tree}) == tree
