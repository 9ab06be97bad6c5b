"""A training run of several workers that may be told to end, or be killed.

usage: python preempted.py DIRECTORY STEPS [PHASE ...]

In its start number r the first worker notes its process id in ``phase-r`` when it comes
to the r-th phase given. At the end each worker writes its state as JSON to ``end-i``.
"""

import json
import os
import pathlib
import sys
import time

import jax.numpy as jnp
import numpy as np
import optax

import unisono as uni

# A collector of tests imports this file without arguments.
_DIRECTORY, _STEPS, *PHASES = sys.argv[1:] if __name__ == "__main__" else (".", "0")
HERE = pathlib.Path(_DIRECTORY)
STEPS = int(_STEPS)
START = int(os.environ.get("UNISONO_RESTART", "0"))
PHASE = PHASES[START] if len(PHASES) > START else "none"
PAUSE = 0.7


class Worker:
    """What tells a test where this worker is."""

    index = 0


def at(phase):
    """Tell that a phase has been reached, and stay in it for a while."""
    mark = HERE / f"phase-{START}"
    if phase != PHASE or (Worker.index == 0 and mark.exists()):
        return
    if Worker.index == 0:
        part = mark.with_suffix(".part")
        part.write_text(str(os.getpid()))
        part.rename(mark)
    time.sleep(PAUSE)


def examples():
    """Whole numbers; one element takes long, where the input is the phase."""
    rng = np.random.default_rng(5)
    for k in range(10_000):
        if k == 80 * START:
            at("input")
        yield rng.integers(-3, 4, 4).astype(np.float32)


class Training:
    """The state, and what changes it."""

    def __init__(self, strategy):
        self.strategy = strategy
        with strategy.scope():
            self.w = uni.Variable(jnp.zeros(4), name="w")
            self.optimizer = uni.optimizers.Optimizer(optax.sgd(2.0**-6), [self.w])
            self.seen = uni.metrics.Sum(name="seen")
        spec = uni.TensorSpec([4], "float32")
        data = uni.data.Dataset.from_generator(examples, output_signature=spec)
        data = data.shuffle(40, seed=2).batch(8, drop_remainder=True)
        self.iterator = iter(strategy.experimental_distribute_dataset(data))
        self.checkpoint = uni.train.Checkpoint(
            w=self.w,
            optimizer=self.optimizer,
            seen=self.seen,
            iterator=self.iterator,
            evaluations=0,
        )
        self.step = uni.function(self._step)

    def _step(self, batch):
        at("compilation")

        def one(x):
            # Exact on any number of replicas.
            self.optimizer.apply_gradients([(jnp.sum(x, axis=0), self.w)])
            self.seen.update_state(jnp.ones(x.shape[0]))

        self.strategy.run(one, args=(batch,))

    def train_step(self):
        self.step(next(self.iterator))

    def evaluate(self):
        for k in range(3):
            found = self.strategy.run(lambda k=k: self.w[0] * k)
            float(self.strategy.reduce("SUM", found, None))
            if k == 1:
                at("evaluation")
        self.checkpoint.evaluations += 1

    def result(self):
        return {
            "w": self.w.numpy().tolist(),
            "seen": float(self.seen.result()),
            "iterations": int(self.optimizer.iterations.numpy()),
            "evaluations": self.checkpoint.evaluations,
        }


def train(training, resolver, directory, every=None, pause=0.02):
    """Train to the end, whatever was there before."""
    manager = uni.train.CheckpointManager(training.checkpoint, directory, 3)
    handler = uni.distribute.experimental.PreemptionCheckpointHandler(resolver, manager)
    first = handler.total_run_calls
    options = uni.train.CheckpointOptions(enable_async=True)
    while handler.total_run_calls < STEPS:
        handler.run(training.train_step)
        done = handler.total_run_calls
        with open(HERE / f"steps-{Worker.index}", "a", encoding="utf-8") as log:
            log.write(f"{START} {done}\n")
        if done % 10 == 0:
            training.evaluate()
        if every and done % every == 0:
            manager.save(options=options)
        if done > first + 2:
            at("step")
        time.sleep(pause)
    manager.sync()
    handler.close()
    return {**training.result(), "steps": handler.total_run_calls}


def main():
    strategy = uni.distribute.MultiWorkerMirroredStrategy()
    Worker.index = strategy.cluster_resolver.task_id or 0
    every = 3 if "killed" in str(HERE) else None
    found = train(
        Training(strategy), strategy.cluster_resolver, HERE / "checkpoints", every
    )
    (HERE / f"end-{Worker.index}").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
