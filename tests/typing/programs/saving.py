"""Checkpoints, exported models and the end of a machine's time."""

import pathlib
from typing import assert_type

import jax
import optax

import unisono
from unisono import distribute, train

step = unisono.Variable(0)
optimizer = unisono.optimizers.Optimizer(optax.adam(1e-3), [step])
checkpoint = train.Checkpoint(step=step, optimizer=optimizer)
checkpoint.step.assign_add(1)
assert_type(checkpoint.save_counter, unisono.Variable)
assert_type(checkpoint.save(pathlib.Path("ckpt")), str)
checkpoint.restore("ckpt-1").assert_consumed().expect_partial()
assert_type(train.latest_checkpoint("."), str | None)
assert_type(train.list_variables("ckpt-1"), list[tuple[str, list[int]]])

manager = train.CheckpointManager(
    checkpoint, "checkpoints", max_to_keep=3, step_counter=step, checkpoint_interval=10
)
assert_type(manager.save(checkpoint_number=step), str | None)
assert_type(
    manager.save(7, options=train.CheckpointOptions(enable_async=True)), str | None
)
assert_type(manager.latest_checkpoint, str | None)
assert_type(manager.checkpoints, list[str])
manager.restore_or_initialize()


def make_step(x: float, count: int = 1) -> jax.Array:
    return step * x


handler = distribute.experimental.PreemptionCheckpointHandler(None, manager)
assert_type(handler.run(make_step, 1.0, count=2), jax.Array)
assert_type(handler.total_run_calls, int)

model = unisono.Module()
unisono.saved_model.save(
    model, "model", options=unisono.saved_model.SaveOptions(platforms=("cpu",))
)
loaded = unisono.saved_model.load("model")
