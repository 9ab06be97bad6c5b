"""Programs over datasets end in the results that TensorFlow gave.

The programs are in `programs`, TensorFlow's results in `expected.json`; README.md in
the folder above says more.
"""

import copy
import json
import math
import pathlib
import types

import numpy as np
import pytest

import unisono
from tests.parity.datasets import kit, programs

HERE = pathlib.Path(__file__).parent
EXPECTED = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))["results"]

# An error of TensorFlow, and the errors that stand for it here.
ERRORS = {
    "AttributeError": {"InvalidArgumentError", "TypeError", "ValueError"},
    "IndexError": {"InvalidArgumentError", "ValueError"},
    "InvalidArgumentError": {"ValueError"},
    "NotFoundError": {"FileNotFoundError"},
    "OutOfRangeError": {"StopIteration"},
    # What a generator raises arrives as it is.
    "UnknownError": {"KeyError"},
    "ValueError": {"InvalidArgumentError"},
}

# A value of the wrong type is a TypeError here; TensorFlow says the value is wrong.
TYPE_ERRORS = {
    "refusals.batch_size_that_is_no_number",
    "refusals.map_of_something_that_is_no_function",
    "refusals.reduce_to_another_state",
    "refusals.slices_of_objects",
}


def _steps(*paths_and_steps):
    def change(want):
        for path, steps in paths_and_steps:
            part = want
            for key in path[:-1]:
                part = part[key]
            part[path[-1]]["steps"] = steps

    return change


def _partial_batches_stay_apart(two, four):
    return _steps((("2 replicas", "OFF"), two), (("4 replicas", "OFF FILE HINT"), four))


def _a_cut_header_is_data_loss(want):
    for found in want.values():
        found[1] = "DataLossError"


def _leaves_of_two_sizes_are_refused(want):
    for found in want.values():
        found["steps"] = ["InvalidArgumentError"]


def _a_leaf_of_any_size_stays_so(want):
    # TensorFlow takes the size of one leaf for both, and fails where that is wrong.
    want["2 replicas"]["AUTO OFF"]["spec"][1] = {"PerReplica 2": ["(None,) int64"]}


# Where unisono departs from TensorFlow on purpose: what it returns instead.
DEPARTURES = {
    # A partial batch in mid-stream is not filled up from the next batch.
    "splitting.repeat_of_a_partial_batch": _partial_batches_stay_apart(
        ["0 1 2|3 4 5", "6 7|"] * 2, ["0 1|2 3|4|5", "6 7|||"] * 2
    ),
    "splitting.infinite_repeat_of_a_partial_batch": _partial_batches_stay_apart(
        ["0 1 2|3 4 5", "6 7|"] * 4, ["0 1|2 3|4|5", "6 7|||"] * 4
    ),
    "splitting.concatenate_after_a_partial_batch": _partial_batches_stay_apart(
        ["0 1 2|3 4 5", "6 7|", "0 1 2|"], ["0 1|2 3|4|5", "6 7|||", "0 1|2||"]
    ),
    "splitting.leaves_of_two_sizes_in_chunks": _leaves_of_two_sizes_are_refused,
    "splitting.zip_static_and_dynamic": _a_leaf_of_any_size_stays_so,
    # TensorFlow takes a file that ends within a header for one that ends.
    "files.truncated_records": _a_cut_header_is_data_loss,
}


class _Library:
    """Unisono, and the one operation on text that the programs call in a map."""

    strings = types.SimpleNamespace(
        to_number=lambda text, dtype: np.asarray(text).astype(dtype)
    )

    def __getattr__(self, name):
        return getattr(unisono, name)


LIBRARY = _Library()


def narrowed(x):
    """Returns specs with the element types that arrays on devices have."""
    if isinstance(x, dict):
        return {key: narrowed(value) for key, value in x.items()}
    if isinstance(x, list):
        return [narrowed(part) for part in x]
    if isinstance(x, str):
        return x.replace("int64", "int32").replace("float64", "float32")
    return x


def same(want, got, allowed=frozenset()):
    """Returns whether a leaf is TensorFlow's: floats to six digits, errors by kind."""
    if isinstance(want, str) and want.endswith("Error"):
        return got in {want, *ERRORS.get(want, ()), *allowed}
    if type(want) is not type(got):
        return False
    if isinstance(want, float):
        return math.isclose(want, got, rel_tol=1e-6)
    return want == got


def differences(want, got, allowed=frozenset(), at="result"):
    """Returns a line of text for each place where two results differ."""
    if isinstance(want, dict) and isinstance(got, dict):
        lines = [
            line
            for key in want.keys() & got.keys()
            for line in differences(want[key], got[key], allowed, f"{at}[{key!r}]")
        ]
        if want.keys() != got.keys():
            lines.append(f"{at}: TensorFlow has {sorted(want)}, here {sorted(got)}")
        return lines
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        return [
            line
            for i, pair in enumerate(zip(want, got))
            for line in differences(*pair, allowed, f"{at}[{i}]")
        ]
    if same(want, got, allowed):
        return []
    return [f"{at}: TensorFlow {want!r}, here {got!r}"]


def test_every_program_has_its_result():
    assert kit.PROGRAMS.keys() == EXPECTED.keys()


def test_a_difference_is_found_and_named():
    assert differences({"a": [1, 2.0]}, {"a": [1, 2.0 + 1e-9]}) == []
    assert differences({"a": [1, 2]}, {"a": [1, 2.0]}) == [
        "result['a'][1]: TensorFlow 2, here 2.0"
    ]
    assert differences([1], [1, 2]) and differences(True, 1) and differences({}, [])
    assert not differences("InvalidArgumentError", "ValueError")
    assert differences("TypeError", "ValueError") and differences("ok", "ValueError")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.feature(*program.rows))
        for name, program in sorted(kit.PROGRAMS.items())
    ],
)
def test_a_program_over_datasets_gives_tensorflow_s_results(name, tmp_path):
    program = kit.PROGRAMS[name]
    for method in program.needs:
        if not hasattr(unisono.data.Dataset, method):
            pytest.skip(f"unisono.data.Dataset has no {method}.")
    want = copy.deepcopy(EXPECTED[name])
    if name in DEPARTURES:
        DEPARTURES[name](want)
    got = json.loads(json.dumps(program.run(LIBRARY, tmp_path)))
    if name.startswith(("distributed.", "splitting.")):
        want, got = narrowed(want), narrowed(got)
    allowed = {"TypeError"} if name in TYPE_ERRORS else frozenset()
    assert not differences(want, got, allowed)


def test_departures_are_of_programs_that_exist():
    assert DEPARTURES.keys() | TYPE_ERRORS <= EXPECTED.keys()
    assert programs
