"""Makes a plan from PyTorch's `DataLoader`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from typing import Any, final

import numpy as np

from unisono._src.input.plan import (
    cursors,
    elements,
    first_elements,
    loader_structures,
    nodes,
)
from unisono._src.input.sources import iterables

_log = logging.getLogger("unisono")


def to_node(loader: object) -> nodes.Node | None:
    """Returns the plan of a `DataLoader`; None for anything else.

    Raises:
        TypeError: it is a PyTorch dataset, which has no batches.
        RuntimeError: the loader would fork.
    """
    torch = sys.modules.get("torch")
    data = getattr(getattr(torch, "utils", None), "data", None)
    if data is None:
        return None
    if isinstance(loader, data.Dataset) and not isinstance(loader, Iterable):
        raise TypeError(
            f"{type(loader).__name__} is a PyTorch dataset of single examples. Give a "
            f"loader, torch.utils.data.DataLoader({type(loader).__name__}(...), "
            "batch_size=...)."
        )
    if not isinstance(loader, data.DataLoader):
        return None
    check_processes(loader)
    return TorchLoader(loader)


@final
class TorchLoader(iterables.Repeatable):
    """A source of the batches of a `torch.utils.data.DataLoader`."""

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor from the beginning; the loader may shuffle again."""
        check_processes(self.source)
        return first_elements.watch(self, _Replayed(self))

    @property
    def is_random(self) -> bool:
        """Whether the order is another one in every run."""
        return any(map(_is_random, _samplers(self.source)))

    def _is_exact(self) -> bool:
        # PyTorch's own samplers know their length; a user's samplers and iterable
        # datasets may guess.
        data = sys.modules["torch"].utils.data
        return not isinstance(self.source.dataset, data.IterableDataset) and all(
            type(sampler).__module__.startswith("torch.")
            for sampler in _samplers(self.source)
        )

    def _convert(self, element: object) -> object:
        found = elements.convert(loader_structures.from_collated(element))
        return elements.copy(found)


@final
class _Replayed(cursors.IteratorCursor):
    """The batches of a loader, which is read again to get to a position.

    That needs the same order. It comes from random generators, so a position holds the
    state that these had when the pass began.
    """

    def __init__(self, node: TorchLoader) -> None:
        super().__init__(node.iterate)
        samplers = list(_samplers(node.source))
        owners = [node.source, *samplers]
        found: list[Any] = [getattr(owner, "generator", None) for owner in owners]
        # The loader and its sampler often share a generator.
        unique = {id(g): g for g in found if hasattr(g, "get_state")}
        # Their states at the beginning of the pass decide its order.
        self._generators = list(unique.values())
        self._is_random = node.is_random
        self._begin: list[str] = []
        self._is_lost = False

    def _get_generator_states(self) -> list[str]:
        """Returns the states of the generators."""
        return [g.get_state().numpy().tobytes().hex() for g in self._generators]

    def read(self, count: int) -> list[Any]:
        if self._iterator is None:
            self._begin = self._get_generator_states()
        self._warn_if_lost(self._passed)
        self._is_lost = False
        return super().read(count)

    def skip(self, count: int) -> int:
        self._warn_if_lost(self._passed + count)
        return super().skip(count)

    def _warn_if_lost(self, number: int) -> None:
        """Warns, once, if reading continues in an order that is lost."""
        if self._is_lost and number:
            self._is_lost = False
            _log.warning(
                "Continuing at batch %d of a PyTorch DataLoader that shuffles without "
                "a generator: its order differs from before, so examples will "
                "be repeated and missed. Give generator=torch.Generator() with a seed "
                "to the sampler, or to the loader if that has shuffle=True.",
                number,
            )

    def get_state(self) -> dict[str, Any]:
        begin = self._get_generator_states() if self._iterator is None else self._begin
        return {"begin": begin, **super().get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        if len(state["begin"]) != len(self._generators):
            raise ValueError(
                f"The position was saved from a PyTorch DataLoader with "
                f"{len(state['begin'])} random generators, and this one has "
                f"{len(self._generators)}. Make the loader as the program did that "
                "saved the position."
            )
        for generator, begin in zip(self._generators, state["begin"], strict=True):
            was = np.frombuffer(bytes.fromhex(begin), np.uint8)
            # A copy: PyTorch warns of arrays that it cannot write to.
            generator.set_state(sys.modules["torch"].from_numpy(was.copy()))
        # The base class gets to the position by `read`, which must not warn on the way.
        self._is_lost = False
        super().set_state(state)
        # The warning waits for the first read, which knows the number of the batch.
        self._is_lost = self._is_random


def _samplers(loader: object) -> Iterator[Any]:
    """Yields the samplers that decide the order; one may draw from another."""
    given = [getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)]
    seen: list[Any] = []
    while given:
        sampler = given.pop()
        if sampler is None or any(sampler is s for s in seen):
            continue
        seen.append(sampler)
        yield sampler
        given.append(getattr(sampler, "sampler", None))


def _is_random(sampler: object) -> bool:
    """Whether a sampler draws numbers that cannot be drawn again."""
    data = sys.modules["torch"].utils.data
    kinds = (data.RandomSampler, data.SubsetRandomSampler, data.WeightedRandomSampler)
    return isinstance(sampler, kinds) and sampler.generator is None


def check_whole(node: nodes.Node, expected: int) -> None:
    """Raises if a loader of a plan gives only a part of its data.

    Args:
        node: the plan.
        expected: into how many parts loaders may split their data; 1 if not at all.

    Raises:
        ValueError: a `DistributedSampler` has another number of replicas.
    """
    loaders = [n for n in nodes.walk(node) if isinstance(n, TorchLoader)]
    for sampler in (s for n in loaders for s in _samplers(n.source)):
        # Not by its class: other libraries have samplers of their own like PyTorch's.
        count = getattr(sampler, "num_replicas", 1)
        if isinstance(count, int) and count not in (1, expected):
            raise ValueError(
                f"This DataLoader has a {type(sampler).__name__} with num_replicas="
                f"{count}, so it gives one part of {count} of the data, and the rest "
                "would never be read: the strategy splits each batch by itself. Leave "
                "the sampler out, and give the loader the global batch size and "
                "shuffle=True; or have each worker read a part of its own with "
                "strategy.distribute_datasets_from_function(lambda context: "
                "DataLoader(..., sampler=DistributedSampler(data, "
                "context.num_input_pipelines, context.input_pipeline_id)))."
            )


def check_processes(loader: object) -> None:
    """Raises if a loader would fork processes while JAX is running.

    JAX has threads. A forked child has none of them, but all the locks that they held,
    and waits for one for ever.

    Raises:
        RuntimeError: the loader would fork.
    """
    workers = getattr(loader, "num_workers", 0)
    if not isinstance(workers, int) or workers <= 0:
        return
    makers = {kind.__module__.partition(".")[0] for kind in type(loader).__mro__}
    if not makers & {"torch", "torchdata"}:
        return
    context = getattr(loader, "multiprocessing_context", None)
    # PyTorch has loaded multiprocessing; importing it here would cost every program.
    context = context or sys.modules["multiprocessing"].get_context()
    method = context.get_start_method()
    if method == "fork":
        raise RuntimeError(
            f"This DataLoader would fork {workers} worker processes while JAX is "
            "running, which deadlocks. Give it multiprocessing_context='spawn' or "
            "'forkserver', and put the lines of the script that start it below "
            '`if __name__ == "__main__":`, because each process imports the script; '
            "or give num_workers=0."
        )
