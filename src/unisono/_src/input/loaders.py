"""Loaders that a user has already, as the source of a plan.

None of their packages is imported here: what the user's program has not loaded, the
object that it gave us cannot be made of.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from unisono._src import specs
from unisono._src.input import columnar, cursors, elements, nodes, sources

_LOG = logging.getLogger("unisono")


def to_node(loader: Any) -> nodes.Node:
    """The plan of a dataset, or of whatever else can be iterated.

    Raises:
        TypeError: it cannot be iterated.
    """
    node = getattr(loader, "_node", None)
    if isinstance(node, nodes.Node):
        return node
    for known in (_grain, _torch, _hugging_face, _keras, _arrays):
        node = known(loader)
        if node is not None:
            return node
    if isinstance(loader, (str, bytes)) or not isinstance(loader, Iterable):
        raise TypeError(
            "Expected a unisono.data.Dataset, a loader of Grain, PyTorch, Hugging Face "
            "or Keras, arrays, or something else to iterate over, received "
            f"{type(loader).__name__}."
        )
    if isinstance(loader, Iterator):
        return OneShot(Once(loader))
    return Loader(loader)


class Once:
    """An iterator that can be used a single time."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator: Iterator[Any] | None = iterator
        self._first: list[Any] = []

    def peek(self) -> list[Any]:
        """The first element, which is not used up; nothing if there is none."""
        if self._iterator is not None and not self._first:
            self._first = list(itertools.islice(self._iterator, 1))
            self._iterator = itertools.chain(self._first, self._iterator)
        return self._first

    def __call__(self) -> Iterator[Any]:
        """The iterator, the first time.

        Raises:
            RuntimeError: the second time; it would be empty.
        """
        iterator, self._iterator = self._iterator, None
        if iterator is None:
            raise RuntimeError(
                "The dataset was made of an iterator, which can be gone through only "
                "once. To iterate again, or to continue from a saved position, pass "
                "something that can be iterated anew: a list, a loader, or "
                "Dataset.from_generator(function)."
            )
        return self._elements(iterator)

    def _elements(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for element in iterator:
            found = elements.convert(_structured(element))
            if not self._first:
                # Remembered, to tell later what the elements look like.
                self._first = [elements.map_leaves(elements.owned, found)]
            yield found


@dataclasses.dataclass(frozen=True, eq=False)
class OneShot(sources.Generated):
    """The elements of an iterator."""

    make: Once

    def sampled(self) -> nodes.Node:
        """The first element, without taking it away."""
        first = [elements.convert(_structured(e)) for e in self.make.peek()]
        return sources.Listed(tuple(first))

    def _spec(self) -> Any:
        return unfixed(super()._spec())


def _structured(element: Any) -> Any:
    """Loaders give lists of arrays where they mean several arrays."""
    if isinstance(element, list) and any(_is_array(x) for x in element):
        return tuple(map(_structured, element))
    if isinstance(element, Mapping):
        return {k: _structured(v) for k, v in element.items()}
    if type(element) is tuple:
        return tuple(map(_structured, element))
    return element


def _is_array(x: Any) -> bool:
    return hasattr(x, "__array__") or isinstance(x, (list, tuple, Mapping))


@dataclasses.dataclass(frozen=True, eq=False)
class Loader(nodes.Node):
    """Something that can be iterated again and again."""

    source: Any
    samples_spec = True

    def cursor(self) -> cursors.Cursor:
        """From the beginning."""
        check_processes(self.source)
        return cursors.Iterated(self._elements)

    def _elements(self) -> Iterator[Any]:
        for element in self.source:
            found = elements.convert(_structured(element))
            yield elements.map_leaves(elements.owned, found)

    @property
    def cardinality(self) -> int:
        """Its length, if it has one."""
        try:
            return len(self.source)
        except TypeError:
            return nodes.UNKNOWN

    @property
    def is_fresh(self) -> bool:
        """Copied: a loader may fill the same array again and again."""
        return True

    def _spec(self) -> Any:
        element = nodes.first(self)
        if element is None:
            raise ValueError("Cannot tell the element_spec of an empty loader.")
        return unfixed(elements.spec_of(element))

    def __str__(self) -> str:
        return type(self.source).__name__


def unfixed(spec: Any) -> Any:
    """A spec in which the number of examples may vary: no loader promises it."""
    return elements.map_leaves(
        lambda s: specs.TensorSpec(
            (None, *s.shape[1:]) if s.shape else s.shape, s.dtype
        ),
        spec,
    )


# Grain.


@dataclasses.dataclass(frozen=True, eq=False)
class GrainLoader(Loader):
    """A pipeline of Grain's; its iterators know their position."""

    def cursor(self) -> cursors.Cursor:
        """Grain's iterator."""
        return columnar.Wrapped(iter(self.source))

    @property
    def is_fresh(self) -> bool:
        """Not copied yet."""
        return False


def _grain(loader: Any) -> nodes.Node | None:
    grain = sys.modules.get("grain")
    if grain is None:
        return None
    if isinstance(loader, grain.MapDataset):
        return GrainLoader(loader.to_iter_dataset())
    if isinstance(loader, (grain.IterDataset, grain.DataLoader)):
        return GrainLoader(loader)
    return None


# PyTorch.


def _torch(loader: Any) -> nodes.Node | None:
    torch = sys.modules.get("torch")
    data = getattr(getattr(torch, "utils", None), "data", None)
    if data is None or not isinstance(loader, data.DataLoader):
        return None
    check_processes(loader)
    return TorchLoader(loader)


@dataclasses.dataclass(frozen=True, eq=False)
class TorchLoader(Loader):
    """A `torch.utils.data.DataLoader`."""

    def cursor(self) -> cursors.Cursor:
        """From the beginning; shuffled anew if the loader shuffles."""
        check_processes(self.source)
        return _Replayed(self)


class _Replayed(cursors.Iterated):
    """A loader that starts again to find a position, which needs a fixed order.

    The order comes from a generator, so the position tells how that one was when the
    pass began.
    """

    def __init__(self, node: TorchLoader) -> None:
        super().__init__(node._elements)
        loader = node.source
        self._sampler = getattr(loader, "sampler", None)
        given = getattr(loader, "generator", None)
        self._generator = given or getattr(self._sampler, "generator", None)
        self._begin: str | None = None

    def _now(self) -> str | None:
        if self._generator is None:
            return None
        return self._generator.get_state().numpy().tobytes().hex()

    def read(self, count: int) -> list[Any]:
        if self._iterator is None:
            self._begin = self._now()
        return super().read(count)

    def get_state(self) -> dict[str, Any]:
        begin = self._now() if self._iterator is None else self._begin
        return {"begin": begin, **super().get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        if self._generator is not None and state["begin"] is not None:
            begin = np.frombuffer(bytes.fromhex(state["begin"]), np.uint8)
            torch = sys.modules["torch"]
            self._generator.set_state(torch.from_numpy(begin.copy()))
        elif type(self._sampler).__name__ == "RandomSampler":
            _LOG.warning(
                "Continuing at batch %d of a PyTorch DataLoader that shuffles without "
                "a generator: its order is another one than before, so examples will "
                "be repeated and missed. Give it generator=torch.Generator() with a "
                "seed.",
                state["passed"],
            )
        super().set_state(state)


def check_processes(loader: Any) -> None:
    """Raise before a loader forks a process that runs JAX.

    JAX has threads. A forked child has none of them but every lock that they held,
    and waits for one for ever.

    Raises:
        RuntimeError: the loader would fork.
    """
    workers = getattr(loader, "num_workers", 0)
    if not isinstance(workers, int) or workers <= 0:
        return
    if not type(loader).__module__.startswith(("torch", "torchdata")):
        return
    context = getattr(loader, "multiprocessing_context", None)
    # PyTorch has loaded it, and loading it costs time.
    context = context or sys.modules["multiprocessing"].get_context()
    method = context.get_start_method()
    if method == "fork":
        raise RuntimeError(
            f"This DataLoader would fork {workers} worker processes while JAX is "
            "running, which deadlocks. Give it multiprocessing_context='spawn' or "
            "'forkserver', or num_workers=0."
        )


# Hugging Face.


class _Table:
    """A `datasets.Dataset`: rows by number."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def at(self, index: int) -> Any:
        return elements.convert(_row(self._table[int(index)]))

    def take(self, indices: np.ndarray, blank: nodes.Blank) -> Any:
        return elements.convert(_row(self._table[[int(i) for i in indices]]))

    def slice(self, start: int, stop: int) -> Any:
        return elements.convert(_row(self._table[start:stop]))


def _row(row: Any) -> Any:
    return dict(row) if isinstance(row, Mapping) else row


@dataclasses.dataclass(frozen=True, eq=False)
class HuggingFaceTable(nodes.Node):
    """A `datasets.Dataset`: examples, to be batched."""

    source: Any

    def cursor(self) -> cursors.Cursor:
        """Example after example."""
        return nodes.Lookup(self.rows(), self.indices())

    def rows(self) -> _Table:
        """By number."""
        return _Table(self.source)

    def indices(self) -> cursors.Cursor:
        """Every one."""
        return cursors.Count(len(self.source))

    @property
    def cardinality(self) -> int:
        """How many examples."""
        return len(self.source)

    def _spec(self) -> Any:
        return elements.spec_of(self.rows().at(0))

    def __str__(self) -> str:
        return f"HuggingFace({len(self.source)})"


class _Stream(cursors.Iterated):
    """A `datasets.IterableDataset`, which knows its position itself."""

    def __init__(self, node: HuggingFaceStream) -> None:
        super().__init__(node._elements)
        self._stream = node.source
        self._begin: Any = None

    def read(self, count: int) -> list[Any]:
        if self._begin is None or not count:
            return super().read(count)
        # It holds for every iteration that begins while it is loaded.
        self._stream.load_state_dict(self._begin)
        self._begin = None
        try:
            return super().read(count)
        finally:
            self._stream.load_state_dict(None)

    def get_state(self) -> dict[str, Any]:
        if self._begin is not None:
            return {"passed": self._passed, "stream": self._begin}
        if self._iterator is None or not hasattr(self._stream, "state_dict"):
            return super().get_state()
        return {"passed": self._passed, "stream": self._stream.state_dict()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._begin = None
        if "stream" not in state:
            super().set_state(state)
            return
        self.close()
        self._begin, self._passed = state["stream"], state["passed"]


@dataclasses.dataclass(frozen=True, eq=False)
class HuggingFaceStream(Loader):
    """A `datasets.IterableDataset`: examples, to be batched."""

    def cursor(self) -> cursors.Cursor:
        """From the beginning."""
        return _Stream(self)

    def _spec(self) -> Any:
        element = nodes.first(self)
        if element is None:
            raise ValueError("Cannot tell the element_spec of an empty stream.")
        return elements.spec_of(element)


def _hugging_face(loader: Any) -> nodes.Node | None:
    datasets = sys.modules.get("datasets")
    if datasets is None or not hasattr(datasets, "IterableDataset"):
        return None
    if isinstance(loader, datasets.Dataset):
        return HuggingFaceTable(loader)
    if isinstance(loader, datasets.IterableDataset):
        return HuggingFaceStream(loader)
    return None


# Keras.


class _Batches(cursors.Cursor):
    """The batches of a `PyDataset`, by number."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._next = 0

    def _count(self) -> int | None:
        return self._source.num_batches

    def read(self, count: int) -> list[Any]:
        total = self._count()
        found: list[Any] = []
        while len(found) < count and (total is None or self._next < total):
            batch = elements.convert(_structured(self._source[self._next]))
            found.append(elements.map_leaves(elements.owned, batch))
            self._next += 1
            if self._next == total:
                self._source.on_epoch_end()
        return found

    def skip(self, count: int) -> int:
        total = self._count()
        passed = count if total is None else min(count, total - self._next)
        self._next += passed
        return passed

    def get_state(self) -> dict[str, Any]:
        return {"next": self._next}

    def set_state(self, state: dict[str, Any]) -> None:
        self._next = state["next"]


@dataclasses.dataclass(frozen=True, eq=False)
class KerasBatches(Loader):
    """A Keras `PyDataset`: batches by number. Its own workers are not started."""

    def cursor(self) -> cursors.Cursor:
        """Batch after batch, then `on_epoch_end`."""
        return _Batches(self.source)

    @property
    def cardinality(self) -> int:
        """How many batches it says."""
        count = self.source.num_batches
        return nodes.INFINITE if count is None else count


def _keras(loader: Any) -> nodes.Node | None:
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(loader, keras.utils.PyDataset):
        return None
    return KerasBatches(loader)


# Arrays.


def _arrays(loader: Any) -> nodes.Node | None:
    """Arrays whose rows are the elements."""
    if elements.is_structure(loader):
        leaves = list(elements.leaves(loader))
    else:
        leaves = [loader]
    if leaves and all(hasattr(x, "__array__") for x in leaves):
        return sources.Slices.of(loader)
    return None
