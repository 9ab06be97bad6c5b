"""What workers send each other in a meeting."""

import json

import pytest

from unisono._src.saving.checkpoint import worker_meeting
from unisono._src.workers import process_group, worker_notes


@pytest.mark.parametrize("character", ["a", '"', "é", "\0", "😀"])
def test_a_piece_of_any_characters_fits_into_a_note(character):
    note = json.dumps([character * worker_meeting._PIECE_LENGTH])
    exchange = worker_notes.NoteExchange(process_group.ALONE, "a test")
    assert exchange.post(note) == [note]
