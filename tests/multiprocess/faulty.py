"""A program whose worker goes wrong in a given phase; the others write what they get.

Arguments: the phase, the fault, the worker that goes wrong, and a directory.
"""

import json
import os
import pathlib
import signal
import socket
import sys
import threading
import time

# A collector of doctests imports this module without arguments.
PHASE, FAULT, NUMBER, HERE = (sys.argv[1:] + [""] * 4)[:4]
VICTIM = int(NUMBER) if NUMBER.isdigit() else -1
CONFIG = json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))
INDEX = CONFIG["task"]["index"]
DIRECTORY = pathlib.Path(HERE)
STEPS = 100_000
KEPT = []
# In these phases the variable is split over the workers.
PARTS = ("gather", "save-parts", "restore-parts")
# So many elements that it is restored part after part.
SIZE = 12 << 16 if PHASE in PARTS else 33


def go_wrong():
    (DIRECTORY / "fault").write_text(repr(time.time()))
    if FAULT in ("kill", "freeze"):
        os.kill(os.getpid(), signal.SIGKILL if FAULT == "kill" else signal.SIGSTOP)
    if FAULT == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    if FAULT == "abort":
        os.abort()
    if FAULT == "raise":
        raise ValueError("this worker has had enough")
    if FAULT == "exit":
        sys.exit(0)
    if FAULT == "stall":
        time.sleep(120)
    if FAULT == "service":
        # The process of the coordination service, a child of the first worker.
        children = pathlib.Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
        os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
        time.sleep(60)
    if FAULT == "port":
        # Somebody else listens where the workers are to meet.
        host, _, port = CONFIG["cluster"]["worker"][0].rpartition(":")
        KEPT.append(socket.create_server((host, int(port))))
    if FAULT == "swap":
        KEPT.append("the other order")


def reach(phase):
    """Goes wrong if this is the phase and the worker."""
    if phase == PHASE and INDEX == VICTIM:
        go_wrong()


def make_strategy(tf):
    if PHASE == "join":
        # The worker is in the middle of joining when it goes wrong.
        if INDEX == VICTIM:
            threading.Timer(1.0, go_wrong).start()
        else:
            time.sleep(3.0)
    options = tf.distribute.experimental.CommunicationOptions(
        timeout_seconds=float(os.environ.get("TEST_TIMEOUT", "30"))
    )
    state = {"state": "sharded"} if PHASE in PARTS else {}
    return tf.distribute.MultiWorkerMirroredStrategy(None, options, **state)


def main():
    (DIRECTORY / "cluster").write_text(json.dumps(CONFIG["cluster"]["worker"]))
    reach("import")
    import jax.numpy as jnp

    import unisono as tf

    strategy = make_strategy(tf)
    reach("start")
    with strategy.scope():
        v = tf.Variable(jnp.zeros(SIZE))

    def replica(x):
        return x * jnp.ones(SIZE), x

    # Two reductions of different sizes: Gloo must not take one for the other.
    @tf.function
    def step(x):
        values, count = strategy.run(replica, args=(x,))
        v.assign_add(strategy.reduce("MEAN", values, None))
        return v.read_value() + strategy.reduce("SUM", count, None)

    def batches():
        for k in range(STEPS):
            reach("input") if k == 4 else None
            yield jnp.float32(k)

    def make_dataset(context):
        return tf.data.Dataset.from_generator(
            batches, output_signature=tf.TensorSpec([], "float32")
        )

    reach("compile")  # The others compile and run their first step meanwhile.
    for _ in range(3):
        float(step(jnp.ones(()))[0])
    if PHASE == "input":
        for batch in strategy.distribute_datasets_from_function(make_dataset):
            float(step(batch)[0])
    act = make_action(tf, strategy, v, step)
    for k in range(STEPS):
        reach_action() if k == 5 else None
        act()


def reach_action():
    """Goes wrong now, or when the worker next writes or reads a part of a file."""
    if PHASE not in PARTS[1:]:
        reach(PHASE)
        return
    from unisono._src.saving.format import part_files

    name = "write" if PHASE == "save-parts" else "read"
    use = getattr(part_files, name)

    def fail(*given):
        reach(PHASE)
        return use(*given)

    setattr(part_files, name, fail)


def make_action(tf, strategy, v, step):
    """Returns what the workers do again and again in a phase."""
    import jax
    import jax.numpy as jnp

    checkpoint, one = tf.train.Checkpoint(v=v), jnp.ones(())
    path = checkpoint.write(str(DIRECTORY / "saved"))

    @tf.function
    def other(x):
        return strategy.reduce("SUM", strategy.run(lambda: x), None)

    def act_in_order():
        first, second = (other, step) if KEPT else (step, other)
        first(one), second(one)

    @jax.jit
    def compute(x):
        return jax.lax.fori_loop(0, 60_000_000, lambda i, y: jnp.sin(y) + i, x)

    actions = {
        "silent": lambda: step(one),
        "eager": lambda: strategy.reduce("SUM", strategy.run(lambda: one), None),
        "save": lambda: checkpoint.write(str(DIRECTORY / "saved")),
        "restore": lambda: checkpoint.read(path),
        "gather": v.numpy,
        "save-parts": lambda: checkpoint.write(str(DIRECTORY / "saved")),
        "restore-parts": lambda: checkpoint.read(path),
        "order": act_in_order,
        "compute": lambda: (compute(one).block_until_ready(), float(step(one)[0])),
    }
    return actions.get(PHASE, lambda: float(step(one)[0]))


def tell(error):
    fault = float((DIRECTORY / "fault").read_text())
    told = {
        "kind": type(error).__name__,
        "worker": getattr(error, "worker", None),
        "seconds": time.time() - fault,
        "message": str(error),
    }
    (DIRECTORY / f"told-{INDEX}").write_text(json.dumps(told))


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        if INDEX != VICTIM or FAULT in ("stall", "swap"):
            tell(error)
        raise
