"""A loop that need not wait ends as in TensorFlow."""

import unisono


def test_a_loop_ends_when_the_dataset_does():
    iterator = iter(unisono.data.Dataset.range(5))
    total = unisono.Variable(0)

    @unisono.function
    def step():
        total.assign_add(unisono.cast(next(iterator), unisono.int32))

    try:
        with unisono.experimental.async_scope():
            while True:
                step()
    except unisono.errors.OutOfRangeError:
        unisono.experimental.async_clear_error()
    assert int(total.numpy()) == 10
