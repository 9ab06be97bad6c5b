"""Lets workers that share a dataset find out that they would read different elements.

Their plans are compared when the dataset is distributed. What sources such as
generators give is compared when an iterator has read its first element, before that is
used.

A plan is described line by line, so that workers find where theirs differ. The lines
have what decides which elements come in which order: stages, sizes, names of files and
functions, and a part of the arrays. They leave out seeds, which worker 0 gives to all,
and what may differ between machines: threads, caches, and the folder that all files are
in.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors
from unisono._src.input.distribution import sharding_rule, worker_agreement
from unisono._src.input.loaders import data_sources, hugging_face
from unisono._src.input.plan import cursors, elements, first_elements, nodes, seeds
from unisono._src.input.sources import arrays, iterables
from unisono._src.input.stages import (
    caching,
    dataset_options,
    element_files,
    file_listing,
    filtering,
    mixing,
    prefetch,
)
from unisono._src.workers import watchdog, worker_notes

# The first character of a note with which a worker says that it shares no dataset; no
# JSON begins with it.
_EXEMPT = "="
# To find the first line that differs, so many parts are compared in each round.
_PARTS = 512
# In characters: what is shown of a difference.
_LONGEST_TEXT = 500
# The notes of so many iterators stay where other workers may still read them.
_KEPT_NOTES = 8
# The sources whose elements are known only when they are read.
_STREAMS = (arrays.Generated, iterables.Loader, iterables.OneShot)
# The stages whose functions may choose other examples on another worker.
_CALLED = (mixing.Interleave, filtering.Filter)
_REMEDY = (
    "Examples would be lost, and others come twice. Make the dataset in the same way "
    "on every worker: sort the names of files, give random numbers a seed, and draw "
    "those that change examples in Dataset.map, where workers may differ. If each "
    "worker reads a dataset of its own, set AutoShardPolicy.OFF in its options, or use "
    "distribute_datasets_from_function; then nothing is compared. (The folder that all "
    "files are in may differ.)"
)


def agree_on_plan(
    given: nodes.Node,
    decision: sharding_rule.Decision,
    notes: worker_notes.NoteExchange,
) -> None:
    """Compares the plans of all workers, and gives them the seeds of worker 0.

    Workers that keep their share of every batch, or of a list of files, must have it in
    the same order, or examples are lost and others come twice. It takes one round of
    notes, and a few more if the plans differ.

    Args:
        given: the plan before it is cut for this worker.
        decision: how it is cut.
        notes: an exchange of its own.

    Raises:
        WorkerMismatchError: the plans differ; with the first difference.
        WorkerStalledError: a worker distributes no dataset.
    """
    is_own = decision.kind == sharding_rule.Policy.FILE
    kind = f"AutoShardPolicy.{decision.kind.name}"
    lines = [kind, *lines_of(given, is_own)]
    orders = seeds.Orders([given])
    own = {"lines": len(lines), "mark": _mark(lines), "seeds": orders.get_state()}
    what = "to call experimental_distribute_dataset as well"
    told = _post(notes, json.dumps(own), what)
    for worker, note in enumerate(told):
        if note.startswith(_EXEMPT):
            # That worker goes on without the others' notes, and learns it by the guard.
            kinds = [kind] * len(told)
            kinds[worker] = note[1:]
            raise watchdog.notice(_mismatch_error("the kind of dataset", kinds))
    read = [json.loads(note) for note in told]
    if len({each["mark"] for each in read}) > 1:
        raise _find_line(lines, max(each["lines"] for each in read), notes)
    orders.set_state(read[0]["seeds"])


def tell_exempt(why: str, notes: worker_notes.NoteExchange) -> None:
    """Tells workers that compare their plans that this one's dataset is its own."""
    notes.leave(_EXEMPT + why)


def _mark(lines: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(lines).encode()).hexdigest()[:16]


def _find_line(
    lines: list[str], longest: int, notes: worker_notes.NoteExchange
) -> errors.WorkerMismatchError:
    """Returns the error with the first line that differs; all workers call this."""
    start, stop = 0, longest
    while stop - start > 1:
        count = min(_PARTS, stop - start)
        edges = [start + i * (stop - start) // count for i in range(count + 1)]
        pairs = list(itertools.pairwise(edges))
        told = notes.post(json.dumps([_mark(lines[a:b]) for a, b in pairs]))
        columns = zip(*map(json.loads, told), strict=True)
        place = next(i for i, column in enumerate(columns) if len(set(column)) > 1)
        start, stop = pairs[place]
    own = lines[start] if start < len(lines) else "nothing: the plan is shorter"
    return _mismatch_error("the plan", [*map(json.loads, notes.post(json.dumps(own)))])


def _mismatch_error(where: str, texts: Sequence[str]) -> errors.WorkerMismatchError:
    """Returns the error for a difference.

    Args:
        where: what differs.
        texts: what each worker has there.
    """
    other = next(i for i, text in enumerate(texts) if text != texts[0])
    first, second = texts[0][:_LONGEST_TEXT], texts[other][:_LONGEST_TEXT]
    return errors.WorkerMismatchError(
        "The workers share a dataset that is not the same on all of them. The first "
        f"difference is in {where}: worker 0 has {first}; worker {other} has "
        f"{second}. {_REMEDY}",
        other,
    )


def _post(exchange: worker_notes.NoteExchange, note: str, what: str) -> list[str]:
    """Posts a note and returns those of all workers.

    Args:
        exchange: the exchange.
        note: the note of this worker.
        what: what this worker waits for another to do.

    Raises:
        WorkerStalledError: a worker does not do it in time.
    """
    try:
        return exchange.post(note)
    except errors.WorkerStalledError as error:
        late = error.worker
        raise errors.WorkerStalledError(
            f"This worker has waited for worker {late} {what}. Workers that share a "
            "dataset must distribute and read the same datasets in the same order; a "
            "dataset for one of them needs AutoShardPolicy.OFF or no strategy. If "
            f"worker {late} only needs longer, give the strategy a larger "
            f"timeout_seconds in communication_options. ({error})",
            late,
        ) from None


@final
class Comparisons:
    """Compares what workers read first, once for each iterator over a dataset.

    Args:
        node: the plan that this worker reads.
        decision: how the dataset is dealt.
        make_exchange: returns the exchange for a topic.
    """

    def __init__(
        self,
        node: nodes.Node,
        decision: sharding_rule.Decision,
        make_exchange: Callable[[str], worker_notes.NoteExchange],
    ) -> None:
        self._node, self._make_exchange = node, make_exchange
        self._kind = decision.kind
        # Else each worker reads its own part behind the sources.
        self._is_common = decision.kind == sharding_rule.Policy.DATA
        kinds = (*_STREAMS, *_CALLED) if self._is_common else _STREAMS
        self._has_streams = any(isinstance(n, kinds) for n in nodes.walk(node))
        self._iterators, self._positions = itertools.count(), itertools.count()
        self._old: collections.deque[worker_notes.NoteExchange] = collections.deque()

    def open(self, make: Callable[[], cursors.Cursor]) -> cursors.Cursor:
        """Returns a cursor that compares what it reads first.

        Args:
            make: returns a cursor over the plan, at its first element.
        """
        if not self._has_streams:
            return make()
        has_names = self._kind == sharding_rule.Policy.FILE
        noted = [n for n in nodes.walk(self._node) if self._is_common or not n.parents]
        recorder = first_elements.Recorder(noted, self._is_common, has_names)
        exchange = self._make_exchange(
            f"first elements, iterator {next(self._iterators)}"
        )
        return _Compared(make, recorder, exchange, self._keep)

    def check_position(self, index: int) -> None:
        """Raises unless all workers continue at the same element.

        Each may call this for itself where workers read parts of their own.

        Args:
            index: the number of the next element.

        Raises:
            WorkerMismatchError: another worker continues elsewhere.
            WorkerStalledError: another worker does not continue from a position.
        """
        if not self._is_common:
            return
        exchange = self._make_exchange(f"position {next(self._positions)}")
        what = "to call set_state of an iterator over this dataset as well"
        told = _post(exchange, str(index), what)
        if len(set(told)) > 1:
            texts = [f"element {number}" for number in told]
            raise _mismatch_error("the position that was set", texts)
        self._keep(exchange)

    def _keep(self, exchange: worker_notes.NoteExchange) -> None:
        """Keeps the notes of a comparison for a while, for workers that are slower."""
        self._old.append(exchange)
        if len(self._old) > _KEPT_NOTES:
            # No worker begins so many iterators before it has compared an earlier one.
            self._old.popleft().clear()


@final
class SharedPlan(nodes.SameCount, nodes.UnchangedElements):
    """A plan whose first elements are compared between workers."""

    comparisons: Comparisons
    keeps_spec = True
    makes_new = None

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that compares what it reads first."""
        return self.comparisons.open(self.parent.cursor)


@final
class _Compared(cursors.UnaryCursor):
    """The elements of a plan; the first read compares what the sources gave for it."""

    def __init__(
        self,
        make: Callable[[], cursors.Cursor],
        recorder: first_elements.Recorder,
        exchange: worker_notes.NoteExchange,
        keep: Callable[[worker_notes.NoteExchange], None],
    ) -> None:
        # None after the comparison.
        self._recorder: first_elements.Recorder | None = recorder
        self._exchange, self._keep = exchange, keep
        self._begin = ""
        with recorder.open():
            super().__init__(make())

    def _noting(self) -> contextlib.AbstractContextManager[None]:
        # A source may be opened when it is first read, or asked for its position.
        return (
            contextlib.nullcontext()
            if self._recorder is None
            else self._recorder.open()
        )

    def read(self, count: int) -> Sequence[Any]:
        recorder = self._recorder
        if recorder is None:
            return self._source.read(count)
        try:
            with recorder.open():
                found = self._source.read(count)
        except Exception:
            # The others wait for a note of this worker.
            self._exchange.leave(worker_agreement.report_failure())
            raise
        self._compare(recorder)
        self._recorder = None
        self._keep(self._exchange)
        return found

    def _compare(self, recorder: first_elements.Recorder) -> None:
        passes = dict(recorder.passes)
        own = {
            "begin": self._begin,
            "passes": {
                key: [{i: mark for i, (mark, _) in dict(p.seen).items()}, p.end]
                for key, p in passes.items()
            },
        }
        what = "to read a first element of this dataset as well"
        told = _post(self._exchange, json.dumps(own), what)
        worker_agreement.check_failures(told)
        read = [json.loads(note) for note in told]
        # Positions that were saved by each worker for itself may lie in different
        # passes over a source, so that numbers of elements mean different things.
        if len({each["begin"] for each in read}) > 1:
            return
        found = _find_element([each["passes"] for each in read])
        if found is None:
            return
        key, number = found
        noted = passes.get(key)
        text = "nothing" if noted is None else _tell_element(noted, number)
        texts = [json.loads(t) for t in self._exchange.post(json.dumps(text))]
        where = noted.source if noted is not None else "a source"
        raise _mismatch_error(f"element {number} of {where}", texts)

    def skip(self, count: int) -> int:
        with self._noting():
            return self._source.skip(count)

    def get_state(self) -> dict[str, Any]:
        with self._noting():
            return self._source.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        if self._recorder is not None:
            # All workers do so. The exchange may have been cancelled.
            self._exchange = self._exchange.renew()
            text = json.dumps(state, sort_keys=True, default=str)
            self._begin = hashlib.sha256(text.encode()).hexdigest()[:16]
        with self._noting():
            self._source.set_state(state)

    def cancel(self) -> None:
        self._exchange.cancel()
        super().cancel()


def _find_element(told: Sequence[dict[str, Any]]) -> tuple[str, int] | None:
    """Returns the pass and number of the first element that differs between workers.

    Args:
        told: for each worker the passes over its sources: the checksums of elements by
            their numbers, and the number of all, if it is known.
    """
    keys = dict.fromkeys(key for passes in told for key in passes)
    for key in sorted(keys):
        known = [passes[key] for passes in told if key in passes]
        numbers = {int(i) for seen, _ in known for i in seen}
        numbers |= {end for _, end in known if end is not None}
        for number in sorted(numbers):
            marks = {
                seen.get(str(number), "end")
                for seen, end in known
                if str(number) in seen or (end is not None and number >= end)
            }
            if len(marks) > 1:
                return key, number
    return None


def _tell_element(noted: first_elements.PassRecord, number: int) -> str:
    """Returns what this worker has in the place of an element."""
    if number in noted.seen:
        return noted.seen[number][1]
    if noted.end is not None and number >= noted.end:
        return f"no such element: its source ends after {noted.end}"
    return "not read that far"


# What they do does not change which elements come, nor their order.
_LEFT_OUT = (
    prefetch.Prefetch,
    dataset_options.WithOptions,
    caching.Cache,
    caching.FileCache,
)
# The same of fields: how many threads or processes run a function, and the state of
# random orders, which workers share. And what a source holds, which has its own lines.
_FIELDS_LEFT_OUT = frozenset(
    {"parallel", "run", "order", "is_pass", "source"}
    | {"arrays", "element", "files", "path", "items"}
)
# The rows of an array that have a line of their own.
_ROWS = 16
# Of a longer list of texts, so many are looked at.
_TEXTS = 100_000
_PLAIN = (bool, int, float, complex, str, bytes, np.dtype, enum.Enum, specs.TypeSpec)


def lines_of(node: nodes.Node, has_own_files: bool = False) -> list[str]:
    """Returns the lines of a plan, from its sources to its end.

    Args:
        node: the end of the plan.
        has_own_files: whether each worker reads files of its own. How many it has open
            at a time does not matter to the others then.
    """
    left_out = _FIELDS_LEFT_OUT | ({"cycle"} if has_own_files else set())
    found: list[str] = []
    for n in reversed(list(nodes.walk(node))):
        if not isinstance(n, _LEFT_OUT):
            found.append(_describe(n, left_out))
            found.extend(_describe_contents(n))
    return found


def _describe(node: nodes.Node, left_out: Set[str]) -> str:
    """Returns the kind of a node and its arguments, without some of them."""
    told = [
        f"{field.name}={_text(getattr(node, field.name))}"
        for field in dataclasses.fields(node)
        if field.name not in left_out and not _holds_nodes(getattr(node, field.name))
    ]
    kinds = (iterables.Loader, hugging_face.HuggingFaceTable, data_sources.DataSource)
    if isinstance(node, kinds):
        told.append(f"{node}, length={node.cardinality}")
    return f"{type(node).__name__}({', '.join(told)})"


def _holds_nodes(value: Any) -> bool:
    is_many = isinstance(value, tuple) and bool(value)
    return isinstance(value[0] if is_many else value, nodes.Node)


def _text(value: object) -> str:
    """Returns an argument as text that is the same on every worker."""
    if hasattr(value, "__array__"):
        return first_elements.describe(value, first_elements.checksum(value))
    if value is None or isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{k!r}: {_text(v)}' for k, v in value.items())}}}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_text, value))})"
    kind = type(value)
    is_ours = kind.__module__.startswith("unisono._src.input.")
    if is_ours and "__str__" in vars(kind):
        # Such a text is the same in every process; a user's may have an address.
        return str(value)
    return _name_function(value) if callable(value) else type(value).__name__


def _name_function(fn: object) -> str:
    """Returns the name of a function, and the line of its file where it begins."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = getattr(fn, "__func__", fn)
    name = getattr(fn, "__qualname__", type(fn).__qualname__)
    code = getattr(fn, "__code__", None)
    if code is None:
        return str(name)
    return f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


def _describe_contents(node: nodes.Node) -> Iterator[str]:
    """Yields lines about what a source holds; of large arrays, about a part."""
    if isinstance(node, file_listing.FILES):
        yield from _describe_texts(node.files, "file")
    elif isinstance(node, element_files.SavedShard):
        yield f"file: {os.path.basename(node.path)!r}"
    elif isinstance(node, element_files.Shards):
        names = file_listing.names_of(node)
        yield from _describe_texts(names.names if names else (), "file")
    elif isinstance(node, arrays.Slices):
        yield from _describe_arrays(node.arrays)
    elif isinstance(node, arrays.Tensors):
        yield f"element: {_text(node.element)}"
    elif isinstance(node, data_sources.DataSource):
        # It was read for the spec as well.
        row = nodes.first_element(node)
        yield f"row 0: {first_elements.describe(row, first_elements.checksum(row))}"
    elif isinstance(node, hugging_face.HuggingFaceTable):
        order = hugging_face.sample_order(node)
        yield from (f"row {i}: number {n} of the table" for i, n in order)


def _describe_arrays(given: object) -> Iterator[str]:
    """Yields lines about arrays whose rows are elements."""
    for path, leaf in elements.paths(given):
        array, name = elements.as_array(leaf), f" of {path}" if path else ""
        yield f"array{name}: {array.dtype}, shape {array.shape}"
        if array.dtype.kind == "O" and array.ndim == 1:
            yield from _describe_texts(array.tolist(), f"row{name}")
            continue
        for i, row in enumerate(array[:_ROWS]):
            yield f"row {i}{name}: {_text(row)}"
        mark = first_elements.checksum(array)
        yield f"rows{name}, a sample of all: checksum {mark:08x}"


def _describe_texts(texts: Sequence[Any], what: str) -> Iterator[str]:
    """Yields a line for each text, without the folder that all of them are in."""
    step = 1 + len(texts) // _TEXTS
    chosen = [os.fsdecode(x) if isinstance(x, (str, bytes)) else repr(x)
              for x in texts[::step]]  # fmt: skip
    # Workers may see the same files in different places. Not `commonpath`: the texts
    # need not be paths.
    folder = os.path.commonprefix(chosen).rpartition(os.sep)[0]  # noqa: RUF071
    start = len(folder) + 1 if folder else 0
    yield f"{what}s: {len(texts)}"
    for i, text in enumerate(chosen):
        yield f"{what} {i * step}: {text[start:]!r}"
