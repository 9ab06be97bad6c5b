"""Programs written for TensorFlow end in the results that TensorFlow 2.21 gave.

The cases and what they are: README.md.
"""

import importlib
import json
import math
import pathlib

import numpy as np
import pytest

from tests.parity import tensorflow

HERE = pathlib.Path(__file__).parent
EXPECTED = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))

# The rows of the feature table that each case proves.
ROWS = {
    "case_01_contexts": ("B01", "B02", "C01", "C02", "C03", "C04", "C07"),
    "case_03_nested_scopes": ("B03",),
    "case_05_run_args": ("D01", "D03"),
    "case_07_run_merge_mismatch": ("D05",),
    "case_09_run_function": ("D11", "D12"),
    "case_11_local_results": ("E01", "E02", "E03"),
    "case_13_reduce_axis0": ("F03",),
    "case_15_reduce_empty_part": ("F05",),
    "case_17_reduce_int_dtype": ("F07",),
    "case_19_reduce_nested": ("F07",),
    "case_21_reduce_mirrored": ("M02",),
    "case_23_perreplica_in_cross": ("F11", "M02"),
    "case_25_var_initial_value": ("R01",),
    "case_28_var_assign_replica_function": ("R06",),
    "case_31_var_assign_cross_onwrite": ("B10", "C12", "R07"),
    "case_34_var_onread_local_update": ("C10", "R12"),
    "case_36_var_creation_errors": ("R03",),
    "case_38_var_in_fn": ("D16",),
    "case_40_value_container": ("P13",),
    "case_41_merge_call_doc": ("L06",),
    "case_42_merge_call_args": ("C08", "L02"),
    "case_44_update_pattern": ("O11", "R14"),
    "case_46_reduce_to_destinations": ("M06", "O01", "O02", "O03", "O05", "O06"),
    "case_48_broadcast_to": ("O12",),
    "case_50_all_reduce": ("D10", "L07", "L08"),
    "case_53_all_gather": ("L10",),
    "case_55_update_group": ("Q01", "Q05"),
    "case_57_update_in_replica": ("Q01",),
    "case_59_non_slot": ("M09", "P10", "P11"),
    "case_61_values_from_function": ("G01", "G02", "G03", "G05"),
    "case_63_dataset_partial_last": ("H05",),
    "case_66_dataset_transforms": ("H05",),
    "case_68_dataset_iteration": ("H02", "H03"),
    "case_70_dataset_from_function": ("I01", "I02", "I03"),
    "case_72_input_context": ("I04", "I05", "I06"),
    "case_74_train_epoch_doc": ("F10", "V08"),
    "case_76_metric_pattern": ("V05",),
    "case_77_sgd_equivalence": ("V08",),
    "case_78_sgd_aggregation_var": ("R18",),
    "case_80_checkpoint_mirrored": ("S04",),
    "case_82_one_device": ("T05",),
    "case_84_call_for_each_replica": ("P01",),
    "case_86_numpy_dataset": ("J01", "J02", "J03"),
    "case_88_tf_config": ("U01", "U02"),
    "case_90_repr_strings": ("M11",),
    "case_92_thread_local_scope": ("B04",),
    "case_94_captured_perreplica": ("M01",),
}

# An error of TensorFlow, and the errors that stand for it here.
ERRORS = {"InvalidArgumentError": {"InvalidArgumentError", "ValueError"}}


def normalise(x):
    """Returns `x` as JSON would give it back, arrays as lists."""
    if isinstance(x, list | tuple):
        return [normalise(part) for part in x]
    if isinstance(x, dict):
        return {str(key): normalise(value) for key, value in x.items()}
    if x is None or isinstance(x, str | bool | int | float):
        return x
    return normalise(np.asarray(x).tolist())


def same(want, got):
    """Returns whether a result is TensorFlow's, to five digits."""
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(map(same, want, got))
    if isinstance(want, dict) and isinstance(got, dict):
        return want.keys() == got.keys() and all(same(want[k], got[k]) for k in want)
    if isinstance(want, bool) or isinstance(got, bool):
        return want is got
    if isinstance(want, int | float) and isinstance(got, int | float):
        return math.isclose(want, got, rel_tol=2e-5, abs_tol=2e-6)
    if isinstance(want, str) and want.endswith("Error"):
        return got in ERRORS.get(want, {want})
    return type(want) is type(got) and want == got


def test_every_case_has_its_results_and_its_rows():
    found = {path.stem for path in (HERE / "cases").glob("case_*.py")}
    assert found == EXPECTED.keys() == ROWS.keys()


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.feature(*rows))
        for name, rows in ROWS.items()
    ],
)
@pytest.mark.feature("T01")
def test_a_program_for_tensorflow_gives_tensorflow_s_results(name, n):
    case = importlib.import_module(f"tests.parity.cases.{name}").case
    got = normalise(case(tensorflow.TensorFlow(), n))
    assert same(EXPECTED[name][str(n)], got), (
        f"TensorFlow: {EXPECTED[name][str(n)]}\nunisono:    {got}"
    )
