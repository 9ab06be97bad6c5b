"""Progress: what is shown, who shows it, and where the time of steps goes."""

import io
import re
import threading
import time

import jax
import jax.numpy as jnp
import pytest
import rich.console

import unisono as uni
from tests import machine
from unisono._src.workers import process_group

Progress = uni.train.Progress


def console(terminal=False):
    return rich.console.Console(
        file=io.StringIO(), force_terminal=terminal, width=150, color_system=None
    )


def slow_input(count, seconds):
    for i in range(count):
        time.sleep(seconds)
        yield i


@pytest.mark.feature("V08")
def test_a_loop_over_a_distributed_dataset_is_shown_in_lines():
    strategy = uni.distribute.MirroredStrategy(machine.names_up_to(2))
    dataset = uni.data.Dataset.range(16).batch(4)
    out = console()
    progress = Progress(
        strategy.experimental_distribute_dataset(dataset),
        description="epoch 1",
        sample_seconds=1e-6,
        console=out,
    )

    @uni.function
    def step(x):
        return strategy.reduce("SUM", strategy.run(jnp.sum, args=(x,)), axis=None)

    for batch in progress:
        progress.show(loss=step(batch))
    (line,) = out.file.getvalue().splitlines()
    assert re.fullmatch(
        r"epoch 1: 4/4 steps; [\d.e+]+ steps/s, input [\d.]+ \w+, "
        r"dispatch [\d.]+ \w+, compute [\d.]+ \w+; loss 54",
        line,
    )
    # The first step compiles, and a step that follows too soon is not looked at.
    assert 1 <= progress.times.samples <= 3


def test_a_terminal_gets_a_bar_and_no_thread():
    out, threads = console(terminal=True), threading.active_count()
    progress = Progress(range(3), total=3, description="[x]", console=out)
    for i in progress:
        progress.show(loss=i / 2)
        assert threading.active_count() == threads
    text = out.file.getvalue()
    assert "3/3" in text and "loss 1" in text


def test_time_goes_where_it_is_spent():
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 60, lambda _, y: y @ y * 1e-3, x))
    x = jnp.eye(300)
    jax.block_until_ready(slow(x))
    start = time.perf_counter()
    jax.block_until_ready(slow(x))
    alone = time.perf_counter() - start

    waiting = Progress(slow_input(4, 0.05), sample_seconds=1e-6, console=console())
    for _ in waiting:
        time.sleep(0.01)
        waiting.show()
    times = waiting.times
    assert times.input >= 0.05 and 0.01 <= times.dispatch < 0.05
    assert times.compute is None and times.steps == 4
    assert times.total >= 4 * 0.06

    busy = Progress(range(4), sample_seconds=1e-6, console=console())
    for _ in busy:
        busy.show(x=slow(x)[0, 0])
    assert busy.times.compute is not None
    assert busy.times.dispatch + busy.times.compute > alone / 3
    assert busy.times.input < 0.01


def test_steps_between_samples_wait_for_nothing(monkeypatch):
    waits = []
    real = jax.block_until_ready
    monkeypatch.setattr(jax, "block_until_ready", lambda x: (waits.append(x), real(x)))
    progress = Progress(range(100), sample_seconds=60, console=console())
    for _ in progress:
        progress.show(x=jnp.float32(1))
    # After the first step, before and after the one sample, and at the end.
    assert len(waits) == 4


def test_the_bar_is_closed_when_the_loop_is_left_early():
    out = console()
    for _ in (progress := Progress(range(9), console=out)):
        break
    assert out.file.getvalue().startswith("0/9 steps")
    with pytest.raises(RuntimeError, match="mine"):
        for _ in progress:
            progress.show(x=1)
            raise RuntimeError("mine")
    assert len(progress) == 9


def test_only_the_first_worker_shows_and_waits(monkeypatch):
    group = process_group.ProcessGroup((("worker", 0), ("worker", 1)), ("", ""), 1)
    monkeypatch.setattr(process_group, "current", lambda: group)
    out = console()
    progress = Progress(range(3), sample_seconds=1e-6, console=out)
    assert [progress.show(x=i) or i for i in progress] == [0, 1, 2]
    assert out.file.getvalue() == ""


def test_numbers_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="must be positive"):
        Progress([], sample_seconds=0)
    with pytest.raises(TypeError, match="not known"):
        len(Progress(iter([])))
