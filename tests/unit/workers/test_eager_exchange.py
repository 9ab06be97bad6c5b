"""What comes from another worker is plain data, checked before it is used."""

import json

import numpy as np
import pytest

import unisono
from unisono._src.workers import eager_exchange


def head(arrays):
    return json.dumps({"point": "here", "arrays": arrays}).encode()


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"point": 1, "arrays": []}', b'{"point": "x"}']
)
def test_a_header_of_another_form_is_refused(text):
    with pytest.raises(unisono.errors.WorkerMismatchError, match="A worker sent"):
        eager_exchange._read_head(text, len(text))


def test_a_header_longer_than_what_came_is_refused():
    with pytest.raises(
        unisono.errors.WorkerMismatchError, match="a header of 99 bytes"
    ):
        eager_exchange._read_head(head([]), 99)


@pytest.mark.parametrize("kind", [["object", [1], None], ["float32", [1000], None]])
def test_arrays_of_objects_or_beyond_the_message_are_refused(kind):
    with pytest.raises(
        unisono.errors.WorkerMismatchError, match="A worker sent an array"
    ):
        eager_exchange._read_arrays(b"\0" * 8, 0, [kind])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "uint32"])
def test_arrays_come_as_they_were_sent(dtype):
    import jax.numpy as jnp

    sent = np.asarray(jnp.arange(6).reshape(2, 3).astype(dtype))
    found = eager_exchange._read_arrays(sent.tobytes(), 0, [[dtype, [2, 3], None]])
    assert found[0].dtype == sent.dtype
    np.testing.assert_array_equal(found[0], sent)


@pytest.mark.parametrize("size", [1, 4096, 4097, 70_000, 10**9])
def test_messages_grow_in_few_sizes(size):
    rounded = eager_exchange._round_up(size)
    assert size <= rounded <= max(4096, size * 1.25 + 4096)
    assert rounded % 4096 == 0


def test_a_meeting_is_one_label_for_the_guard_and_tells_people_its_point():
    first, second = map(eager_exchange._Meeting, ("reading of 'w',", "update of 'v'"))
    assert first == second
    assert [repr(first), repr(second)] == ["the reading of 'w'", "the update of 'v'"]
