"""The watcher of TensorFlow's example sees nothing, and says what does."""

import logging

import pytest

import unisono


def test_an_error_is_raised_again_where_no_preemption_was_seen(caplog):
    with caplog.at_level(logging.WARNING, "unisono"):
        watcher = unisono.distribute.experimental.PreemptionWatcher()
    assert "PreemptionCheckpointHandler" in caplog.text

    def train():
        try:
            raise ValueError("a mistake of the program")
        except ValueError:
            if watcher.preemption_message:
                return watcher.block_until_worker_exit()
            raise

    with pytest.raises(ValueError, match="a mistake"):
        train()
