"""PyTorch's `DataLoader`, as the source of a plan."""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Iterable, Iterator
from typing import Any, final

import numpy as np

from unisono._src.input.plan import cursors, elements, loader_structures, nodes
from unisono._src.input.sources import iterables

_LOG = logging.getLogger("unisono")


def to_node(loader: Any) -> nodes.Node | None:
    """The plan of a `DataLoader`; None for anything else.

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
@dataclasses.dataclass(frozen=True, eq=False)
class TorchLoader(iterables.Repeatable):
    """A `torch.utils.data.DataLoader`."""

    def cursor(self) -> cursors.Cursor:
        """From the beginning; shuffled anew if the loader shuffles."""
        check_processes(self.source)
        return _Replayed(self)

    @property
    def is_random(self) -> bool:
        """Whether its order is another one in every program."""
        return any(map(_is_random, _samplers(self.source)))

    def _is_exact(self) -> bool:
        # PyTorch's own samplers count; those of a user, and iterables, may guess.
        data = sys.modules["torch"].utils.data
        return not isinstance(self.source.dataset, data.IterableDataset) and all(
            type(sampler).__module__.startswith("torch.")
            for sampler in _samplers(self.source)
        )

    def _converted(self, element: Any) -> Any:
        found = elements.convert(loader_structures.from_collated(element))
        return elements.map_leaves(elements.owned, found)


@final
class _Replayed(cursors.Iterated):
    """A loader that starts again to find a position, which needs a fixed order.

    The order comes from generators, so the position tells how those were when the
    pass began.
    """

    def __init__(self, node: TorchLoader) -> None:
        super().__init__(node._elements)
        samplers = list(_samplers(node.source))
        owners = [node.source, *samplers]
        found: list[Any] = [getattr(owner, "generator", None) for owner in owners]
        # The same one often belongs to the loader and to its sampler.
        unique = {id(g): g for g in found if hasattr(g, "get_state")}
        self._generators = list(unique.values())
        self._is_random = node.is_random
        self._begin: list[str] = []
        self._is_lost = False

    def _now(self) -> list[str]:
        return [g.get_state().numpy().tobytes().hex() for g in self._generators]

    def read(self, count: int) -> list[Any]:
        if self._iterator is None:
            self._begin = self._now()
        self._tell(self._passed)
        self._is_lost = False
        return super().read(count)

    def skip(self, count: int) -> int:
        self._tell(self._passed + count)
        return super().skip(count)

    def _tell(self, number: int) -> None:
        if self._is_lost and number:
            self._is_lost = False
            _LOG.warning(
                "Continuing at batch %d of a PyTorch DataLoader that shuffles without "
                "a generator: its order is another one than before, so examples will "
                "be repeated and missed. Give generator=torch.Generator() with a seed "
                "to the sampler, or to the loader if that has shuffle=True.",
                number,
            )

    def get_state(self) -> dict[str, Any]:
        begin = self._now() if self._iterator is None else self._begin
        return {"begin": begin, **super().get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        if len(state["begin"]) != len(self._generators):
            raise ValueError(
                f"The position was saved from a PyTorch DataLoader with "
                f"{len(state['begin'])} random generators, and this one has "
                f"{len(self._generators)}. Make the loader as the program did that "
                "saved it."
            )
        for generator, begin in zip(self._generators, state["begin"], strict=True):
            was = np.frombuffer(bytes.fromhex(begin), np.uint8)
            generator.set_state(sys.modules["torch"].from_numpy(was.copy()))
        self._is_lost = False
        super().set_state(state)
        # Told when it is known how many more are passed over.
        self._is_lost = self._is_random


def _samplers(loader: Any) -> Iterator[Any]:
    """What decides on the order: a sampler may draw from another one."""
    given = [getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)]
    seen: list[Any] = []
    while given:
        sampler = given.pop()
        if sampler is None or any(sampler is s for s in seen):
            continue
        seen.append(sampler)
        yield sampler
        given.append(getattr(sampler, "sampler", None))


def _is_random(sampler: Any) -> bool:
    """Whether it draws numbers that no one can draw again."""
    data = sys.modules["torch"].utils.data
    kinds = (data.RandomSampler, data.SubsetRandomSampler, data.WeightedRandomSampler)
    return isinstance(sampler, kinds) and sampler.generator is None


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
    makers = {kind.__module__.partition(".")[0] for kind in type(loader).__mro__}
    if not makers & {"torch", "torchdata"}:
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
