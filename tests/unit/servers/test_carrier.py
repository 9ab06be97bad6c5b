"""Waiting for the answers of servers and workers."""

import concurrent.futures

import pytest

from unisono._src.servers import carrier


class LateCall(concurrent.futures.Future):
    """A call that ends in the moment in which a wait for it ends."""

    def __init__(self, end):
        super().__init__()
        self._end = end

    def result(self, timeout=None):
        if not self.done():
            self._end(self)
            raise concurrent.futures.TimeoutError
        return super().result(timeout)


def test_an_answer_that_comes_as_the_wait_ends_is_not_lost():
    call = LateCall(lambda call: call.set_result(3))
    assert carrier.wait(call, "worker", 0, "'run'") == 3


def test_a_timeout_of_the_call_itself_is_raised():
    call = LateCall(lambda call: call.set_exception(TimeoutError("too slow")))
    with pytest.raises(TimeoutError, match="too slow"):
        carrier.wait(call, "worker", 0, "'run'")
