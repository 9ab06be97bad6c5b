"""What a process can do that was forked after JAX had started."""

import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest

import unisono

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
    # Python and JAX warn of the fork, for good reason.
    pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def in_fork(fn, *arguments):
    """Returns what a function returns in a forked child, or its error."""

    def run(pipe):
        try:
            pipe.send(["ok", fn(*arguments)])
        except Exception as error:
            pipe.send([type(error).__name__, str(error)])

    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=run, args=(there,))
    child.start()
    assert here.poll(30), "the child hangs"
    told = here.recv()
    child.join(30)
    assert child.exitcode == 0
    return told


@pytest.fixture
def strategy():
    return unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


@pytest.fixture
def checkpoint(strategy):
    with strategy.scope():
        return unisono.train.Checkpoint(v=unisono.Variable(1.0))


def test_computing_and_saving_are_refused_in_a_forked_child(
    strategy, checkpoint, tmp_path
):
    compiled = unisono.function(lambda: strategy.run(lambda: 1.0))
    compiled()
    path = checkpoint.save(str(tmp_path / "saved"))
    refused = {
        "Strategy.run": lambda: strategy.run(lambda: 1.0),
        "Function": compiled,
        "Checkpoint.save": lambda: checkpoint.save(str(tmp_path / "forked")),
        "Checkpoint.restore": lambda: checkpoint.restore(path),
        "A save of a model": lambda: unisono.saved_model.save(
            unisono.Module(), str(tmp_path / "model")
        ),
    }
    for name, call in refused.items():
        kind, message = in_fork(call)
        assert (kind, message.partition(" cannot")[0]) == ("RuntimeError", name)
        assert "get_context('spawn')" in message
    # Here all goes on.
    compiled()
    checkpoint.save(str(tmp_path / "saved"))


def test_numpy_works_in_a_forked_child(strategy):
    strategy.run(lambda: 1.0)
    made = in_fork(lambda: (np.ones([300, 300]) @ np.ones([300, 300])).sum())
    assert made == ["ok", 300.0**3]


def _square(x):
    return x * x


def test_a_pool_of_loaders_that_fork_works_beside_a_strategy(strategy):
    strategy.run(lambda: 1.0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        rows = pool.map(_square, [np.full(4, i) for i in range(8)])
    assert [r[0] for r in rows] == [i * i for i in range(8)]
    total = strategy.reduce("SUM", strategy.run(lambda: float(rows[-1][0])), axis=None)
    assert float(total) == 98.0


def test_a_loader_of_pytorch_that_forks_works_beside_a_strategy(strategy):
    torch = pytest.importorskip("torch")
    strategy.run(lambda: 1.0)
    loader = torch.utils.data.DataLoader(
        list(range(8)), batch_size=4, num_workers=2, multiprocessing_context="fork"
    )
    assert [b.tolist() for b in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_what_the_child_loads_first_is_refused_too():
    program = """
import os
import unisono
v = unisono.Variable(1.0)
if os.fork() == 0:
    try:
        unisono.train.Checkpoint(v=v).save("never")
    except RuntimeError as error:
        os._exit(3 if "Checkpoint.save cannot work" in str(error) else 4)
    os._exit(5)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 3
"""
    command = [sys.executable, "-W", "ignore", "-c", program]
    subprocess.run(command, check=True, timeout=60)


def test_a_process_that_forks_before_jax_starts_may_use_it():
    program = """
import multiprocessing, sys
import unisono
def child():
    strategy = unisono.distribute.MirroredStrategy(["CPU:0"])
    sys.exit(int(strategy.run(lambda: 7)))
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join(60)
assert process.exitcode == 7, process.exitcode
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=90)
