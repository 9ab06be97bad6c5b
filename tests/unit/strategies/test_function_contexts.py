"""Steps in a row hand their values to their caller."""

import pytest

import unisono as uni
from unisono._src.strategies import function_contexts


def test_steps_replace_the_outputs_of_earlier_ones():
    def step(context, x):
        context.set_last_step_output("x", x)
        return -x

    context = function_contexts.run_steps(step, iter([1, 2, 3]), 2, {"x": 0, "y": 5})
    assert context.last_step_outputs == {"x": 2, "y": 5}
    assert context.run_op == -2


def test_an_iterator_of_tensorflow_1_is_asked_by_its_own_method():
    class Iterator:
        def get_next(self):
            return 7

    context = function_contexts.run_steps(lambda _, x: x, Iterator(), 1, None)
    assert context.run_op == 7


def test_too_few_elements_and_too_few_steps_are_told():
    with pytest.raises(IndexError, match="after 1 of 2 steps"):
        function_contexts.run_steps(lambda _, x: x, iter([1]), 2, None)
    with pytest.raises(ValueError, match="iterations >= 1"):
        function_contexts.run_steps(lambda _, x: x, iter([1]), 0, None)


def test_a_value_context_tells_the_replica():
    context = uni.distribute.experimental.ValueContext(1, 4)
    assert (context.replica_id_in_sync_group, context.num_replicas_in_sync) == (1, 4)
