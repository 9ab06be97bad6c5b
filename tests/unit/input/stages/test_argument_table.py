"""Every argument of every method of a dataset is checked at the call, by name."""

import inspect
from typing import Any

import numpy as np
import pytest

import unisono as uni
from unisono._src.input.stages import argument_table

D = uni.data.Dataset
R = D.range(4)
HUGE = 2**63
RAGGED: Any = [[1], [1, 2]]

# Methods without arguments to check, or that take what the language gives them.
PLAIN = {"element_spec", "prepared"}


def methods():
    """Yields name and parameters of the public methods of a dataset."""
    for name in dir(D):
        if name.startswith("_") or name in PLAIN:
            continue
        found = inspect.signature(getattr(D, name)).parameters
        yield name, [p for p in found if p not in ("self", "name")]


def test_every_method_and_argument_has_a_row_in_the_table():
    wanted = dict(methods())
    found = {name: list(row) for name, row in argument_table.TABLE.items()}
    assert found == wanted, (
        "expected a row in argument_table.TABLE for every method, with a check for "
        "every argument; add the check and call it in the method."
    )


def test_every_method_with_checks_calls_the_table():
    for name, row in argument_table.TABLE.items():
        is_checked = any(
            check not in (argument_table._IGNORED, argument_table._COMPARED)
            for check in row.values()
        )
        source = inspect.getsource(getattr(D, name))
        if is_checked:
            assert "argument_table.check(" in source, f"{name} does not call `check`"


CALLS = {
    "range": (lambda: D.range(HUGE), ValueError, "args.*64 bits"),
    "range, below": (lambda: D.range(-HUGE - 1, 0), ValueError, "args.*64 bits"),
    "range, too long": (lambda: D.range(-HUGE, HUGE - 1), ValueError, "at most 2"),
    "range, type": (lambda: D.range(3, output_type="x"), TypeError, "output_type"),
    "counter, type": (lambda: D.counter(dtype=()), TypeError, "dtype"),
    "counter, objects": (lambda: D.counter(dtype=object), TypeError, "dtype"),
    "counter": (lambda: D.counter(HUGE), ValueError, "start"),
    "batch": (lambda: R.repeat().batch(HUGE), ValueError, "batch_size.*64 bits"),
    "batch, negative": (lambda: R.batch(-1), ValueError, "batch_size"),
    "padded_batch": (lambda: R.padded_batch(HUGE), ValueError, "batch_size"),
    "rebatch": (lambda: R.batch(2).rebatch(RAGGED), TypeError, "batch_size"),
    "rebatch, huge": (lambda: R.batch(2).rebatch([HUGE]), ValueError, "batch_size"),
    "rebatch, table": (
        lambda: R.batch(2).rebatch(np.ones((2, 2), int)), TypeError, "batch_size"
    ),
    "shuffle": (lambda: R.shuffle(HUGE), ValueError, "buffer_size"),
    "shuffle, seed": (lambda: R.shuffle(3, seed=HUGE), ValueError, "seed"),
    "take": (lambda: R.take(HUGE), ValueError, "count"),
    "skip": (lambda: R.skip(HUGE), ValueError, "count"),
    "repeat": (lambda: R.repeat(HUGE), ValueError, "count"),
    "shard": (lambda: R.shard(HUGE, 0), ValueError, "num_shards"),
    "prefetch": (lambda: R.prefetch(HUGE), ValueError, "buffer_size"),
    "window": (lambda: R.window(HUGE), ValueError, "size"),
    "window, stride": (lambda: R.window(2, stride=-1), ValueError, "stride"),
    "enumerate": (lambda: R.enumerate(HUGE), ValueError, "start"),
    "interleave": (
        lambda: R.interleave(lambda x: R, cycle_length=-7), ValueError, "cycle_length"
    ),
    "interleave, many": (
        lambda: R.interleave(lambda x: R, HUGE - 1), ValueError, "cycle_length.*most"
    ),
    "counter, an array": (lambda: D.counter(dtype=np.ones(2)), TypeError, "dtype"),
    "map": (lambda: R.map(abs, HUGE), ValueError, "num_parallel_calls"),
    "reduce": (lambda: R.reduce(1.5, 3), TypeError, "reduce_func.*int"),
    "cache": (lambda: R.cache(np.arange(3)), TypeError, "filename"),
    "cache, zero bytes": (lambda: R.cache("a\0b"), ValueError, "filename.*zero"),
    "cache, long": (lambda: R.cache("x" * 240), ValueError, "filename.*bytes"),
    "ignore_errors": (lambda: R.ignore_errors("no"), TypeError, "log_warning"),
    "load": (lambda: D.load(3), TypeError, "path.*3"),
    "load, wait": (lambda: D.load("/nowhere", wait="no"), TypeError, "wait.*'no'"),
    "load, wait for 3": (lambda: D.load("/nowhere", wait=3), TypeError, "wait.*3"),
    "load, long": (lambda: D.load("x" * 300, wait=True), ValueError, "path.*255"),
    "save": (lambda: R.save(3), TypeError, "path.*3"),
    "save, zero bytes": (lambda: R.save("a\0b"), ValueError, "path.*zero"),
    "save, compression": (lambda: R.save("x", np.arange(2)), TypeError, "compression"),
    "list_files": (lambda: D.list_files("x" * 300), ValueError, "file_pattern.*255"),
    "list_files, shuffle": (lambda: D.list_files("*", "no"), TypeError, "shuffle"),
    "TextLineDataset": (
        lambda: uni.data.TextLineDataset("x" * 300), ValueError, "filenames.*255"
    ),
    "group_by_window": (
        lambda: R.group_by_window(abs, abs, window_size_func=3),
        TypeError,
        "window_size_func",
    ),
    "random": (lambda: D.random(seed=HUGE), ValueError, "seed"),
}  # fmt: skip


def test_numbers_that_leave_64_bits_are_no_other_numbers():
    for dataset in (D.counter(HUGE - 2), D.range(3).enumerate(HUGE - 2)):
        assert len(list(dataset.take(2))) == 2
        for made in (dataset.take(3), dataset.take(3).batch(3)):
            with pytest.raises(ValueError, match="does not fit into 64 bits"):
                list(made)
    assert [int(x) for x in D.range(126, 130, output_type="int8")][-1] == -127


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_are_refused_at_the_call_by_name(name):
    call, kind, message = CALLS[name]
    with pytest.raises(kind, match=message):
        call()
