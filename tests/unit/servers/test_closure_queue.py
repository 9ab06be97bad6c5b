"""The queue by itself, TensorFlow's facts 15, 17 and 19."""

import threading

import pytest

from unisono._src.servers import closure_queue

pytestmark = pytest.mark.feature("T06")


class Closure:
    def __init__(self):
        self.is_cancelled = False

    def cancel(self):
        self.is_cancelled = True


def test_closures_come_out_in_order_and_a_full_queue_waits():
    assert closure_queue.LIMIT == 262144
    queue = closure_queue.ClosureQueue(limit=2)
    made = [Closure() for _ in range(3)]
    queue.put(made[0])
    queue.put(made[1])
    late = threading.Thread(target=queue.put, args=(made[2],))
    late.start()
    assert late.is_alive() and not queue.is_done()
    assert queue.get() is made[0]
    late.join()
    # A closure of a lost worker is the next one to run.
    queue.put_back(made[0])
    assert [queue.get(), queue.get(), queue.get()] == made
    for _ in made:
        queue.finish()
    assert queue.is_done()
    queue.wait()
    queue.close()
    assert queue.get() is None


def test_an_error_waits_for_what_runs_and_cancels_what_waits():
    queue = closure_queue.ClosureQueue()
    failing, running, waiting, last = (Closure() for _ in range(4))
    for closure in (failing, running, waiting):
        queue.put(closure)
    assert queue.get() is failing and queue.get() is running
    queue.finish(OSError("first"))
    raised = []

    def put():
        with pytest.raises(OSError, match="first") as found:
            queue.put(last)
        raised.append(found)

    thread = threading.Thread(target=put)
    thread.start()
    # It waits for the closure that runs, whose own error is dropped.
    assert not raised
    queue.finish(ValueError("second"))
    thread.join()
    assert raised and waiting.is_cancelled and last.is_cancelled
    assert not running.is_cancelled and queue.is_done()
    queue.wait()
    queue.put(running)
    assert queue.get() is running
    assert str(closure_queue.cancelled_error()) == (
        "The corresponding function is cancelled. Please reschedule the function."
    )


def test_a_closure_whose_worker_is_lost_while_others_are_cancelled_is_cancelled():
    queue = closure_queue.ClosureQueue()
    failing, lost = Closure(), Closure()
    for closure in (failing, lost):
        queue.put(closure)
        queue.get()
    queue.finish(OSError("first"))
    joined = threading.Thread(target=pytest.raises, args=(OSError, queue.wait))
    joined.start()
    while not queue._is_cancelling:
        pass
    queue.put_back(lost)
    joined.join()
    assert lost.is_cancelled and queue.is_done()


def test_closures_of_a_lost_worker_run_next_and_in_their_old_order():
    queue = closure_queue.ClosureQueue()
    made = [Closure() for _ in range(4)]
    for closure in made:
        queue.put(closure)
    lost = [queue.get() for _ in range(3)]
    queue.put_back(*lost)
    assert [queue.get() for _ in made] == made


def test_a_worker_takes_at_most_half_of_its_share_of_what_waits():
    queue = closure_queue.ClosureQueue()
    made = [Closure() for _ in range(13)]
    for closure in made:
        queue.put(closure)
    assert queue.get() is made[0]
    # Of the twelve that wait three are half a share for two workers.
    assert queue.get_more(100, share=2) == made[1:4]
    # As many as were asked for, if that is less.
    assert queue.get_more(1, share=2) == made[4:5]
    assert queue.get_more(100, share=5) == []
    assert queue.get() is made[5]
