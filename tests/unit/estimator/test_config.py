"""The configuration of a run is checked."""

import pytest

import unisono as uni

E = uni.estimator


def test_a_configuration_is_checked_and_replaced():
    assert E.RunConfig().save_checkpoints_secs == 600
    assert E.RunConfig(save_checkpoints_steps=5).save_checkpoints_secs is None
    changed = E.RunConfig(save_checkpoints_secs=5).replace(save_checkpoints_steps=7)
    assert (changed.save_checkpoints_steps, changed.save_checkpoints_secs) == (7, None)
    with pytest.raises(ValueError, match="cannot be both set"):
        E.RunConfig(save_checkpoints_steps=1, save_checkpoints_secs=1)
    with pytest.raises(ValueError, match="should be > 0"):
        E.RunConfig(save_checkpoints_steps=0)
    with pytest.raises(TypeError, match="must be a strategy"):
        E.RunConfig(train_distribute="mirrored")
    with pytest.raises(ValueError, match="not supported"):
        E.RunConfig().replace(colour="red")
