"""Errors have TensorFlow's classes, codes and arguments."""

import copy
import pickle

import pytest

import unisono
from unisono import errors

# As TensorFlow 2.21 has them.
CODES = {
    "CANCELLED": 1,
    "UNKNOWN": 2,
    "INVALID_ARGUMENT": 3,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "OUT_OF_RANGE": 11,
    "UNIMPLEMENTED": 12,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "DATA_LOSS": 15,
    "UNAUTHENTICATED": 16,
}


def _class_of(code):
    return getattr(errors, "".join(map(str.capitalize, code.split("_"))) + "Error")


def test_each_code_has_its_number_and_its_class():
    assert errors.OK == 0
    for name, number in CODES.items():
        assert getattr(errors, name) == number
        assert _class_of(name).error_code == number
        assert issubclass(_class_of(name), errors.OpError)


@pytest.mark.parametrize("code", CODES)
def test_an_error_is_made_by_its_message_or_by_the_arguments_of_tensorflow(code):
    kind = _class_of(code)
    for error in (
        kind("It broke."),
        kind(None, None, "It broke."),
        kind(node_def=None, op=None, message="It broke."),
    ):
        for same in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert type(same) is kind
            assert str(same) == same.message == "It broke."
            assert (same.node_def, same.op) == (None, None)
            assert same.error_code == CODES[code]
            assert same.experimental_payloads == {}


def test_the_common_class_takes_a_code():
    error = errors.OpError(None, None, "It broke.", errors.ABORTED)
    assert (str(error), error.error_code) == ("It broke.", 10)
    assert pickle.loads(pickle.dumps(error)).error_code == 10
    assert errors.OpError("It broke.").error_code == errors.UNKNOWN


def test_what_the_package_raises_is_caught_by_the_common_class():
    with pytest.raises(errors.OpError, match="greater than zero") as caught:
        unisono.data.Dataset.range(3).batch(0)
    assert caught.value.error_code == errors.INVALID_ARGUMENT
    with pytest.raises(errors.OpError) as caught:
        iter(unisono.data.Dataset.range(0)).get_next()
    assert caught.value.error_code == errors.OUT_OF_RANGE


def test_an_unavailable_task_is_named_in_each_way_of_making_the_error():
    for error in (
        errors.UnavailableError("Gone.", "ps", 2),
        errors.UnavailableError("Gone.", task_type="ps", task_index=2),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.task_type, again.task_index) == ("Gone.", "ps", 2)
    unknown = errors.UnavailableError(None, None, "Gone.")
    assert (unknown.task_type, unknown.task_index) == ("worker", 0)


def test_errors_between_workers_keep_their_arguments():
    error = errors.WorkerStalledError("Behind.", worker=1, step=20)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.worker, again.step) == ("Behind.", 1, 20)
    assert again.error_code == errors.DEADLINE_EXCEEDED
