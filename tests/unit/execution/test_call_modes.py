"""A `function` that a dataset's function calls."""

import numpy as np
import pytest

import unisono as uni


def test_a_function_in_a_map_runs_on_the_host_with_text_and_64_bits():
    @uni.function
    def name(x, text):
        if x > 2**30:  # A number that is known, as everything on the host.
            text = text + ".large"
        return {"x": x * 2, "text": uni.strings.upper(text)}

    dataset = uni.data.Dataset.from_tensors((np.int64(2**40), b"a")).map(name)
    (found,) = list(dataset)
    assert found["x"] == 2**41 and found["text"].numpy() == b"A.LARGE"


def test_a_function_with_variables_in_a_map_is_compiled():
    variable, calls = uni.Variable(2.0), []

    @uni.function
    def scale(x):
        calls.append(type(x).__name__)
        return uni.cast(x, uni.float32) * variable

    dataset = uni.data.Dataset.range(4).map(scale)
    assert [float(x) for x in dataset] == [0, 2, 4, 6]
    assert len(calls) == 2  # Once on the host, and once to be compiled.


def test_an_input_signature_in_a_map_keeps_64_bits_and_refuses_other_types():
    @uni.function(input_signature=[uni.TensorSpec([], np.int64)])
    def add_one(x):
        return x + 1

    dataset = uni.data.Dataset.from_tensors(np.int64(2**40))
    assert next(iter(dataset.map(add_one))) == 2**40 + 1
    for wrong in (1.5, np.float32(1.5)):
        with pytest.raises(TypeError, match="input_signature"):
            next(iter(uni.data.Dataset.from_tensors(wrong).map(add_one)))
        with pytest.raises(TypeError, match="input_signature"):
            add_one(wrong)
