"""PyTorch's `DataLoader`, as the source of a plan."""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from unisono._src.input import cursors, iterables, nodes, structures

_LOG = logging.getLogger("unisono")


def to_node(loader: Any) -> nodes.Node | None:
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


@dataclasses.dataclass(frozen=True, eq=False)
class TorchLoader(iterables.Loader):
    """A `torch.utils.data.DataLoader`."""

    def cursor(self) -> cursors.Cursor:
        """From the beginning; shuffled anew if the loader shuffles."""
        check_processes(self.source)
        return _Replayed(self)

    def _structured(self, element: Any) -> Any:
        return structures.collated(element)


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
