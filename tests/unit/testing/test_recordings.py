import io
import json
import zipfile

import numpy as np
import pytest

from unisono._src.testing import recordings

VARIABLE = {"name": "w", "kind": "variable", "type": "float32"}
TOLD = {
    "version": 1,
    "replicas": 2,
    "strategy": True,
    "steps": 1,
    "step": None,
    "floor": 1e-7,
    "optimizers": [],
    "variables": [VARIABLE],
}
ARRAYS = {
    "first/0": np.ones(3, "f"),
    "step0/after/0": np.zeros(3, "f"),
    "step0/gradient/0/0": np.ones(3, "f"),
    "step0/gradient/0/1": np.ones(3, "f"),
    "step0/batch/0/0": np.ones((2, 3), "f"),
    "step0/batch/0/1": np.zeros((1, 3), "f"),
    "step0/result/0/0": np.float32(2),
}


def write(folder, told=TOLD, arrays=ARRAYS):
    (folder / "recording.json").write_text(json.dumps(told))
    np.savez(folder / "recording.npz", **arrays)
    return folder


def test_a_recording_has_batches_of_each_replica_and_of_all(tmp_path):
    found = recordings.read(write(tmp_path))
    (step,) = found.steps
    assert found.replicas == 2 and found.variables[0].name == "w"
    assert step.sizes() == [[2, 1]] and len(step.gradients[0]) == 2
    np.testing.assert_array_equal(step.whole_batch()[0].sum(1), [3, 3, 0])
    assert found.is_used(0)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"version": 2}, "no recording of version 1"),
        ({"replicas": 0}, "impossible"),
        ({"steps": "many"}, "'steps' is 'many'"),
        ({"variables": [{"name": "w", "kind": "new"}]}, "nothing of variable 0"),
        ({"variables": [VARIABLE, VARIABLE]}, "variable 1"),
    ],
)
def test_what_a_recording_tells_is_checked(tmp_path, changes, said):
    with pytest.raises(recordings.RecordingError, match=said):
        recordings.read(write(tmp_path, TOLD | changes))


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"first/0": np.array([1, np.nan, 1], "f")}, "not finite"),
        ({"step0/after/0": np.zeros(4, "f")}, "shapes"),
        ({"step0/batch/0/0": np.float32(1)}, "no rows"),
        ({"../evil": np.zeros(1)}, "no part of a recording"),
        ({"first/0": np.array(["text"])}, "type"),
    ],
)
def test_the_arrays_of_a_recording_are_checked(tmp_path, changes, said):
    with pytest.raises(recordings.RecordingError, match=said):
        recordings.read(write(tmp_path, arrays=ARRAYS | changes))


def test_objects_and_wrong_headers_and_other_files_are_refused(tmp_path):
    path = write(tmp_path) / "recording.npz"
    raw = io.BytesIO()
    np.save(raw, np.array([{}], object), allow_pickle=True)
    wrong = io.BytesIO()
    np.save(wrong, np.zeros(8))
    for data in (raw.getvalue(), wrong.getvalue()[:-8], b"\x93NUMPY\x09\x00", b""):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("first/0.npy", data)
        with pytest.raises(recordings.RecordingError, match="cannot be read"):
            recordings.read(tmp_path)
    path.write_bytes(b"no archive")
    with pytest.raises(recordings.RecordingError, match="cannot be read"):
        recordings.read(tmp_path)
    with pytest.raises(recordings.RecordingError, match="--record"):
        recordings.read(tmp_path / "none")
